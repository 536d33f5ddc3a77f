#include "property/trial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "mesh/random_sharding.h"
#include "passes/product_rings.h"
#include "passes/rings.h"
#include "property/shardings.h"
#include "sample.h"
#include "tessera/base/error.h"
#include "tessera/base/float16.h"
#include "tessera/ir/text.h"
#include "tessera/proof/prove.h"
#include "tessera/spmd/partition/partition.h"

namespace tessera::property {
namespace {

using spmd::Annotation;

/// `apart`: each node by itself, in memory of its own. No right program is refused by the prover.
runtime::Executor::Tensors execute(const Subject& subject, std::shared_ptr<const spmd::Program> program,
                                   bool apart = false) {
  runtime::ExecutorOptions options;
  options.keep_all = apart;
  options.threads_per_rank = 1;
  options.world.timeout = std::chrono::seconds(30);
  proof::Report proof = proof::prove(*runtime::RankPrograms::same(program));
  if (!proof.good()) fail_running("proof", "{}", proof.findings.front().message);
  return runtime::Executor(std::move(program), options).run(subject.inputs);
}

std::vector<double> widened(const Tensor& tensor) {
  std::vector<double> values;
  switch (tensor.dtype) {
    case DType::float32:
      for (float value : tensor.as<float>()) values.push_back(value);
      break;
    case DType::float64:
      for (double value : tensor.as<double>()) values.push_back(value);
      break;
    case DType::float16:
    case DType::bfloat16:
      for (uint16_t bits : tensor.as<uint16_t>()) {
        Float16 half;
        BFloat16 brain;
        half.bits = brain.bits = bits;
        values.push_back(tensor.dtype == DType::float16 ? static_cast<float>(half) : static_cast<float>(brain));
      }
      break;
    default:
      for (int64_t value : tensor.to_int64()) values.push_back(static_cast<double>(value));
  }
  return values;
}

// The axes of a dimension, on any of its parts.
std::vector<AxisRef> axes_of(const DimSharding& dim) {
  std::vector<AxisRef> axes;
  for (const Part& part : dim.parts)
    for (const AxisRef& axis : part.axes)
      if (axis.size > 1) axes.push_back(axis);
  std::sort(axes.begin(), axes.end());
  return join_axes(axes);
}

// The part of an annotation that the program does not follow: closed dimensions must be exactly as stated, but if they
// name only axes, the partitioner chooses the part.
std::string disobeyed(const Sharding& ordered, const Sharding& made, const Mesh& mesh) {
  for (size_t d = 0; d < ordered.dims.size(); ++d) {
    if (ordered.dims[d].open) continue;
    bool same = ordered.dims[d].parts.size() == 1 ? axes_of(ordered.dims[d]) == axes_of(made.dims[d])
                                                  : same_layout({{ordered.dims[d]}, {}}, {{made.dims[d]}, {}});
    if (!same) return fmt::format("ordered is {}, made is {}", ordered.str(mesh), made.str(mesh));
  }
  return "";
}

std::string disobeyed(const spmd::Program& program, const Annotation& annotation) {
  auto check_port = [&](const spmd::Port& port) {
    return port.name == annotation.value->name
               ? disobeyed(annotation.sharding, program.placement(port.value).sharding, program.mesh)
               : std::string();
  };
  for (const auto& ports : {program.inputs, program.outputs})
    for (const spmd::Port& port : ports)
      if (std::string what = check_port(port); !what.empty()) return what;
  for (const auto& [state, data] : program.initial)
    if (std::string what = check_port({program.placement(state).name, const_cast<Value*>(state)}); !what.empty())
      return what;
  return "";
}

// Whether keys and values go around rings now.
bool put_in_rings(spmd::Program& program) {
  const std::vector<std::string> notes = passes::put_in_rings(program);
  return std::any_of(notes.begin(), notes.end(),
                     [](const std::string& note) { return note.find("go around a ring of") != std::string::npos; });
}

/// All that a run of the program depends on, apart from the data of its states, which is the subject's.
std::string text_of(const spmd::Program& program) {
  TextOptions options;
  options.elide_above = std::numeric_limits<int64_t>::max();
  options.types = true;
  options.annotate = [&](const Value& value) -> std::string {
    const auto placement = program.placements.find(&value);
    return placement == program.placements.end() ? "" : placement->second.sharding.str(program.mesh);
  };
  std::string text = program.mesh.str() + "\n" + print_text(*program.graph, options);
  if (program.init) text += print_text(*program.init, options);
  for (const auto& ports : {program.inputs, program.outputs})
    for (const spmd::Port& port : ports)
      text += fmt::format("{} is {}: {}\n", port.name, port.value->name, options.annotate(*port.value));
  for (const auto& [state, made] : program.derived) text += fmt::format("{} from {}\n", state->name, made->name);
  return text;
}

}  // namespace

std::string difference(const Tensor& actual, const Tensor& expected, Bound bound) {
  if (actual.dtype != expected.dtype || actual.dims != expected.dims)
    return fmt::format("{} [{}] instead of {} [{}]", name_of(actual.dtype), fmt::join(actual.dims, ", "),
                       name_of(expected.dtype), fmt::join(expected.dims, ", "));
  if (actual.bytes == 0 || std::memcmp(actual.data, expected.data, actual.bytes) == 0) return "";
  auto a = widened(actual), b = widened(expected);
  double largest = bound.scale;
  for (double value : b)
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    bool same = a[i] == b[i] && std::signbit(a[i]) == std::signbit(b[i]);
    if (bound.relative > 0) same |= a[i] == b[i] || std::abs(a[i] - b[i]) <= bound.relative * largest;
    if (!same) return fmt::format("element {} of {} is {}, not {}", i, a.size(), a[i], b[i]);
  }
  return "";
}

