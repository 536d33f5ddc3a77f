#include "tessera/compiler/device_plan.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/compiler/device_layouts.h"
#include "tessera/compiler/implied.h"
#include "tessera/compiler/inline_annotated.h"
#include "tessera/compiler/labels.h"
#include "tessera/compiler/pairing.h"
#include "tessera/compiler/places.h"
#include "tessera/compiler/stacks.h"
#include "tessera/ir/glob.h"
#include "tessera/ir/text.h"
#include "tessera/onnx/metadata.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/lower/lower.h"
#include "tessera/rewrite/passes.h"

namespace tessera::compiler {
namespace {

constexpr std::string_view kStage = "devices";  // stage of errors

bool conflicts(const std::vector<PlacedAxis>& place, const std::vector<AxisRef>& axes) {
  return std::any_of(axes.begin(), axes.end(),
                     [&](const AxisRef& axis) { return axis.size > 1 && spmd::overlaps(place, axis); });
}

// Whether the two places have a rank in common.
bool meet(const std::vector<PlacedAxis>& a, const std::vector<PlacedAxis>& b) {
  return std::none_of(a.begin(), a.end(), [&](const PlacedAxis& one) {
    return std::any_of(b.begin(), b.end(),
                       [&](const PlacedAxis& other) { return other.axis.overlaps(one.axis) && !(other == one); });
  });
}

// The place common to both; the second if there is none.
std::vector<PlacedAxis> common_place(std::vector<PlacedAxis> a, const std::vector<PlacedAxis>& b) {
  if (!meet(a, b)) return b;
  for (const PlacedAxis& entry : b)
    if (std::find(a.begin(), a.end(), entry) == a.end()) a.push_back(entry);
  return a;
}

// One class, because each step extends the plan and adds copies to the model, and later steps read both: places of
// nodes decide layouts of values, and these decide which copies bodies need.
class Follower {
 public:
  Follower(const OnnxModel& model, DeviceConfiguration configuration, std::set<std::string> kept)
      : read_(model),
        configuration_(std::move(configuration)),
        by_(fmt::format("device configuration '{}'", configuration_.name)),
        kept_(std::move(kept)) {
    plan_.model = model.clone();
    inlined_ = inline_annotated(plan_.model, configuration_.name);
    for (const auto& node : graph().nodes()) {
      position_.emplace(node.get(), nodes_.size());
      nodes_.push_back(node.get());
      for (Graph* region : node->regions()) enter(*region, node.get());
    }
  }

  DevicePlan run() {
    gather();
    find_mesh();
    find_forms();
    stacks_.emplace(plan_.model, plan_.mesh, kept_, forms_);
    for (const auto& [stack, layout] : stacks_->layouts()) plan_.annotations.push_back({stack, layout, by_, true});
    place_nodes();
    lay_out_values();
    lay_out_bodies();
    request_places();
    if (std::set<std::string> names = keep_apart(); !names.empty()) {
      names.insert(kept_.begin(), kept_.end());
      return Follower(read_, configuration_, std::move(names)).run();
    }
    if (plan_.annotations.empty() && plan_.places.empty() && plan_.mesh.size() > 1) run_on_one();
    plan_.copies.merge(inlined_.copies);
    return std::move(plan_);
  }

 private:
  // An annotated node in a body.
  struct Inner {
    Graph* body;
    Node* node;
    const Node* holder;  // of the main graph
    NodeDevices said;
  };

  Graph& graph() const { return *plan_.model.graph; }

