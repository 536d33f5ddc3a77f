#include "tessera/compiler/rank_view.h"

#include <fmt/format.h>

#include <set>

#include "tessera/base/error.h"
#include "tessera/base/saturated.h"
#include "tessera/ir/flow.h"
#include "tessera/ir/on_demand.h"
#include "tessera/ops/op.h"
#include "tessera/spmd/partition/init.h"

namespace tessera::compiler {

RankView::RankView(const CompiledProgram& compiled, int64_t rank, const SymbolSizes& sizes)
    : compiled_(compiled), rank_(static_cast<int>(rank)), given_(sizes), sizes_(sizes) {
  const int64_t ranks = compiled.program->mesh.size();
  if (rank < 0 || rank >= ranks) fail("plan", "the mesh has no rank {}; its ranks are 0 to {}", rank, ranks - 1);
  sizes_.insert(compiled.program->hints.begin(), compiled.program->hints.end());
  programs_ = runtime::programs_for(compiled.programs, sizes_, compiled.for_sizes);
}

double RankView::at(const Expr& expr) const {
  const Mesh& mesh = programs_->mesh();
  return spmd::hinted(bind_rank(expr, mesh, mesh.coordinates(rank_)), sizes_);
}

std::vector<const Value*> RankView::states() const {
  std::vector<const Value*> held;
  for (const Value* state : program().graph->values_of(ValueKind::state))
    if (spmd::step_keeps(program(), state)) held.push_back(state);
  return held;
}

int64_t RankView::bytes_of_state(const Value* state) const {
  return static_cast<int64_t>(bytes_of(state->dtype(), saturated(at(product(state->shape())))));
}

int64_t RankView::state_bytes() const {
  int64_t bytes = 0;
  for (const Value* state : states()) bytes += bytes_of_state(state);
  return bytes;
}

std::string RankView::text_of(const Value* state) const {
  const auto data = program().initial.find(state);
  if (data == program().initial.end()) return "";
  const spmd::Placement& placement = program().placement(state);
  return fmt::format("{} {} {} {} {}", state->name, name_of(state->dtype()), to_string(state->shape()),
                     placement.sharding.str(programs_->mesh()), origin_of(data->second));
}

RankFigures RankView::figures() const {
  double flops = 0;
  const Graph& graph = *program().graph;
  const flow::Flow flow = flow::flow_of(graph);
  for (const auto& node : graph.nodes()) flops += at(flow::runs_of(flow, node.get())) * at(ops::flops_of(*node));
  const runtime::MemoryUse use = compiled_.planned(rank_, given_).use;
  return {static_cast<int64_t>(use.peak),        state_bytes(),
          static_cast<int64_t>(use.activations), static_cast<int64_t>(use.gradients),
          static_cast<int64_t>(use.copies),      saturated(flops)};
}

std::vector<MemoryMoment> RankView::memory_over_time() const {
  const int64_t states = state_bytes();
  std::vector<MemoryMoment> moments;
  for (const runtime::MemoryMoment& moment : runtime::memory_over_time({programs_, sizes_, compiled_.sizing}, rank_)) {
    const auto activations = static_cast<int64_t>(moment.use.activations),
               gradients = static_cast<int64_t>(moment.use.gradients);
    moments.push_back({moment.operation, states, activations, gradients,
                       static_cast<int64_t>(moment.use.peak) - states - activations - gradients});
  }
  return moments;
}

int64_t RankView::bytes_shared_with(const RankView& other) const {
  std::set<std::string> fixed;
  for (const Value* state : other.states())
    if (std::string text = other.text_of(state); !text.empty() && !state->changing) fixed.insert(std::move(text));
  int64_t bytes = 0;
  for (const Value* state : states())
    if (state->changing || fixed.contains(text_of(state))) bytes += bytes_of_state(state);
  return bytes;
}

std::string RankView::machine_text(const runtime::ExecutorOptions& options) const {
  const Mesh& mesh = compiled_.program->mesh;
  std::string title;
  for (const auto& [symbol, size] : sizes_) title += fmt::format("{}{}={}", title.empty() ? ", " : ",", symbol, size);
  return fmt::format("rank {} of {}{}\n", rank_, mesh.axes().empty() ? "one" : mesh.str(), title) +
         runtime::machine_text_of_rank({programs_, sizes_, options}, rank_);
}

}  // namespace tessera::compiler
