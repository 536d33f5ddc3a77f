#include "tessera/compiler/pipelining.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/ir/flow.h"
#include "tessera/ops/op.h"
#include "tessera/passes/node_work.h"
#include "tessera/rewrite/pipeline.h"

namespace tessera::compiler {
namespace {

AxisRef axis_of(const Mesh& mesh) {
  const auto axis = mesh.find(kPipelineAxis);
  if (!axis)
    fail("pipeline",
         "a pipeline's stages lie along the axis '{0}', which is not in the mesh '{1}'; add it, as in {0}=2",
         kPipelineAxis, mesh.str());
  return AxisRef::whole(mesh.axes()[*axis]);
}

// Blocks are found by sizes. A model as read has types once it is upgraded and its functions are inlined, which keeps
// the results' names; one that was cut into micro-batches has been through this.
OnnxModel typed(const OnnxModel& read) {
  OnnxModel model = read.clone();
  const auto& nodes = read.graph->nodes();
  if (std::any_of(nodes.begin(), nodes.end(), [](const auto& node) { return node->seat.micro_batch >= 0; })) {
    ops::infer_types(*model.graph);
    return model;
  }
  for (const rewrite::Pass& pass : rewrite::passes()) {
    pass.run(model);
    if (pass.name == "fold") break;
  }
  return model;
}

// Element-wise nodes are fused, so that each only writes its results, or less.
double seconds_of(const Node& node, const cost::Prices& prices, const spmd::Hints& sizes) {
  const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
  if (!op || !op->elementwise) return prices.kernel(passes::work_of(node, sizes));
  double written = 0;
  for (const Value* result : node.outputs)
    if (result && result->has_shape())
      written += spmd::hinted(product(result->shape()), sizes) * static_cast<double>(bits_of(result->dtype())) / 8;
  return prices.copy(written);
}

/// What a pipeline is made for.
struct Subject {
  int64_t micro_batches = 1;
  bool divided = false;  // its nodes say to which micro-batch they belong
  bool trains = false;   // it has gradients
};

Subject subject_of(const Graph& graph, const stages::StageSettings& one_stage) {
  Subject subject;
  for (const auto& node : graph.nodes()) {
    subject.divided |= node->seat.micro_batch >= 0;
    subject.micro_batches = std::max<int64_t>(subject.micro_batches, node->seat.micro_batch + 1);
    subject.trains |= node->seat.is_backward();
  }
  if (subject.divided) return subject;
  const stages::Stages found = stages::find_stages(graph, one_stage);
  subject.trains = std::any_of(graph.nodes().begin(), graph.nodes().end(),
                               [&](const auto& node) { return found.of(*node) >= 0 && !found.is_in_forward(*node); });
  return subject;
}

// The table of a file must be for these ranks and micro-batches.
void require_fit(const PipelineTable& table, const std::string& source, int64_t ranks, const Subject& subject) {
  if (std::ssize(table.ranks) != ranks)
    fail("pipeline", "{} has {} ranks, but the axis '{}' has {}; make both equal", source, table.ranks.size(),
         kPipelineAxis, ranks);
  if (!subject.trains) return;
  if (table.micro_batches != subject.micro_batches)
    fail("pipeline", "{} has {} micro-batches, but the step has {}; set `micro_batches` to {}", source,
         table.micro_batches, subject.micro_batches, table.micro_batches);
  if (!check_pipeline(table).trains)
    fail("pipeline", "{} has forward passes only, and the step has gradients; add cells B, or I and W", source);
}

// A schedule with as many stages as training has; without gradients, its forward passes.
PipelineTable table_of(const std::string& name, int64_t ranks, const Subject& subject) {
  constexpr int64_t kEnoughForEach = 2;  // micro-batches a rank, as every schedule takes
  PipelineTable table;
  if (!is_pipeline_schedule(name)) {
    table = load_pipeline(name);
    require_fit(table, name, ranks, subject);
  } else {
    const PipelineSizes sizes{ranks, subject.trains ? subject.micro_batches : kEnoughForEach * ranks};
    table = name == "auto" ? find_pipeline(sizes, {}).table : make_pipeline(name, sizes);
  }
  return subject.trains ? table : schedule::forward_table(table.rank_of, ranks, subject.micro_batches);
}

// Stages are the same for all tables with the same ranks, so a table of the forward pass says on which ranks they are.
std::string schedule_of(const PipelineRequest& request, bool trains) {
  return !request.schedule.empty() ? request.schedule : trains ? "1f1b" : "gpipe";
}

}  // namespace

Pipelining::Pipelining(const OnnxModel& read, const PipelineRequest& request, const Mesh& mesh,
                       const spmd::Hints& sizes, const cost::Prices* prices)
    : axis_(axis_of(mesh)) {
  const OnnxModel model = typed(read);
  const Graph& graph = *model.graph;
  stages::StageSettings settings;
  settings.sizes = sizes;
  if (prices) settings.seconds = [&](const Node& node) { return seconds_of(node, *prices, sizes); };
  const Subject subject = subject_of(graph, settings);
  const std::string schedule = schedule_of(request, subject.trains);
  table_ = table_of(schedule, axis_.size, subject);
  cells_.emplace(table_);
  settings.stages = table_.stages;
  settings.ranks_of = table_.rank_of;
  settings.micro_batches = subject.micro_batches;
  settings.blocks = request.blocks();
  stages_ = stages::find_stages(graph, settings);
  for (const auto& node : graph.nodes()) {
    const Seat seat{stages_.of(*node), subject.divided ? node->seat.micro_batch : 0,
                    stages_.is_in_forward(*node) ? Segment::forward : Segment::backward};
    for (const Value* result : node->outputs)
      if (result) of_result_[result->name] = seat;
  }
  std::vector<int64_t> counts;
  for (const stages::StageInfo& stage : stages_.stages) counts.push_back(stage.blocks);
  notes_.push_back(fmt::format("pipeline {}: {} on {}, of {} blocks; {}", schedule, counted(table_.stages, "stage"),
                               counted(axis_.size, "rank"), fmt::join(counts, ","),
                               counted(subject.micro_batches, "micro-batch", "micro-batches")));
}

std::string Pipelining::text() const {
  constexpr size_t kWidth = 120;
  return pipeline_text(table_, kWidth) + "\n" + stages::stages_text(stages_);
}

spmd::Places Pipelining::mark(Graph& graph) const {
  std::map<const Node*, bool> known;
  for (auto at = graph.nodes().rbegin(); at != graph.nodes().rend(); ++at) {
    Node& node = **at;
    std::vector<Seat> users;
    const Seat* own = nullptr;
    for (const Value* result : node.outputs) {
      if (!result || own) continue;
      if (const auto found = of_result_.find(result->name); found != of_result_.end()) own = &found->second;
      for (const Use& use : result->uses) users.push_back(use.node->seat);
    }
    const bool agreed = !users.empty() && std::equal(users.begin() + 1, users.end(), users.begin());
    known[&node] = own || agreed;
    node.seat = own ? *own : agreed ? users.front() : Seat();
  }
  // All ranks run a loop or a branch.
  const flow::Flow flow = flow::flow_of(graph);
  for (const auto& node : graph.nodes())
    if (flow.of(node.get()) >= 0 || node->domain == flow::kDomain) {
      node->seat.stage = -1;
      known[node.get()] = true;
    }
  spmd::Places places;
  for (const auto& node : graph.nodes()) {
    if (!known.at(node.get()))
      for (const Value* operand : node->inputs)
        if (const Node* maker = operand ? operand->producer : nullptr; maker && maker->seat.stage >= node->seat.stage)
          node->seat = maker->seat;
    if (node->seat.stage >= 0 && axis_.size > 1)
      places[node.get()] = {{axis_, table_.rank_of[static_cast<size_t>(node->seat.stage)]}};
  }
  return places;
}

}  // namespace tessera::compiler