  template <typename... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args) {
    plan_.warnings.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  // Removes the annotations from the nodes.
  void gather() {
    for (Node* node : nodes_)
      if (auto annotation = device_annotation(*node, configuration_.name)) said_.emplace(node, std::move(*annotation));
    defaults_.emplace(graph(), configuration_);
    std::set<std::string> names;
    for (const auto& [node, annotation] : said_)
      for (const ShardingSpec& spec : annotation.specs) names.insert(spec.tensor);
    shapes_ = shapes_of(plan_.model, names);
    forget_device_annotations(plan_.model);
    if (inlined_.ignored > 0)
      warn(
          "annotations in functions that are operators of Tessera's own are not followed ({}); propagation decides "
          "there",
          counted(inlined_.ignored, "node"));
  }

  // Adds the annotated nodes of a body (or a body within it) of the main graph's node `holder`.
  void enter(Graph& body, const Node* holder) {
    for (const auto& node : body.nodes()) {
      for (Graph* region : node->regions()) enter(*region, holder);
      if (auto annotation = device_annotation(*node, configuration_.name))
        inner_.push_back({&body, node.get(), holder, std::move(*annotation)});
    }
  }

  void find_mesh() {
    std::set<DeviceList> lists;
    for (const auto& [node, annotation] : said_) {
      for (const ShardingSpec& spec : annotation.specs) lists.insert(list_of(spec, defaults_->of(annotation)));
      if (annotation.stage) lists.insert(whole_on(defaults_->of(annotation)));
    }
    for (const Inner& inner : inner_)
      for (const ShardingSpec& spec : inner.said.specs) lists.insert(list_of(spec, defaults_->of(inner.said)));
    std::set<int64_t> devices;
    for (const DeviceList& list : lists)
      for (const auto& holders : list.holders) devices.insert(holders.begin(), holders.end());
    if (devices.empty())
      for (int64_t device = 0; device < configuration_.num_devices; ++device) devices.insert(device);
    std::optional<Mesh> named;
    if (const auto text = get_metadata(plan_.model, mesh_key(configuration_.name))) {
      try {
        named = Mesh::parse(*text);
      } catch (const Error&) {
        warn("the model's metadata '{}' is not a mesh: '{}'; its axes get new names", mesh_key(configuration_.name),
             *text);
      }
    }
    const std::vector<DeviceList> all(lists.begin(), lists.end());
    ListedMesh found = mesh_of_lists({devices.begin(), devices.end()}, all, named);
    plan_.mesh = std::move(found.mesh);
    plan_.devices = std::move(found.devices);
    for (size_t i = 0; i < all.size(); ++i) {
      const bool exact = found.layouts[i].has_value();
      layouts_.emplace(
          all[i],
          MeshLayout{exact ? std::move(*found.layouts[i]) : nearest_layout(all[i], plan_.mesh, plan_.devices), exact});
    }
  }

  // The place of the devices that a spec lists.
  const MeshLayout& layout_of(const ShardingSpec& spec, const NodeDevices& annotation) const {
    return layouts_.at(list_of(spec, defaults_->of(annotation)));
  }

  Form form_of(const Node& node, const NodeDevices& annotation, const ShardingSpec& spec) {
    const MeshLayout& found = layout_of(spec, annotation);
    Form form;
    form.at = found.layout.at;
    for (const auto& digits : found.layout.factors)
      for (const ShardDigit& digit : digits)
        if (digit.axis) form.axes.push_back(*digit.axis);
    const auto shape = shapes_.find(spec.tensor);
    if (shape == shapes_.end()) {
      if (!form.axes.empty())
        warn(
            "{}: '{}' stays whole: only sizes are computed from it, or its shape is unknown; if so, state it in the "
            "file",
            node.label(), spec.tensor);
      return form;
    }
    const LayoutText text = layout_text(spec, found.layout, shape->second, plan_.mesh);
    form.layout = text.text;
    if (!found.exact || !text.exact) warn_of_nearest(node, annotation, spec, " " + to_string(shape->second), text.text);
    return form;
  }

  void warn_of_nearest(const Node& node, const NodeDevices& annotation, const ShardingSpec& spec,
                       const std::string& shape, const std::string& layout) {
    std::vector<std::string> holders;
    for (const auto& shard : list_of(spec, defaults_->of(annotation)).holders)
      holders.push_back(fmt::format("{}", fmt::join(shard, "+")));
    warn("{}: '{}'{} in {} shards on devices {} is not a layout of this mesh; it gets {} over {}", node.label(),
         spec.tensor, shape, shards_of(spec), fmt::join(holders, ","), layout, plan_.mesh.str());
  }

  const Form* form(const Node* node, const Value* tensor) const { return form_in(forms_, node, tensor->name); }

  const std::vector<PlacedAxis>& place(const Node* node) const {
    static const std::vector<PlacedAxis> everywhere;
    const auto found = places_.find(node);
    return found == places_.end() ? everywhere : found->second;
  }

  void find_forms() {
    for (Node* node : nodes_)
      if (const auto said = said_.find(node); said != said_.end())
        for (const ShardingSpec& spec : said->second.specs)
          forms_[node].emplace(spec.tensor, form_of(*node, said->second, spec));
  }

  // Further names that rewriting must keep: nodes that a stack would absorb but annotations place elsewhere, and
  // parameters whose stack is not made.
  std::set<std::string> keep_apart() const {
    std::set<std::string> asked = kept_;
    for (const AnnotationRequest& request : plan_.annotations) asked.insert(request.pattern);
    std::set<std::string> names = stacks_->missing(plan_.model, asked);
    for (const auto& [node, at] : stacks_->inside())
      for (const Value* result : node->outputs)
        if (result && !same_place(place(node), at)) names.insert(result->name);
    std::erase_if(names, [&](const std::string& name) { return kept_.contains(name); });
    return names;
  }

  void place_nodes() {
    for (Node* node : nodes_) {
      const auto said = said_.find(node);
      const std::vector<PlacedAxis>* inside = stacks_->place_inside(node);
      if (said == said_.end() && inside)
        places_[node] = *inside;
      else
        places_[node] = place_for(node, said == said_.end() ? nullptr : &said->second);
    }
    // Nodes without operands run where their results are used.
    for (auto at = nodes_.rbegin(); at != nodes_.rend(); ++at) {
      const Node* node = *at;
      const bool depends = std::any_of(node->inputs.begin(), node->inputs.end(), [](const Value* operand) {
        return operand && (operand->producer || operand->kind == ValueKind::input);
      });
      if (depends || said_.contains(node)) continue;
      const std::vector<PlacedAxis>* only = nullptr;
      bool same = true;
      for (const Value* result : node->outputs) {
        if (!result) continue;
        same = same && !graph().is_output(result);
        for (const Use& use : result->uses) {
          if (only && !same_place(*only, place(use.node))) same = false;
          only = &place(use.node);
        }
      }
      if (only && same) places_[node] = *only;
    }
  }

  std::vector<PlacedAxis> place_for(const Node* node, const NodeDevices* said) {
    if (!node->regions().empty()) {
      const auto wanted = forms_.find(node);
      const bool is_placed =
          wanted != forms_.end() && std::any_of(wanted->second.begin(), wanted->second.end(),
                                                [](const auto& form) { return !form.second.at.empty(); });
      if (said && (said->stage || is_placed))
        warn("{}: all devices run it, because all take part in control flow", node->label());
      return {};
    }
    std::vector<PlacedAxis> place;
    std::vector<AxisRef> splits;
    bool any = false;
    auto add = [&](const std::vector<Value*>& tensors) {
      for (const Value* tensor : tensors)
        if (const Form* wanted = tensor ? form(node, tensor) : nullptr) {
          if (any && !meet(place, wanted->at))
            plan_.faults.push_back(
                {node->label(), fmt::format("{}, configuration '{}': no device holds '{}' and the operands before it",
                                            node->label(), configuration_.name, tensor->name)});
          place = any ? common_place(place, wanted->at) : wanted->at;
          splits.insert(splits.end(), wanted->axes.begin(), wanted->axes.end());
          any = true;
        }
    };
    add(node->inputs);
    if (!any) add(node->outputs);
    if (!any && said && said->stage) {
      const MeshLayout& found = layouts_.at(whole_on(defaults_->of(*said)));
      if (found.exact) return found.layout.at;
      warn("{}: the devices {} of its stage are not a place in the mesh {}; it runs on all", node->label(),
           fmt::join(defaults_->of(*said), ","), plan_.mesh.str());
      return {};
    }
    if (!any)
      for (const Value* operand : node->inputs)
        if (operand && operand->producer) place = common_place(place, this->place(operand->producer));
    std::erase_if(place, [&](const PlacedAxis& entry) { return conflicts({entry}, splits); });
    return place;
  }

  // The place of a tensor, where its producer runs.
  const std::vector<PlacedAxis>& place_of(const Value* value) const { return place(value->producer); }

  // The layout of a value. Its readers use it if it suits them; others get copies.
  void lay_out_values() {
    std::map<const Value*, std::string> own;  // the value's layout
    for (const auto& value : graph().values()) {
      if (const Form* made = value->producer ? form(value->producer, value.get()) : nullptr) {
        if (same_place(made->at, place_of(value.get()))) own[value.get()] = made->layout;
        continue;
      }
      if (const std::string* common = common_layout(*value)) own[value.get()] = *common;
    }
    for (const auto& value : graph().values())
      if (const auto known = own.find(value.get()); known != own.end()) annotate(value.get(), known->second);
    for (Node* node : nodes_) {
      for (Value* result : node->outputs)
        if (const Form* made = result ? form(node, result) : nullptr; made && !own.contains(result)) {
          Value* copy = copy_of(result, *made, made->at, nullptr);
          for (const Use& use : std::vector<Use>(result->uses))
            if (use.node != copy->producer) graph().set_input(use.node, use.index, copy);
          own[result] = made->layout;
        }
    }
    for (Node* node : nodes_)
      for (size_t i = 0; i < node->operand_count(); ++i) {
        Value* operand = node->inputs[i];
        if (!operand) continue;
        const auto copied = plan_.copies.find(operand->name);  // a result that is needed at another place
        const Value* first = copied == plan_.copies.end() ? operand : graph().find(copied->second);
        const Form* wanted = form(node, first);
        if (!wanted || wanted->layout.empty()) continue;
        if (const auto known = own.find(first); known != own.end() && known->second == wanted->layout) continue;
        graph().set_input(node, i, copy_of(operand, *wanted, place(node), node));
      }
  }

  // In bodies, operands and results get copies with labels, which annotations name: values get their names only when
  // bodies are opened.
  void lay_out_bodies() {
    std::map<const Node*, size_t> elsewhere;  // number of nodes with a place, by the node that holds their body
    for (const Inner& inner : inner_) {
      bool placed = inner.said.stage.has_value();
      for (const ShardingSpec& spec : inner.said.specs) {
        const MeshLayout& found = layout_of(spec, inner.said);
        placed = placed || !found.layout.at.empty();
        const auto text = layout_text_for_any_rank(spec, found.layout, plan_.mesh);
        if (!text)
          warn("{}: '{}' has axes that count from both ends, so propagation decides its layout in a body",
               inner.node->label(), spec.tensor);
        if (!text || plan_.mesh.axes().empty()) continue;
        if (!found.exact || !text->exact) warn_of_nearest(*inner.node, inner.said, spec, "", text->text);
        for (size_t i = 0; i < inner.node->operand_count(); ++i)
          if (Value* operand = inner.node->inputs[i];
              operand && name_in_body(*operand) == spec.tensor && !rewrite::needs_value(*inner.node, i))
            inner.body->set_input(inner.node, i, labelled_copy(inner, operand, inner.node, text->text));
        for (Value* result : std::vector<Value*>(inner.node->outputs)) {
          if (!result || result->name != spec.tensor) continue;
          Value* copy = labelled_copy(inner, result, rewrite::node_after(*inner.body, inner.node), text->text);
          inner.body->replace_uses(result, copy);
          inner.body->set_input(copy->producer, 0, result);
        }
      }
      if (placed) ++elsewhere[inner.holder];
    }
    for (const auto& [holder, count] : elsewhere)
      warn("{}: all devices run it, because all take part in control flow, although {} otherwise", holder->label(),
           counted(count, "node in its bodies says", "nodes in its bodies say"));
  }

  // A copy that all nodes share that want this layout.
  Value* labelled_copy(const Inner& inner, Value* value, const Node* before, const std::string& layout) {
    if (const auto own = inner_layouts_.find(value); own != inner_layouts_.end() && own->second == layout) return value;
    Value*& shared = inner_copies_[{inner.body, value, layout}];
    if (!shared) shared = new_labelled_copy(inner, value, before, layout);
    return shared;
  }

  Value* new_labelled_copy(const Inner& inner, Value* value, const Node* before, const std::string& layout) {
    const std::string label = fmt::format("{}{}", rewrite::kLabelPrefix, labels_++);
    Value* copy = compiler::labelled_copy(*inner.body, value, label, before);
    plan_.annotations.push_back({label, layout, by_, true});
    plan_.copies.emplace(label, name_in_body(*value));
    inner_names_.emplace(copy, name_in_body(*value));
    inner_layouts_.emplace(copy, layout);
    return copy;
  }

  // The name that annotations use, if it is a copy already.
  const std::string& name_in_body(const Value& value) const {
    const auto copied = inner_names_.find(&value);
    return copied == inner_names_.end() ? value.name : copied->second;
  }

  // The layout that all uses want; null if they differ, or if the layout does not fit the value's place.
  const std::string* common_layout(const Value& value) const {
    const std::string* common = nullptr;
    for (const Use& use : value.uses) {
      const Form* wanted = form(use.node, &value);
      if (!wanted || wanted->layout.empty() || (common && *common != wanted->layout)) return nullptr;
      if (conflicts(place(value.producer ? value.producer : use.node), wanted->axes)) return nullptr;
      common = &wanted->layout;
    }
    return graph().is_output(&value) ? nullptr : common;
  }

  // A copy that uses with the same layout and place share.
  Value* copy_of(Value* value, const Form& form, const std::vector<PlacedAxis>& at, const Node* before) {
    Value*& copy = copies_[{value, form.layout, request_of(at, plan_.mesh)}];
    if (copy) return copy;
    const Node* next = before;
    for (const Use& use : value->uses)  // before all of its readers
      if (!before && (!next || position_.at(use.node) < position_.at(next))) next = use.node;
    Node* made = graph().add_node("Identity", {value}, {value->name + ".as"}, "", next);
    copy = made->outputs[0];
    copy->type = value->type;
    plan_.copies.emplace(copy->name, value->name);
    keep(value);
    places_[made] = at;
    made_.push_back(made);
    annotate(copy, form.layout);
    return copy;
  }

  void annotate(const Value* value, const std::string& layout) {
    if (layout.empty() || plan_.mesh.axes().empty()) return;
    plan_.annotations.push_back({value->name, layout, by_, true});
    annotated_.insert(value);
  }

  // Rewriting must not merge a tensor with its copy, since the tensor would get the copy's layout and place.
  void keep(const Value* value) {
    const auto shape = shapes_.find(value->name);
    if (value->kind != ValueKind::result || annotated_.contains(value) || shape == shapes_.end()) return;
    annotate(value, fmt::format("[{}]", fmt::join(std::vector<std::string>(shape->second.size(), "?"), ", ")));
  }

  void run_on_one() {
    warn("no node is annotated for the devices of '{}', so the model runs on one", configuration_.name);
    plan_.mesh = Mesh();
    plan_.devices.resize(1);
  }

  void request_places() {
    std::set<std::string_view> results;
    for (const auto& value : graph().values()) results.insert(value->name);
    nodes_.insert(nodes_.end(), made_.begin(), made_.end());
    for (Node* node : nodes_) {
      if (places_[node].empty()) continue;
      const auto named = std::find_if(node->outputs.begin(), node->outputs.end(), [](const Value* v) { return v; });
      if (named == node->outputs.end()) continue;
      plan_.places.push_back({(*named)->name, request_of(places_[node], plan_.mesh), by_});
    }
    // A node's name must not be the name of another node's result.
    if (!plan_.places.empty())
      for (Node* node : nodes_)
        if (results.contains(node->name)) node->name.clear();
  }

  const OnnxModel& read_;
  DevicePlan plan_;
  const DeviceConfiguration configuration_;
  const std::string by_;
  const std::set<std::string> kept_;        // names that must survive rewriting
  std::vector<Node*> nodes_;                // nodes of the model as read, in order
  std::map<const Node*, size_t> position_;  // in nodes_
  std::vector<Node*> made_;
  std::map<const Node*, NodeDevices> said_;
  std::vector<Inner> inner_;
  std::map<const Value*, std::string> inner_names_, inner_layouts_;  // of copies in bodies
  std::map<std::tuple<const Graph*, const Value*, std::string>, Value*> inner_copies_;
  int labels_ = 0;
  std::optional<DefaultDevices> defaults_;
  std::map<std::string, Shape> shapes_;
  std::map<DeviceList, MeshLayout> layouts_;
  Forms forms_;
  std::optional<StackLayouts> stacks_;
  std::map<const Node*, std::vector<PlacedAxis>> places_;
  std::set<const Value*> annotated_;
  std::map<std::tuple<const Value*, std::string, std::string>, Value*> copies_;
  InlinedAnnotations inlined_;
};

}  // namespace

std::string mesh_key(const std::string& name) {
  return "tessera.mesh:" + name;
}

DevicePlan device_plan(const OnnxModel& model, const std::string& name, const std::set<std::string>& kept) {
  std::vector<std::string> names;
  std::optional<DeviceConfiguration> configuration;
  for (DeviceConfiguration& known : device_configurations(model)) {
    names.push_back("'" + known.name + "'");
    if (known.name == name) configuration = std::move(known);
  }
  if (!configuration)
    fail(kStage, "the model has no device configuration '{}'; {}", name,
         names.empty() ? "it has none" : fmt::format("it has {}", fmt::join(names, ", ")));
  refuse_faults(model, name);
  DevicePlan plan = Follower(model, std::move(*configuration), kept).run();
  drop_implied(plan, kept);
  return plan;
}

std::set<std::string> states_named_in(const Plan& plan, const OnnxModel& model) {
  std::vector<std::string> patterns;
  for (const Plan::Annotation& annotation : plan.annotations)
    patterns.push_back(AnnotationRequest::parse(annotation.text, annotation.by).pattern);
  for (const Plan::Annotation& annotation : plan.storage)
    patterns.push_back(AnnotationRequest::parse(annotation.text, annotation.by, "store").pattern);
  for (const std::string& states : plan.states) patterns.push_back(Pairing::parse(states).state);
  std::set<std::string> names;
  for (const Value* state : model.graph->values_of(ValueKind::state))
    if (std::any_of(patterns.begin(), patterns.end(),
                    [&](const std::string& pattern) { return glob_matches(pattern, state->name); }))
      names.insert(state->name);
  return names;
}

}  // namespace tessera::compiler
