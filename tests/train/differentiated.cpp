#include "train/differentiated.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "property/trial.h"
#include "tessera/base/error.h"
#include "tessera/base/float16.h"
#include "tessera/ops/library/node_builder.h"
#include "tessera/ops/op.h"
#include "tessera/train/autodiff.h"

namespace tessera::train {
namespace {

using property::Subject;

template <typename T>
std::vector<double> widened(const Tensor& tensor) {
  const auto elements = tensor.as<T>();
  return {elements.begin(), elements.end()};
}

bool contains(const std::vector<size_t>& list, size_t element) {
  return std::find(list.begin(), list.end(), element) != list.end();
}

// Whether a source's elements are numbers in which a loss has a derivative at all: no operand that shapes depend on, or
// that is never trained.
bool is_differentiable(const Value& source) {
  if (!is_float(source.dtype()) || source.kind == ValueKind::result || source.kind == ValueKind::expression)
    return false;
  return std::all_of(source.uses.begin(), source.uses.end(), [](const Use& use) {
    const ops::OpDef& op = ops::op_of(*use.node);
    return !contains(op.values, use.index) && !contains(op.always_float32, use.index);
  });
}

bool trains(const Value& source) {
  return std::any_of(source.uses.begin(), source.uses.end(),
                     [](const Use& use) { return !contains(ops::op_of(*use.node).untrained, use.index); });
}

std::vector<double> elements_of(const Tensor& tensor, Elements elements, DType type, std::mt19937_64& engine) {
  std::vector<double> values = doubles_of(tensor);
  for (double& value : values) {
    constexpr double kHuge = 1e4, kTiny = 1e-4;
    if (!std::isfinite(value) || std::abs(value) > kHuge || (value != 0 && std::abs(value) < kTiny))
      value = std::uniform_int_distribution(2, 9)(engine);
    if (elements == Elements::given) continue;
    // In float32 multiples of a small power of two, so that sums of products are exact.
    const double sign = std::uniform_int_distribution(0, 1)(engine) ? 1 : -1;
    if (value == std::round(value))
      value += sign * (type == DType::float64 ? std::uniform_real_distribution(0.1, 0.4)(engine)
                                              : std::uniform_int_distribution(7, 25)(engine) / 64.0);
    // Functions have their kinks at multiples of a tenth, and at halves.
    constexpr double kNear = 2e-3;
    if (std::abs(value * 10 - std::round(value * 10)) < kNear) value -= kNear;
  }
  return values;
}

// Casts between floats stay so; results that the operator always makes in float32 are made in the one type.
void retype(Node& node, DType type) {
  for (Attribute& attribute : node.attributes) {
    auto* to = std::get_if<int64_t>(&attribute.value);
    if (to && (attribute.name == "to" || attribute.name == "dtype") && is_float(static_cast<DType>(*to)))
      *to = static_cast<int64_t>(type);
    auto* data = std::get_if<Tensor>(&attribute.value);
    if (data && is_float(data->dtype)) *data = tensor_of(type, data->dims, doubles_of(*data));
  }
}

}  // namespace

std::vector<double> doubles_of(const Tensor& tensor) {
  switch (tensor.dtype) {
    case DType::float32:
      return widened<float>(tensor);
    case DType::float64:
      return widened<double>(tensor);
    case DType::float16:
    case DType::bfloat16: {
      std::vector<double> values;
      for (uint16_t bits : tensor.as<uint16_t>()) {
        Float16 half;
        BFloat16 brain;
        half.bits = brain.bits = bits;
        values.push_back(tensor.dtype == DType::float16 ? static_cast<float>(half) : static_cast<float>(brain));
      }
      return values;
    }
    default: {
      const std::vector<int64_t> integers = tensor.to_int64();
      return {integers.begin(), integers.end()};
    }
  }
}

Tensor tensor_of(DType type, const Dims& dims, const std::vector<double>& values) {
  if (type == DType::float64) return Tensor::of<double>(type, dims, values);
  if (type == DType::bfloat16 || type == DType::float16) {
    std::vector<uint16_t> bits;
    for (double value : values) {
      const auto single = static_cast<float>(value);
      bits.push_back(type == DType::bfloat16 ? BFloat16(single).bits : Float16(single).bits);
    }
    return Tensor::of(type, dims, bits);
  }
  return Tensor::of<float>(type, dims, std::vector<float>(values.begin(), values.end()));
}

std::vector<size_t> float_outputs(const Subject& subject) {
  std::vector<size_t> found;
  for (size_t i = 0; i < subject.graph->outputs.size(); ++i)
    if (is_float(subject.graph->outputs[i]->dtype())) found.push_back(i);
  return found;
}

Differentiated differentiate(const Subject& subject, const std::vector<size_t>& results, DType type,
                             Elements elements) {
  std::mt19937_64 engine(property::seed_of(subject.name));
  Differentiated made;
  Subject& forward = made.forward;
  forward.name = subject.name;
  forward.symbols = subject.symbols;
  std::map<const Value*, Value*> copies;
  forward.graph = subject.graph->clone(&copies);
  Graph& graph = *forward.graph;
  graph.outputs.clear();
  std::vector<Value*> sources;
  for (const auto& original : subject.graph->values()) {
    Value* source = copies.at(original.get());
    if (!is_differentiable(*original) || original->uses.empty()) {
      if (original->kind == ValueKind::input) forward.inputs[original->name] = subject.inputs.at(original->name);
      continue;
    }
    const Tensor& data = original->has_data() ? original->data : subject.inputs.at(original->name);
    Value* input = source;
    if (original->kind != ValueKind::input) {
      input = graph.add_input("in." + original->name, original->type);
      graph.replace_uses(source, input);
      graph.erase(source);
    }
    input->type.dtype = type;
    forward.inputs[input->name] = tensor_of(type, data.dims, elements_of(data, elements, type, engine));
    if (trains(*original)) sources.push_back(input);
  }
  for (const auto& node : graph.nodes()) retype(*node, type);
  ops::infer_types(graph);

  ops::NodeBuilder build(graph, "loss");
  Value* loss = nullptr;
  for (size_t r : results) {
    Value* result = copies.at(subject.graph->outputs[r]);
    const Dims dims = subject.dims_of(subject.graph->outputs[r]);
    std::vector<double> weights(static_cast<size_t>(count_of(dims)));
    for (double& weight : weights)
      weight = std::uniform_int_distribution(1, 5)(engine) * (std::uniform_int_distribution(0, 1)(engine) ? 1 : -1);
    Value* weight = graph.add_input("loss.weight" + std::to_string(r), {DType::float64, result->shape()});
    forward.inputs[weight->name] = tensor_of(DType::float64, dims, weights);
    Value* share =
        build.sum(build.mul(build.cast(result, DType::float64), weight), ops::all_axes(result->rank()), false);
    loss = loss ? build.add(loss, share) : share;
  }
  graph.outputs = {loss};
  graph.rename(loss, "loss");
  graph.verify("test");

  made.backward = forward;
  made.backward.graph = graph.clone(&copies);
  std::vector<Value*> of;
  for (Value* source : sources) of.push_back(copies.at(source));
  Graph& backward = *made.backward.graph;
  const std::vector<Value*> found = gradients(backward, {{copies.at(loss)}}, of);
  ops::NodeBuilder ends(backward, "end");
  for (size_t i = 0; i < of.size(); ++i) {
    made.sources.push_back(of[i]->name);
    if (!found[i]) continue;
    // A gradient may be shared, or an input.
    Value* own = ends.emit("Identity", {found[i]});
    backward.rename(own, "grad." + of[i]->name);
    backward.outputs.push_back(own);
  }
  backward.verify("test");
  return made;
}

runtime::Executor::Tensors run_on_one(const Subject& subject) {
  runtime::ExecutorOptions options;
  options.threads_per_rank = 1;
  return runtime::Executor(property::compile(subject, {}, {}), options).run(subject.inputs);
}

std::map<std::string, std::vector<double>> difference_quotients(const Differentiated& of, double h) {
  runtime::ExecutorOptions options;
  options.threads_per_rank = 1;
  runtime::Executor executor(property::compile(of.forward, {}, {}), options);
  std::map<std::string, Tensor> inputs = of.forward.inputs;
  const auto loss = [&] { return executor.run(inputs).at("loss").as<double>()[0]; };
  std::map<std::string, std::vector<double>> quotients;
  for (const std::string& source : of.sources) {
    const Tensor given = inputs.at(source);
    const std::vector<double> values = doubles_of(given);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto at = [&](double step) {
        std::vector<double> moved = values;
        moved[i] += step;
        inputs[source] = tensor_of(given.dtype, given.dims, moved);
        return loss();
      };
      const auto quotient = [&](double step) { return (at(step) - at(-step)) / (2 * step); };
      quotients[source].push_back((4 * quotient(h) - quotient(2 * h)) / 3);
    }
    inputs[source] = given;
  }
  return quotients;
}

}  // namespace tessera::train
