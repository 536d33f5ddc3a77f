#include "tessera/rewrite/pipeline.h"

#include <algorithm>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/rewrite/lower/lists.h"
#include "tessera/rewrite/passes.h"

namespace tessera::rewrite {

const std::vector<Pass>& passes() {
  static const std::vector<Pass> all = {
      {"inline_functions", inline_functions},
      {"upgrade", upgrade},
      {"spread_routed_rows", spread_routed_rows},
      {"lower_losses", lower_losses},
      {"key_dropout", key_dropout},
      {"fold", fold},
      {"lower_einsum", lower_einsum},
      {"lower_batch_normalization", lower_batch_normalization},
      {"canonicalize", canonicalize},
      {"merge_equal", merge_equal},
      {"raise_indexing", raise_indexing},
      {"canonicalize_indexing", canonicalize},
      {"merge_indexing", merge_equal},
      {"unify_extents", unify_extents},
      {"raise_quantized", raise_quantized},
      {"separate_heads", separate_heads},
      {"raise_normalization", raise_normalization},
      {"raise_activation", raise_activation},
      {"raise_experts", raise_experts},
      {"raise_expert_sums", raise_expert_sums},
      {"raise_rotary", raise_rotary},
      {"raise_attention", raise_attention},
      {"canonicalize_raised", canonicalize},
      {"merge_raised", merge_equal},
  };
  return all;
}

const std::string* label_of(const Value& value) {
  const Node* node = value.producer;
  return node && node->is("Identity") ? node->get<std::string>(kLabel) : nullptr;
}

std::vector<Value*> labelled_results(const Graph& graph) {
  std::vector<Value*> values;
  for (const auto& node : graph.nodes())
    if (Value* value = node->output(); value && label_of(*value)) values.push_back(value);
  return values;
}

void rewrite_model(OnnxModel& model, const RewriteOptions& options) {
  Graph& graph = *model.graph;
  // While passes run, a barrier is an output, since passes keep the names of outputs and never absorb them.
  const size_t real_outputs = graph.outputs.size();
  std::set<std::string> waiting = options.barriers;
  waiting.insert(options.candidates.begin(), options.candidates.end());
  auto is_candidate = [&](const Value* value) {
    const std::string* label = label_of(*value);
    return !options.barriers.contains(value->name) && !(label && options.barriers.contains(*label));
  };
  auto is_no_barrier = [&](const Value* value) {
    return is_candidate(value) && value->has_shape() && !options.is_barrier(*value);
  };
  auto lower_barriers = [&](const auto& lowered) {
    graph.outputs.erase(std::remove_if(graph.outputs.begin() + real_outputs, graph.outputs.end(), lowered),
                        graph.outputs.end());
  };
  auto raise_barriers = [&] {
    lower_barriers(is_no_barrier);
    std::erase_if(waiting, [&](const std::string& name) {
      Value* value = graph.find(name);
      bool may_vanish = value && (value->kind == ValueKind::result || value->kind == ValueKind::state);
      if (may_vanish && !graph.is_output(value) && !is_no_barrier(value)) graph.outputs.push_back(value);
      return value != nullptr;
    });
    if (options.barriers.empty()) return;
    for (Value* value : labelled_results(graph))
      if (options.barriers.contains(*label_of(*value)) && !graph.is_output(value)) graph.outputs.push_back(value);
  };
  // A sequence is not a tensor, so it cannot be kept.
  auto drop_lists = [&] {
    const auto is_a_list = [](const Value* value) { return is_list(*value); };
    if (std::none_of(graph.outputs.begin(), graph.outputs.end(), is_a_list)) return;
    lower_barriers(is_a_list);
    refuse_list_outputs(graph);
    graph.erase_dead();
  };
  raise_barriers();
  std::optional<uint64_t> verified;
  for (const Pass& pass : passes()) {
    pass.run(model);
    drop_lists();
    raise_barriers();  // names inside functions appear when these are inlined
    if (graph.edits() != verified) graph.verify(pass.name);
    verified = graph.edits();
    if (options.observe) options.observe(pass.name, model);
  }
  lower_barriers(is_candidate);
  graph.erase_dead();  // nodes that existed only for their names
  graph.outputs.resize(real_outputs);
  graph.verify("rewrite");
}

std::optional<OnnxModel> rewritten_if_possible(const OnnxModel& model, const std::set<std::string>& kept) {
  OnnxModel copy = model.clone();
  RewriteOptions options;
  options.barriers = kept;
  try {
    rewrite_model(copy, options);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::user) throw;
    return std::nullopt;
  }
  return copy;
}

}  // namespace tessera::rewrite
