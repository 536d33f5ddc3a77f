#include "tessera/compiler/implied.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/rewrite/pipeline.h"

namespace tessera::compiler {
namespace {

// The annotated results of the main graph, by name.
std::set<std::string> annotated_results(const DevicePlan& plan) {
  std::set<std::string> names;
  for (const AnnotationRequest& request : plan.annotations)
    if (const Value* value = plan.model.graph->find(request.pattern);
        value && value->kind == ValueKind::result && !plan.model.graph->is_output(value))
      names.insert(request.pattern);
  return names;
}

// Those of them that rewriting removes unless something names them.
std::set<std::string> removed(const DevicePlan& plan, const std::set<std::string>& names,
                              const std::set<std::string>& kept) {
  std::set<std::string> others = kept, gone;
  for (const AnnotationRequest& request : plan.annotations)
    if (!names.contains(request.pattern)) others.insert(request.pattern);
  const std::optional<OnnxModel> rewritten = rewrite::rewritten_if_possible(plan.model, others);
  for (const std::string& name : names)
    if (rewritten && !rewritten->graph->find(name)) gone.insert(name);
  return gone;
}

class Implied {
 public:
  // Compiles the plan without the annotations of `names`; rewriting keeps these tensors.
  Implied(const DevicePlan& plan, const std::set<std::string>& names) : plan_(plan) {
    CompileOptions options;
    options.mesh = plan.mesh;
    options.presets = kNoPreset;
    options.places = plan.places;
    options.keep.assign(names.begin(), names.end());
    for (const AnnotationRequest& request : plan.annotations)
      if (!names.contains(request.pattern)) options.annotations.push_back(request);
    compiled_ = compile(plan.model, options);
  }

  /// Whether the tensor is computed in that layout, and all uses read it in that layout and place.
  bool is(const AnnotationRequest& request) const {
    const Value* value = compiled_.model->graph->find(request.pattern);
    if (!value || !value->producer || !value->has_shape() || value->kind != ValueKind::result) return false;
    if (!request.fits(value->rank())) return false;
    const Sharding wanted =
        parse_sharding(request.for_rank(value->rank()), value->shape(), plan_.mesh, request.pattern);
    const auto open = [](const DimSharding& dim) { return dim.open; };
    if (std::any_of(wanted.dims.begin(), wanted.dims.end(), open)) return false;
    const auto& outputs = value->producer->outputs;
    const auto index = static_cast<size_t>(std::find(outputs.begin(), outputs.end(), value) - outputs.begin());
    const Sharding& made = decision(value->producer).results[index];
    const auto lies_so = [&](const Sharding& layout) {
      return !layout.is_partial() && layout.at == made.at && same_dims(layout, wanted);
    };
    return lies_so(made) && std::all_of(value->uses.begin(), value->uses.end(), [&](const Use& use) {
             const auto& operands = decision(use.node).operands;
             return use.index < operands.size() && lies_so(operands[use.index]);
           });
  }

 private:
  static bool same_dims(const Sharding& a, const Sharding& b) {
    return same_layout(Sharding{a.dims}, Sharding{b.dims});
  }
  const spmd::NodeDecision& decision(const Node* node) const {
    return compiled_.decisions.nodes[compiled_.layout->index_of(node)];
  }

  const DevicePlan& plan_;
  Compiled compiled_;
};

}  // namespace

void drop_implied(DevicePlan& plan, const std::set<std::string>& kept) {
  if (plan.mesh.size() == 1) return;
  try {
    const std::set<std::string> names = removed(plan, annotated_results(plan), kept);
    if (names.empty()) return;
    const Implied implied(plan, names);
    std::erase_if(plan.annotations, [&](const AnnotationRequest& request) {
      return names.contains(request.pattern) && implied.is(request);
    });
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::user) throw;  // compiling the model will report it
  }
}

}  // namespace tessera::compiler
