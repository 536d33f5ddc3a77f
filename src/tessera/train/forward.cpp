#include "tessera/train/forward.h"

#include <algorithm>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/float16.h"
#include "tessera/ir/aligned.h"
#include "tessera/ir/glob.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/literal.h"
#include "tessera/rewrite/pipeline.h"
#include "tessera/rewrite/precision.h"
#include "tessera/rewrite/random.h"
#include "tessera/train/initialize.h"
#include "tessera/train/names.h"

namespace tessera::train {
namespace {

bool any_matches(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return glob_matches(pattern, name); });
}

void require_match(const OnnxModel& model, std::string_view option, const std::string& pattern) {
  std::vector<std::string_view> names;
  for (const auto& value : model.graph->values())
    if (value->has_data() || (value->producer && value->producer->is("Constant"))) names.push_back(value->name);
  if (std::none_of(names.begin(), names.end(), [&](std::string_view name) { return glob_matches(pattern, name); }))
    fail("train", "{} '{}' matches no parameter of the model{}", option, pattern, nearest_names(names, pattern));
}

// Numbers that Constants give become initializers if they are to train.
void free_literals(Graph& graph, const std::vector<std::string>& named) {
  if (named.empty()) return;
  for (Value* value : graph.values_of(ValueKind::result)) {
    if (!value->producer->is("Constant") || !any_matches(named, value->name)) continue;
    const std::optional<Tensor> number = rewrite::literal(*value->producer);
    if (!number || !is_float(number->dtype)) continue;
    const std::string name = value->name;
    graph.rename(value, name + ".constant");
    graph.replace_uses(value, graph.add_constant(name, *number));
    graph.erase(value->producer);
  }
}

// Initializers of one element count as constants where nothing trains. Those of rank 0 stay so, but for those that a
// person names: exporters write numbers of the model's formulas as such.
void free_single_elements(Graph& graph, const std::vector<std::string>& named) {
  for (Value* value : graph.values_of(ValueKind::constant)) {
    const bool is_named = any_matches(named, value->name);
    if (value->data.count() != 1 || !is_float(value->dtype()) || (value->rank() == 0 && !is_named)) continue;
    const auto known = std::find_if(value->uses.begin(), value->uses.end(),
                                    [](const Use& use) { return ops::reads_values(*use.node, use.index); });
    if (known != value->uses.end()) {
      if (!is_named) continue;
      fail("train", "--train names '{}', which {} reads before the run; leave it out", value->name,
           known->node->label());
    }
    value->kind = ValueKind::state;
    value->content.reset();
  }
}

// A parameter that the file holds in 16 bits is kept in float32, and cast for its uses.
void keep_in_float32(Graph& graph, Value& state) {
  const DType narrow = state.dtype();
  const Tensor data = aligned(state.data);
  std::vector<float> wide(static_cast<size_t>(data.count()));
  for (size_t i = 0; i < wide.size(); ++i)
    wide[i] = narrow == DType::bfloat16 ? static_cast<float>(data.as<BFloat16>()[i])
                                        : static_cast<float>(data.as<Float16>()[i]);
  state.data = Tensor::of(DType::float32, data.dims, wide);
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
        fmt::format("{} of the model's Dropouts say that they drop nothing (no training_mode); --dropout=on makes them "
                    "drop, --dropout=off is silent",
                    idle));
}

bool trains(const Node& batch_normalization, BatchNorm how) {
  return how == BatchNorm::as_stated ? batch_normalization.get_int("training_mode", 0) != 0 : how == BatchNorm::train;
}

// The running statistics that the step moves: those that a BatchNormalization reads from an initializer.
template <typename Visit>
void for_each_statistic(const Graph& graph, const StepOptions& options, const Visit& visit) {
  for (Node* node : rewrite::nodes_of(graph)) {
    if (!node->is("BatchNormalization") || !trains(*node, options.batch_norm)) continue;
    for (size_t operand : {3, 4})
      if (Value* value = node->input(operand);
          value && value->kind == ValueKind::state && !any_matches(options.freeze, value->name))
        visit(node, operand, value);
  }
}

// The next values of running statistics become outputs of the forward model, after those that the loss takes.
std::map<std::string, size_t> settle_batch_norm(Graph& graph, const StepOptions& options) {
  std::map<std::string, size_t> statistics;
  for_each_statistic(graph, options, [&](Node* node, size_t operand, Value* value) {
    if (!statistics.emplace(value->name, graph.outputs.size()).second)
      fail("train",
           "two BatchNormalizations share the running statistics '{}' ({} is one); give each its own, or give "
           "--batch-norm=frozen",
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
    const bool train = trains(*node, options.batch_norm);
    if (train) node->set("training_mode", int64_t{1});
    if (!train) node->remove_attribute("training_mode");
  }
  if (options.batch_norm == BatchNorm::train && !any)
    fail("train",
         "--batch-norm=train: the model has no BatchNormalization; exporters fold them into convolutions, unless they "
         "are told to keep them (torch.onnx.export with training=TrainingMode.PRESERVE or do_constant_folding=False)");
  return statistics;
}

}  // namespace

Forward make_forward(OnnxModel model, const OnnxModel& given, const StepOptions& options) {
  Forward forward;
  forward.model = std::move(model);
  Graph& graph = *forward.model.graph;
  for (const std::string& pattern : options.freeze) require_match(given, "--freeze", pattern);
  for (const std::string& pattern : options.no_decay)
    if (pattern != "vectors") require_match(given, "--no-decay", pattern);
  for (const auto& [pattern, factor] : options.rate_factors) require_match(given, "--lr-factor", pattern);
  for (const std::string& pattern : options.train) require_match(given, "--train", pattern);
  for (std::string_view name : {kStep, kScale, kGood}) claim_name(graph, name);
  free_literals(graph, options.train);
  free_single_elements(graph, options.train);
  rewrite::RewriteOptions rewriting;
  for (Value* state : graph.values_of(ValueKind::state)) {
    if (state->uses.empty() || !is_float(state->dtype()) || any_matches(options.freeze, state->name)) continue;
    if (bits_of(state->dtype()) < 16) continue;
    if (bits_of(state->dtype()) == 16) keep_in_float32(graph, *state);
    state->changing = true;
    rewriting.barriers.insert(state->name);
  }
  settle_dropout(forward.model, options.dropout, forward.notes);
  forward.statistics = settle_batch_norm(graph, options);
  rewrite::rewrite_model(forward.model, rewriting);
  std::set<std::string> moved;
  for (const auto& [name, output] : forward.statistics) moved.insert(name);
  initialize(*forward.model.graph, options.init, options.seed, moved);
  rewrite::lower_precision(forward.model, options.compute);
  rewrite::seed_random(*forward.model.graph, options.seed);
  return forward;
}

std::set<std::string> statistics_that_step(const OnnxModel& model, const StepOptions& options) {
  std::set<std::string> names;
  for_each_statistic(*model.graph, options, [&](Node*, size_t, const Value* value) { names.insert(value->name); });
  return names;
}

}  // namespace tessera::train
