#include "conformance/split_case.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "conformance/node_case.h"
#include "tessera/base/error.h"
#include "tessera/ops/op.h"
#include "tessera/parts/segments.h"
#include "tessera/proof/prove.h"
#include "tessera/rewrite/pipeline.h"
#include "tessera/runtime/executor.h"
#include "tessera/spmd/decide/decide.h"
#include "tessera/spmd/layout/propagate.h"
#include "tessera/spmd/partition/partition.h"

namespace tessera::conformance {
namespace {

/// A dimension of a node's operand, split along one of its factors.
struct Split {
  size_t node = 0, operand = 0, dim = 0;  ///< `node` in the graph's order
  Sharding sharding;
};

/// A case as the compiler sees it. Its inputs are states: a layout that is ordered of a state is one that nothing
/// gathers while another way exists.
struct Subject {
  NodeCase given;
  std::unique_ptr<OnnxModel> model;

  Graph& graph() const { return *model->graph; }
};

std::optional<Subject> subject_of(const std::filesystem::path& folder) {
  Subject subject{read_case(folder), nullptr};
  const auto segments = parts::segments_of(subject.given.model);
  if (segments.size() != 1) return std::nullopt;
  std::map<std::string, Tensor> values;
  for (const std::string& name : segments.front().values)
    if (auto known = subject.given.inputs.find(name); known != subject.given.inputs.end()) {
      values.insert(*known);
      subject.given.inputs.erase(known);
    }
  subject.model = std::make_unique<OnnxModel>(parts::with_values(subject.given.model, values));
  rewrite::rewrite_model(*subject.model);
  Graph& graph = subject.graph();
  for (Value* input : std::vector<Value*>(graph.inputs)) {
    if (!constants_of(input->shape())) return std::nullopt;
    if (bits_of(input->dtype()) % 8 != 0 || input->uses.empty()) continue;
    input->kind = ValueKind::state;
    input->data = subject.given.inputs.at(input->name);
    subject.given.inputs.erase(input->name);
    std::erase(graph.inputs, input);
  }
  return subject;
}

Sharding split_along(const Value& value, const ops::Rule& rule, const ops::DimFactors& factors, size_t dim,
                     size_t which, const AxisRef& axis) {
  Sharding sharding = Sharding::replicated(value.shape());
  auto& parts = sharding.dims[dim].parts;
  parts.clear();
  for (size_t f = 0; f < factors.size(); ++f) {
    const ops::Factor& factor = rule.factors[factors[f]];
    const Expr& size = ops::traits_of(factor.kind).by_window ? value.shape()[dim] : factor.size;  // a result's extent
    parts.push_back({size, f == which ? std::vector{axis} : std::vector<AxisRef>()});
  }
  return sharding;
}

/// All splits of operands that are states; counts the dimensions that have none.
std::vector<Split> splits_of(const Graph& graph, const AxisRef& axis, int& whole) {
  std::vector<Split> splits;
  size_t number = 0;
  for (const auto& node : graph.nodes()) {
    const ops::Rule rule = ops::op_of(*node).rule(*node);
    for (size_t t = 0; t < node->inputs.size() && t < rule.operands.size(); ++t) {
      const Value* operand = node->inputs[t];
      if (!operand || operand->kind != ValueKind::state) continue;
      for (size_t d = 0; d < operand->rank(); ++d) {
        if (*operand->shape()[d].constant() < 2) continue;
        const size_t before = splits.size();
        const ops::DimFactors& factors = rule.operands[t][d];
        for (size_t f = 0; f < factors.size(); ++f) {
          const ops::Factor& factor = rule.factors[factors[f]];
          if (factor.can_be_split() && !factor.size.is(1))
            splits.push_back({number, t, d, split_along(*operand, rule, factors, d, f, axis)});
        }
        whole += splits.size() == before;
      }
    }
    ++number;
  }
  return splits;
}

/// What is wrong; empty if nothing is.
std::string run(const Subject& subject, const Split& split, const Mesh& mesh) {
  const Graph& graph = subject.graph();
  const Value* value =
      std::next(graph.nodes().begin(), static_cast<ptrdiff_t>(split.node))->get()->inputs[split.operand];
  const std::vector<spmd::Annotation> annotations = {{value, split.sharding, "test"}};
  spmd::Layout layout(graph, {}, {{value, split.sharding}});
  spmd::propagate(layout, annotations, mesh);
  const spmd::Decisions decisions = spmd::decide(graph, layout, mesh, {}, annotations);
  const DimSharding& made = decisions.nodes[split.node].operands[split.operand].dims[split.dim];
  if (!same_layout({{made}, {}}, {{split.sharding.dims[split.dim]}, {}})) return "it is gathered before the operator";
  auto program = std::make_shared<spmd::Program>(spmd::partition(graph, layout, decisions, mesh, {}));
  const proof::Report proof = proof::prove(*runtime::RankPrograms::same(program));
  if (!proof.good()) return proof.findings.front().message;
  runtime::ExecutorOptions options;
  options.threads_per_rank = 1;
  options.world.timeout = std::chrono::seconds(20);
  const auto actual = runtime::Executor(program, options).run(subject.given.inputs);
  for (const auto& [name, expected] : subject.given.outputs)
    if (std::string problem = mismatch(name, expected, actual.at(name), subject.given.tolerance); !problem.empty())
      return problem;
  return "";
}

}  // namespace

SplitOutcome run_split(const std::filesystem::path& folder) {
  SplitOutcome outcome;
  const auto subject = subject_of(folder);
  if (!subject) return outcome;
  const auto& nodes = subject->given.model.graph->nodes();
  outcome.op = nodes.size() == 1 ? nodes.front()->op_type : "several";
  for (int64_t ranks : {2, 3}) {
    const Mesh mesh({{"x", ranks}});
    int whole = 0;
    for (const Split& split : splits_of(subject->graph(), AxisRef::whole(mesh.axes()[0]), whole)) {
      ++outcome.legal;
      std::string problem;
      try {
        problem = run(*subject, split, mesh);
      } catch (const std::exception& error) {
        problem = error.what();
      }
      if (problem.empty())
        ++outcome.passed;
      else
        outcome.problems.push_back(
            fmt::format("{} operand {} {}: {}", mesh.str(), split.operand, split.sharding.str(mesh), problem));
    }
    outcome.whole = whole;
  }
  return outcome;
}

void SplitTally::add(const SplitOutcome& outcome) {
  if (outcome.legal + outcome.whole == 0) return;
  for (Line* line : {&lines_[outcome.op], &all_}) {
    line->tests += outcome.legal > 0;
    line->right += outcome.legal > 0 && outcome.passed == outcome.legal;
    line->legal += outcome.legal;
    line->passed += outcome.passed;
    line->whole += outcome.whole;
  }
}

std::string SplitTally::text(const Line& line) {
  return fmt::format("{} of {} tests, {} of {} splits, {} dimensions whole", line.right, line.tests, line.passed,
                     line.legal, line.whole);
}

std::string SplitTally::str() const {
  std::string all;
  for (const auto& [op, line] : lines_) all += fmt::format("{}: {}\n", op, text(line));
  return all + fmt::format("all: {}\n", text(all_));
}

double SplitTally::percent() const {
  return all_.tests == 0 ? 0 : 100.0 * all_.right / all_.tests;
}

}  // namespace tessera::conformance
