#include <algorithm>
#include <cmath>
#include <limits>
#include <regex>
#include <set>

#include "property/refusal_list.h"
#include "random/random_program.h"
#include "random/reference.h"
#include "runtime/checked_world.h"
#include "tessera/base/error.h"
#include "tessera/base/float16.h"
#include "tessera/compiler/compile.h"
#include "tessera/compiler/places.h"
#include "tessera/ir/text.h"
#include "tessera/proof/prove.h"
#include "tessera/runtime/executor.h"
#include "tessera/spmd/partition/partition.h"

namespace tessera::random {
namespace {

/// An inexact result may be off by this part of a magnitude.
constexpr double kRelative = 2e-5;
/// Sums of larger numbers overflow on the way or not, as their order has it.
constexpr double kNearOverflow = 0x1p100;

/// `apart`: each node by itself, in memory of its own.
runtime::ExecutorOptions options(bool apart = false) {
  runtime::ExecutorOptions options;
  options.keep_all = apart;
  options.threads_per_rank = 1;
  options.world.timeout = std::chrono::seconds(30);
  return options;
}

Tensors run_sharded(const Program& program) {
  compiler::CompileOptions compile;
  compile.mesh = program.mesh;
  for (const auto& [symbol, value] : program.symbols) compile.shapes[symbol] = value;
  for (const Order& order : program.orders)
    compile.annotations.push_back({order.name, order.sharding.str(program.mesh), "annotation"});
  for (const Placing& placing : program.places)
    compile.places.push_back({placing.name, print_place(placing.place, program.mesh), "place"});
  if (program.rings) compile.ring_attention = passes::RingAttention::always;
  compile.product_rings = program.rings ? compiler::ProductRings::always : compiler::ProductRings::never;
  if (program.orders.empty() && program.mesh.size() > 1) compile.presets = "dp:" + program.mesh.axes().front().name;
  auto programs = runtime::RankPrograms::same(compiler::compile(program.model, compile).program);
  proof::Report proof = proof::prove(*programs);
  if (!proof.good()) fail_running("proof", "{}", proof.findings.front().message);
  runtime::ExecutorOptions checked = options();
  checked.connected = std::make_shared<runtime::CheckedWorld>(static_cast<int>(program.mesh.size()));
  return runtime::Executor(programs, checked).run(program.inputs);
}

std::vector<double> widened(const Tensor& tensor) {
  std::vector<double> values;
  auto take = [&](auto elements) {
    for (auto element : elements) values.push_back(static_cast<double>(static_cast<float>(element)));
  };
  if (tensor.dtype == DType::float64) {
    auto elements = tensor.as<double>();
    values.assign(elements.begin(), elements.end());
  } else if (tensor.dtype == DType::float32) {
    take(tensor.as<float>());
  } else if (tensor.dtype == DType::float16) {
    take(tensor.as<Float16>());
  } else if (tensor.dtype == DType::bfloat16) {
    take(tensor.as<BFloat16>());
  } else if (!is_integer(tensor.dtype) && tensor.dtype != DType::boolean) {
    for (size_t i = 0; i < tensor.bytes; ++i) values.push_back(static_cast<double>(tensor.data[i]));  // small floats
  } else {
    for (int64_t element : tensor.to_int64()) values.push_back(static_cast<double>(element));
  }
  return values;
}

std::string difference(const Tensor& actual, const Tensor& expected, double tolerance) {
  if (actual.dtype != expected.dtype || actual.dims != expected.dims)
    return fmt::format("{} [{}] instead of {} [{}]", name_of(actual.dtype), fmt::join(actual.dims, ", "),
                       name_of(expected.dtype), fmt::join(expected.dims, ", "));
  if (std::isinf(tolerance)) return "";
  auto a = widened(actual), b = widened(expected);
  for (size_t i = 0; i < a.size(); ++i)
    if (!(a[i] == b[i] || std::abs(a[i] - b[i]) <= tolerance || (std::isnan(a[i]) && std::isnan(b[i]))))
      return fmt::format("element {} of {} is {}, not {}", i, a.size(), a[i], b[i]);
  return "";
}

double magnitude_of(const Tensor& tensor) {
  double largest = 0;
  for (double value : widened(tensor))
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  return largest;
}

/// The tolerance of each result that is not exact: a part of the largest magnitude that it, or a value it is computed
/// from, has in this run (a small difference carries the roundings of its large operands), and of its magnitude bound.
/// `all` holds every result.
std::map<std::string, double> tolerances(const Program& program, const Tensors& all) {
  std::map<const Value*, double> largest;
  auto of = [&](const Value* value) {
    auto known = largest.find(value);
    if (known != largest.end()) return known->second;
    auto input = program.inputs.find(value->name);
    if (input != program.inputs.end()) return magnitude_of(input->second);
    return value->data.data ? magnitude_of(value->data) : 0.0;
  };
  std::set<const Value*> unknown;
  std::map<std::string, double> found;
  for (const auto& node : program.model.graph->nodes())
    for (const Value* result : node->outputs) {
      const auto known = result ? all.find(result->name) : all.end();
      if (known == all.end()) continue;
      double most = magnitude_of(known->second);
      for (const Value* operand : node->inputs)
        if (operand) most = std::max(most, of(operand));
      const Facts& facts = program.facts.at(result->name);
      bool overflows = !facts.exact && most >= kNearOverflow;
      for (const Value* operand : node->inputs) overflows = overflows || (operand && unknown.contains(operand));
      if (overflows) unknown.insert(result);
      largest[result] = most = std::min(most, facts.bound);
      found[result->name] = facts.exact ? 0 : kRelative * most;
      if (overflows) found[result->name] = std::numeric_limits<double>::infinity();
    }
  return found;
}

/// The results of all nodes on one rank.
Tensors run_apart(const Program& program) {
  auto graph = program.model.graph->clone();
  const flow::Flow flow = flow::flow_of(*graph);
  for (const auto& node : graph->nodes())
    for (Value* result : node->outputs)
      if (result && leaves(flow, *node) && !graph->is_output(result)) graph->outputs.push_back(result);
  return run_whole(*graph, program);
}

/// Refusals are for parts that an annotation spells out, and for extents that broadcast because they happen to be 1,
/// which the roadmap lists among the known gaps.
bool is_refusal(const Program& program, const Error& error) {
  auto has_parts = [](const Order& order) {
    return std::any_of(order.sharding.dims.begin(), order.sharding.dims.end(),
                       [](const DimSharding& dim) { return dim.parts.size() > 1; });
  };
  if (std::regex_search(error.what(), std::regex("but these inputs make them (1 and|[0-9]+ and 1;)"))) return true;
  const bool unproved =
      std::string_view(error.what()).find("no sizes were found that all stated") != std::string_view::npos;
  const auto is_one = [](const auto& symbol) { return symbol.second == 1; };
  if (unproved && std::any_of(program.symbols.begin(), program.symbols.end(), is_one)) return true;
  // Claims are drawn from the program as it was written; rewriting and other claims may lead to another split.
  if (std::string_view(error.what()).find("is annotated partial(") != std::string_view::npos) return true;
  // Rewriting may merge a placed node with one whose operand an annotation splits.
  const bool contradicts = std::string_view(error.what()).find("leave out one of the two") != std::string_view::npos;
  if (!program.places.empty() && !program.orders.empty() && contradicts) return true;
  if (error.kind() != ErrorKind::user || std::none_of(program.orders.begin(), program.orders.end(), has_parts))
    return false;
  return std::any_of(property::refusals().begin(), property::refusals().end(), [&](const property::Refusal& refusal) {
    return std::string_view(error.what()).find(refusal.message) != std::string_view::npos;
  });
}

}  // namespace

Tensors run_whole(const Graph& graph, const Program& program) {
  spmd::Hints hints(program.symbols.begin(), program.symbols.end());
  spmd::Layout layout(graph, hints, {});
  spmd::propagate(layout, {}, {});
  auto decisions = spmd::decide(graph, layout, {}, hints, {});
  auto whole = std::make_shared<spmd::Program>(spmd::partition(graph, layout, decisions, {}, hints));
  return runtime::Executor(std::move(whole), options(true)).run(program.inputs);
}

Outcome check(const Program& program) {
  Tensors expected;
  try {
    expected = run_apart(program);
  } catch (const Error& error) {
    return {error.kind() == ErrorKind::user ? Verdict::skipped : Verdict::failed,
            fmt::format("whole: {}", error.what())};
  }
  try {
    Tensors actual = run_sharded(program);
    const auto allowed = tolerances(program, expected);
    for (const auto& [name, tensor] : actual)
      if (std::string what = difference(tensor, expected.at(name), allowed.at(name)); !what.empty())
        return {Verdict::failed, fmt::format("difference: '{}': {}", name, what)};
    return {};
  } catch (const Error& error) {
    return {is_refusal(program, error) ? Verdict::refused : Verdict::failed, fmt::format("sharded: {}", error.what())};
  }
}

std::string describe(const Program& program) {
  std::string text = print_text(program.model, {.elide_above = 64});
  for (const auto& [symbol, value] : program.symbols) text += fmt::format("\n--shapes {}={}", symbol, value);
  text += fmt::format("\n--mesh {}", program.mesh.str());
  for (const Order& order : program.orders)
    text += fmt::format("\n--annotate '{}={}'", order.name, order.sharding.str(program.mesh));
  if (program.rings) text += "\n--ring-attention always";
  for (const Placing& placing : program.places)
    text += fmt::format("\n--place '{}={}'", placing.name, compiler::request_of(placing.place, program.mesh));
  return text;
}

}  // namespace tessera::random
