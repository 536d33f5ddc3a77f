#include "tessera/train/forward.h"

#include "tessera/base/error.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/pipeline.h"
#include "tessera/rewrite/precision.h"
#include "tessera/rewrite/random.h"
#include "tessera/train/batch_norm.h"
#include "tessera/train/initialize.h"
#include "tessera/train/names.h"

namespace tessera::train {
namespace {

// A parameter that the file holds in 16 bits is kept in float32, and cast for its uses.
void keep_in_float32(Graph& graph, Value& state) {
  const DType narrow = state.dtype();
  state.data = rewrite::widened(state.data);
  state.type.dtype = DType::float32;
  state.data_extra.clear();
  const std::vector<Use> uses = state.uses;
  Node* cast = graph.add_node("Cast", {&state}, {state.name + ".narrow"}, "", graph.nodes().front().get());
  cast->set("to", static_cast<int64_t>(narrow));
  cast->outputs[0]->type = {narrow, state.type.shape};
  for (const Use& use : uses) graph.set_input(use.node, use.index, cast->outputs[0]);
}

void settle_dropout(OnnxModel& model, Dropout dropout, std::vector<std::string>& notes) {
  if (dropout != Dropout::as_stated) return rewrite::switch_dropouts(model, dropout == Dropout::on);
  if (const int idle = rewrite::count_dropouts(model, false))
    notes.push_back(
        fmt::format("{} of the model's Dropouts drop nothing (no training_mode); `dropout=on` makes them drop, "
                    "`dropout=off` silences this note",
                    idle));
}

// The next values of running statistics become outputs of the forward model, after those that the loss takes.
std::map<std::string, size_t> settle_batch_norm(Graph& graph, const Selection& selection, BatchNorm how) {
  std::map<std::string, size_t> statistics;
  for_each_statistic(graph, how, [&](Node* node, size_t operand, Value* value) {
    if (!selection.statistics.contains(value->name)) return;
    if (!statistics.emplace(value->name, graph.outputs.size()).second)
      fail("train",
           "two BatchNormalizations share the running statistics '{}' ({} is one); give each its own, or give "
           "`batch_norm=frozen`",
           value->name, node->label());
    const size_t result = operand - 2;
    if (node->outputs.size() <= result) node->outputs.resize(result + 1, nullptr);
    Value*& next = node->outputs[result];
    if (!next) {
      next = graph.add_value(value->name + ".moved", ValueKind::result, value->type);
      next->producer = node;
    }
    graph.outputs.push_back(next);
  });
  bool any = false;
  for (Node* node : rewrite::nodes_of(graph)) {
    if (!node->is("BatchNormalization")) continue;
    any = true;
    const bool train = trains(*node, how);
    if (train) node->set("training_mode", int64_t{1});
    if (!train) node->remove_attribute("training_mode");
  }
  if (how == BatchNorm::train && !any)
    fail("train",
         "`batch_norm=train`: the model has no BatchNormalization; exporters fuse them with convolutions, unless told "
         "to keep them: torch.onnx.export with optimize=False, or, of the older exporter (dynamo=False), with "
         "training=TrainingMode.TRAINING and do_constant_folding=False (docs/training.md)");
  return statistics;
}

}  // namespace

Forward make_forward(OnnxModel model, const Selection& selection, const StepOptions& options) {
  Forward forward;
  forward.model = std::move(model);
  Graph& graph = *forward.model.graph;
  for (std::string_view name : {kStep, kScale, kGood}) claim_name(graph, name);
  rewrite::RewriteOptions rewriting;
  for (Value* state : graph.values_of(ValueKind::state)) {
    if (state->uses.empty()) continue;
    if (!selection.trained.contains(state->name) && !selection.statistics.contains(state->name)) continue;
    if (bits_of(state->dtype()) == 16) keep_in_float32(graph, *state);
    state->changing = true;
    rewriting.barriers.insert(state->name);
  }
  settle_dropout(forward.model, options.dropout, forward.notes);
  forward.statistics = settle_batch_norm(graph, selection, options.batch_norm);
  rewrite::rewrite_model(forward.model, rewriting);
  std::set<std::string> moved;
  for (const auto& [name, output] : forward.statistics) moved.insert(name);
  initialize(*forward.model.graph, options.init, options.seed, moved,
             [&](std::string_view pattern, const std::string& name) { return selection.matches(pattern, name); });
  rewrite::lower_precision(forward.model, options.compute);
  rewrite::seed_random(*forward.model.graph, options.seed);
  return forward;
}

}  // namespace tessera::train