std::shared_ptr<spmd::Program> compile(const Subject& subject, const Mesh& mesh,
                                       const std::vector<Annotation>& annotations, const std::set<const Node*>& finer) {
  spmd::Hints hints(subject.symbols.begin(), subject.symbols.end());
  std::multimap<const Value*, Sharding> cuts;
  for (const Annotation& annotation : annotations) cuts.emplace(annotation.value, annotation.sharding);
  spmd::Layout layout(*subject.graph, hints, cuts, {}, {}, finer);
  spmd::propagate(layout, annotations, mesh);
  auto decisions = spmd::decide(*subject.graph, layout, mesh, hints, annotations);
  return std::make_shared<spmd::Program>(spmd::partition(*subject.graph, layout, decisions, mesh, hints));
}

Trials::Trials(const Subject& subject) : subject_(subject) {
  for (const auto& node : subject.graph->nodes())
    if (ops::op_of(*node).finer_rule) finer_.insert(node.get());
  expected_ = execute(subject, compile(subject, {}, {}), true);
}

void Trials::fail(const Mesh& mesh, const std::vector<Annotation>& annotations, const std::string& what) {
  ++failures_;
  std::string orders;
  for (const Annotation& annotation : annotations)
    orders += fmt::format("\n  {}={}", annotation.value->name, annotation.sharding.str(mesh));
  std::string nodes;
  for (const auto& node : subject_.graph->nodes()) {
    nodes += "\n  " + node->label() + ":";
    for (const Value* operand : node->inputs)
      nodes += operand ? fmt::format(" {} {}", operand->name, to_string(operand->shape())) : " _";
  }
  ADD_FAILURE() << subject_.name << nodes << "\nmesh " << mesh.str() << orders << "\nTESSERA_TEST_SEED=" << base_seed()
                << "\n"
                << what;
}

void Trials::run(const Mesh& mesh, const std::vector<Annotation>& annotations) {
  run(mesh, annotations, {});
  if (!finer_.empty()) run(mesh, annotations, finer_);
}

void Trials::run(const Mesh& mesh, const std::vector<Annotation>& annotations, const std::set<const Node*>& finer) {
  if (given_up()) return;
  try {
    auto program = compile(subject_, mesh, annotations, finer);
    for (const Annotation& annotation : annotations)
      if (std::string what = disobeyed(*program, annotation); !what.empty())
        return fail(mesh, annotations, annotation.value->name + " is not laid out as it should be: " + what);
    compare(mesh, annotations, program);
    ++right_;
    if (put_in_rings(*program)) {
      compare(mesh, annotations, program);
      ++in_rings_;
    }
    static const std::vector<passes::RingForm> forms = {{}, {.both_ways = true}, {.pieces = 2}, {true, 3}};
    if (passes::put_products_in_rings(*program, forms[product_rings_ % forms.size()]).empty()) return;
    compare(mesh, annotations, program);
    ++product_rings_;
  } catch (const Error& error) {
    bool expected = std::any_of(refusals().begin(), refusals().end(), [&](const Refusal& refusal) {
      return std::string_view(error.what()).find(refusal.message) != std::string_view::npos;
    });
    // An axis alone finds its part; only parts that are spelt out can be the wrong ones.
    expected &= std::any_of(annotations.begin(), annotations.end(), [](const Annotation& annotation) {
      const auto& dims = annotation.sharding.dims;
      return std::any_of(dims.begin(), dims.end(), [](const DimSharding& dim) { return dim.parts.size() > 1; });
    });
    if (!expected || error.kind() != ErrorKind::user) return fail(mesh, annotations, error.what());
    ++refused_;
  }
}

void Trials::compare(const Mesh& mesh, const std::vector<Annotation>& annotations,
                     std::shared_ptr<const spmd::Program> program) {
  if (!compared_.insert(text_of(*program)).second) return;
  const auto actual = execute(subject_, std::move(program));
  for (const auto& [name, expected] : expected_)
    if (std::string what = difference(actual.at(name), expected, subject_.bound); !what.empty())
      return fail(mesh, annotations, name + ": " + what);
}

void Trials::run_single(size_t factorings) {
  size_t turn = seed_of(subject_.name);
  for (const Value* value : subject_.annotatable())
    for (const Mesh& mesh : test::one_in(2, lines(), turn++))
      for (const Sharding& sharding : single_shardings(value->shape(), AxisRef::whole(mesh.axes()[0]), factorings))
        run(mesh, {{value, sharding, "test"}});
}

void Trials::run_random(size_t count) {
  std::mt19937_64 engine(seed_of(subject_.name + " on grids"));
  for (size_t i = 0; i < count; ++i) {
    const Mesh& mesh = grids()[std::uniform_int_distribution<size_t>(0, grids().size() - 1)(engine)];
    std::vector<Annotation> annotations;
    for (const Value* value : subject_.annotatable())
      if (std::uniform_int_distribution(0, 9)(engine) < 6)
        annotations.push_back({value, random_sharding(value->shape(), mesh, engine), "test"});
    run(mesh, annotations);
  }
}

}  // namespace tessera::property
