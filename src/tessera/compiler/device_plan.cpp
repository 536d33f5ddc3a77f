#include "tessera/compiler/device_plan.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/compiler/inline_annotated.h"
#include "tessera/compiler/places.h"
#include "tessera/ir/text.h"
#include "tessera/mesh/device_lists.h"
#include "tessera/onnx/metadata.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"

namespace tessera::compiler {
namespace {

constexpr std::string_view kStage = "devices";  // of errors

// The entry of an annotation for an axis whose factors have these digits; nullopt if shards that a device holds in turn
// are not equal, so that there is none.
std::optional<std::string> entry_of(const ShardedAxis& axis, const std::vector<std::vector<ShardDigit>>& digits,
                                    const Expr& extent, const Mesh& mesh) {
  struct Piece {
    std::optional<Expr> size;  // nullopt: whatever the others leave
    std::vector<std::string> axes;
  };
  std::vector<Piece> pieces;
  for (size_t f = 0; f < axis.factors.size(); ++f) {
    std::optional<Expr> size;
    if (axis.factors.size() == 1)
      size = extent;
    else
      size = size_of(axis.factors[f], extent);
    std::vector<ShardDigit> run = digits[f];
    while (!run.empty() && !run.back().axis) run.pop_back();  // neighbours on one device are one shard
    const size_t first = pieces.size();
    int64_t before = 1;  // shards of the pieces of this factor, without its last
    for (size_t i = 0; i < run.size(); ++i) {
      if (pieces.size() == first || run[i].axis.has_value() != run[i - 1].axis.has_value()) {
        if (pieces.size() > first) before *= *pieces.back().size->constant();
        pieces.push_back({Expr(1), {}});
      }
      pieces.back().size = *pieces.back().size * Expr(run[i].size);
      if (run[i].axis) pieces.back().axes.push_back(run[i].axis->str(mesh));
    }
    if (pieces.size() == first) pieces.push_back({size, {}});
    if (size && pieces.size() > first) {
      pieces.back().size = Expr::exact_divide(*size, Expr(before));
      if (!pieces.back().size && before > 1) return std::nullopt;
    }
    if (!size) pieces.back().size.reset();
  }
  if (std::all_of(pieces.begin(), pieces.end(), [](const Piece& piece) { return piece.axes.empty(); })) return "-";
  std::erase_if(pieces, [](const Piece& piece) { return piece.axes.empty() && piece.size && piece.size->is(1); });
  std::vector<std::string> texts;
  for (const Piece& piece : pieces) {
    std::string text = piece.size && pieces.size() > 1 ? piece.size->str() : "";
    if (!piece.axes.empty()) text += fmt::format("{{{}}}", fmt::join(piece.axes, ","));
    texts.push_back(text);
  }
  return fmt::format("{}", fmt::join(texts, "*"));
}

// As many shards of each factor as the list says, over axes of the mesh that have as many devices; else none.
// It is where its holders have a common place.
ListedLayout nearest(const DeviceList& list, const Mesh& mesh, const std::vector<int64_t>& devices) {
  ListedLayout layout;
  std::vector<bool> used(mesh.axes().size(), false);
  for (int64_t count : list.counts) {
    layout.factors.emplace_back();
    for (size_t first = 0; first < used.size() && count > 1 && layout.factors.back().empty(); ++first) {
      int64_t product = 1;
      size_t end = first;
      while (end < used.size() && !used[end] && product < count) product *= mesh.axes()[end++].size;
      if (product != count) continue;
      for (size_t a = first; a < end; ++a) {
        used[a] = true;
        layout.factors.back().push_back({mesh.axes()[a].size, AxisRef::whole(mesh.axes()[a])});
      }
    }
  }
  for (size_t a = 0; a < used.size(); ++a) {
    std::set<int64_t> indices;
    for (const auto& holders : list.holders)
      for (int64_t device : holders) {
        const auto rank = std::find(devices.begin(), devices.end(), device) - devices.begin();
        indices.insert(mesh.coordinates(rank)[a]);
      }
    if (!used[a] && indices.size() == 1 && mesh.axes()[a].size > 1)
      layout.at.push_back({AxisRef::whole(mesh.axes()[a]), *indices.begin()});
  }
  return layout;
}

// What a node wants of an operand or result.
struct Form {
  std::string layout;          // as annotations are written; "": the tensor has none
  std::vector<AxisRef> axes;   // that split it
  std::vector<PlacedAxis> at;  // where its holders are
};

bool conflicts(const std::vector<PlacedAxis>& place, const std::vector<AxisRef>& axes) {
  return std::any_of(axes.begin(), axes.end(),
                     [&](const AxisRef& axis) { return axis.size > 1 && spmd::overlaps(place, axis); });
}

bool same_place(const std::vector<PlacedAxis>& a, const std::vector<PlacedAxis>& b) {
  return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&](const PlacedAxis& entry) {
           return std::find(b.begin(), b.end(), entry) != b.end();
         });
}

// Whether some rank is at both.
bool meet(const std::vector<PlacedAxis>& a, const std::vector<PlacedAxis>& b) {
  return std::none_of(a.begin(), a.end(), [&](const PlacedAxis& one) {
    return std::any_of(b.begin(), b.end(),
                       [&](const PlacedAxis& other) { return other.axis.overlaps(one.axis) && !(other == one); });
  });
}

// Where the holders of both are; if there is no such place, the second.
std::vector<PlacedAxis> common_place(std::vector<PlacedAxis> a, const std::vector<PlacedAxis>& b) {
  if (!meet(a, b)) return b;
  for (const PlacedAxis& entry : b)
    if (std::find(a.begin(), a.end(), entry) == a.end()) a.push_back(entry);
  return a;
}

class Follower {
 public:
  Follower(const OnnxModel& model, DeviceConfiguration configuration)
      : configuration_(std::move(configuration)), by_(fmt::format("device configuration '{}'", configuration_.name)) {
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
    place_nodes();
    lay_out_values();
    lay_out_bodies();
    request_places();
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

  // Takes the annotations out of the nodes.
  void gather() {
    for (Node* node : nodes_)
      for (NodeDevices& annotation : device_annotations(*node))
        if (annotation.configuration == configuration_.name) said_.emplace(node, std::move(annotation));
    defaults_.emplace(graph(), configuration_);
    std::set<std::string> names;
    for (const auto& [node, annotation] : said_)
      for (const ShardingSpec& spec : annotation.specs) names.insert(spec.tensor);
    shapes_ = shapes_of(plan_.model, names);
    strip(graph());
    for (Function& function : plan_.model.functions) strip(*function.body);
    if (inlined_.ignored > 0)
      warn(
          "annotations in functions that are operators of Tessera's own are not followed ({}); propagation decides "
          "there",
          inlined_.ignored == 1 ? "1 node" : fmt::format("{} nodes", inlined_.ignored));
  }

  static void strip(const Graph& graph) {
    for (const auto& node : graph.nodes()) {
      for (const Graph* region : node->regions()) strip(*region);
      if (!device_annotations(*node).empty()) set_device_annotations(*node, {});
    }
  }

  // The annotated nodes of a body, or of one in it, of the main graph's node `holder`.
  void enter(Graph& body, const Node* holder) {
    for (const auto& node : body.nodes()) {
      for (Graph* region : node->regions()) enter(*region, holder);
      for (NodeDevices& annotation : device_annotations(*node))
        if (annotation.configuration == configuration_.name)
          inner_.push_back({&body, node.get(), holder, std::move(annotation)});
    }
  }

  DeviceList list_of(const ShardingSpec& spec, const NodeDevices& annotation) const {
    DeviceList list;
    for (const ShardedAxis& axis : spec.axes)
      for (const ShardedFactor& factor : axis.factors) list.counts.push_back(factor.shards);
    list.holders = holders_of(spec, defaults_->of(annotation));
    if (shards_of(spec) == 1) {  // whoever is listed has all of it
      std::set<int64_t> all;
      for (const auto& holders : list.holders) all.insert(holders.begin(), holders.end());
      list.holders = {{all.begin(), all.end()}};
    }
    return list;
  }

  // Those of a stage hold what its nodes make.
  static DeviceList whole_on(const std::vector<int64_t>& devices) { return {{}, {devices}}; }

  void find_mesh() {
    std::set<DeviceList> lists;
    for (const auto& [node, annotation] : said_) {
      for (const ShardingSpec& spec : annotation.specs) lists.insert(list_of(spec, annotation));
      if (annotation.stage) lists.insert(whole_on(defaults_->of(annotation)));
    }
    for (const Inner& inner : inner_)
      for (const ShardingSpec& spec : inner.said.specs) lists.insert(list_of(spec, inner.said));
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
        warn("the model's metadata '{}' are no mesh: '{}'; its axes are named anew", mesh_key(configuration_.name),
             *text);
      }
    }
    const std::vector<DeviceList> all(lists.begin(), lists.end());
    ListedMesh found = mesh_of_lists({devices.begin(), devices.end()}, all, named);
    plan_.mesh = std::move(found.mesh);
    plan_.devices = std::move(found.devices);
    for (size_t i = 0; i < all.size(); ++i) layouts_.emplace(all[i], std::move(found.layouts[i]));
  }

  Form form_of(const Node& node, const NodeDevices& annotation, const ShardingSpec& spec) {
    const DeviceList list = list_of(spec, annotation);
    const auto& found = layouts_.at(list);
    const ListedLayout layout = found ? *found : nearest(list, plan_.mesh, plan_.devices);
    Form form;
    form.at = layout.at;
    for (const auto& digits : layout.factors)
      for (const ShardDigit& digit : digits)
        if (digit.axis) form.axes.push_back(*digit.axis);
    const auto shape = shapes_.find(spec.tensor);
    if (shape == shapes_.end()) {
      if (!form.axes.empty())
        warn(
            "{}: '{}' stays whole: only sizes are computed from it, or its shape is not known; if so, state it in the "
            "file",
            node.label(), spec.tensor);
      return form;
    }
    std::vector<std::string> entries(shape->second.size(), "-");
    bool exact = found.has_value();
    size_t factor = 0;
    for (const ShardedAxis& axis : spec.axes) {
      const auto begin = layout.factors.begin() + static_cast<int64_t>(factor);
      const std::vector<std::vector<ShardDigit>> digits(begin, begin + static_cast<int64_t>(axis.factors.size()));
      factor += axis.factors.size();
      const auto rank = static_cast<int64_t>(entries.size());
      const auto d = static_cast<size_t>(axis.axis < 0 ? axis.axis + rank : axis.axis);
      std::optional<std::string> entry = entry_of(axis, digits, shape->second[d], plan_.mesh);
      if (!entry) {
        exact = false;
        entry = block(digits);
      }
      entries[d] = *entry;
    }
    form.layout = fmt::format("[{}]", fmt::join(entries, ", "));
    if (!exact) warn_of_nearest(node, spec, " " + to_string(shape->second), list, form.layout);
    return form;
  }

  void warn_of_nearest(const Node& node, const ShardingSpec& spec, const std::string& shape, const DeviceList& list,
                       const std::string& layout) {
    std::vector<std::string> holders;
    for (const auto& shard : list.holders) holders.push_back(fmt::format("{}", fmt::join(shard, "+")));
    warn("{}: '{}'{} in {} shards on devices {} has no layout of its own; it lies as {} over {}", node.label(),
         spec.tensor, shape, shards_of(spec), fmt::join(holders, ","), layout, plan_.mesh.str());
  }

  // Blocks, where shards cannot be dealt out in turn.
  std::string block(const std::vector<std::vector<ShardDigit>>& digits) const {
    std::vector<std::string> axes;
    for (const auto& run : digits)
      for (const ShardDigit& digit : run)
        if (digit.axis) axes.push_back(digit.axis->str(plan_.mesh));
    return axes.empty() ? "-" : fmt::format("{{{}}}", fmt::join(axes, ","));
  }

  const Form* form(const Node* node, const Value* tensor) const {
    const auto of_node = forms_.find(node);
    if (of_node == forms_.end()) return nullptr;
    const auto found = of_node->second.find(tensor->name);
    return found == of_node->second.end() ? nullptr : &found->second;
  }

  const std::vector<PlacedAxis>& place(const Node* node) const {
    static const std::vector<PlacedAxis> everywhere;
    const auto found = places_.find(node);
    return found == places_.end() ? everywhere : found->second;
  }

  void place_nodes() {
    for (Node* node : nodes_) {
      const auto said = said_.find(node);
      if (said != said_.end())
        for (const ShardingSpec& spec : said->second.specs)
          forms_[node].emplace(spec.tensor, form_of(*node, said->second, spec));
      places_[node] = place_for(node, said == said_.end() ? nullptr : &said->second);
    }
    // What is made of nothing runs where it is needed.
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
        warn("{}: all devices run it, since all take part in control flow", node->label());
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
      const auto& layout = layouts_.at(whole_on(defaults_->of(*said)));
      if (layout) return layout->at;
      warn("{}: the devices {} of its stage are no place in the mesh {}; it runs on all", node->label(),
           fmt::join(defaults_->of(*said), ","), plan_.mesh.str());
      return {};
    }
    if (!any)
      for (const Value* operand : node->inputs)
        if (operand && operand->producer) place = common_place(place, this->place(operand->producer));
    std::erase_if(place, [&](const PlacedAxis& entry) { return conflicts({entry}, splits); });
    return place;
  }

  // Where a tensor is as its producer makes it.
  const std::vector<PlacedAxis>& place_of(const Value* value) const { return place(value->producer); }

  // The layout of a value, which what reads it may find there; the rest takes copies.
  void lay_out_values() {
    std::map<const Value*, std::string> own;  // its layout
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
        const auto copied = plan_.copies.find(operand->name);  // of a result that is needed elsewhere
        const Value* first = copied == plan_.copies.end() ? operand : graph().find(copied->second);
        const Form* wanted = form(node, first);
        if (!wanted || wanted->layout.empty()) continue;
        if (const auto known = own.find(first); known != own.end() && known->second == wanted->layout) continue;
        graph().set_input(node, i, copy_of(operand, *wanted, place(node), node));
      }
  }

  // In bodies, operands and results get copies, whose labels annotations name: names come about when bodies are opened.
  void lay_out_bodies() {
    std::map<const Node*, size_t> elsewhere;  // nodes that would be at a place, by what holds them
    for (const Inner& inner : inner_) {
      bool placed = inner.said.stage.has_value();
      for (const ShardingSpec& spec : inner.said.specs) {
        const DeviceList list = list_of(spec, inner.said);
        const auto& found = layouts_.at(list);
        const ListedLayout layout = found ? *found : nearest(list, plan_.mesh, plan_.devices);
        placed = placed || !layout.at.empty();
        const auto text = inner_layout(inner, spec, layout);
        if (!text || plan_.mesh.axes().empty()) continue;
        if (!found || !lies_in_blocks(spec, layout)) warn_of_nearest(*inner.node, spec, "", list, *text);
        for (size_t i = 0; i < inner.node->operand_count(); ++i)
          if (Value* operand = inner.node->inputs[i]; operand && name_in_body(*operand) == spec.tensor)
            inner.body->set_input(inner.node, i, labelled_copy(inner, operand, inner.node, *text));
        for (Value* result : std::vector<Value*>(inner.node->outputs)) {
          if (!result || result->name != spec.tensor) continue;
          Value* copy = labelled_copy(inner, result, rewrite::node_after(*inner.body, inner.node), *text);
          inner.body->replace_uses(result, copy);
          inner.body->set_input(copy->producer, 0, result);
        }
      }
      if (placed) ++elsewhere[inner.holder];
    }
    for (const auto& [holder, count] : elsewhere)
      warn("{}: all devices run it, since all take part in control flow; {} in its bodies {} otherwise",
           holder->label(), count == 1 ? "1 node" : fmt::format("{} nodes", count), count == 1 ? "says" : "say");
  }

  // The layout of a tensor in a body, whose rank need not be known. Nullopt, with a warning, if axes count from both
  // ends.
  std::optional<std::string> inner_layout(const Inner& inner, const ShardingSpec& spec, const ListedLayout& layout) {
    std::map<int64_t, std::string> entries;
    size_t factor = 0;
    for (const ShardedAxis& axis : spec.axes) {
      const auto begin = layout.factors.begin() + static_cast<int64_t>(factor);
      factor += axis.factors.size();
      entries[axis.axis] = block({begin, begin + static_cast<int64_t>(axis.factors.size())});
    }
    if (entries.empty()) return "[...]";
    const int64_t first = entries.begin()->first, last = entries.rbegin()->first;
    if (first < 0 && last >= 0) {
      warn("{}: '{}' has axes that count from both ends, so that its layout in a body is left to propagation",
           inner.node->label(), spec.tensor);
      return std::nullopt;
    }
    std::vector<std::string> texts;
    if (first < 0) texts.push_back("...");
    for (int64_t d = std::min<int64_t>(first, 0); d <= (first < 0 ? -1 : last); ++d)
      texts.push_back(entries.contains(d) ? entries.at(d) : "-");
    if (first >= 0) texts.push_back("...");
    return fmt::format("[{}]", fmt::join(texts, ", "));
  }

  // Whether each axis is one factor, whose shards are one block for each device.
  static bool lies_in_blocks(const ShardingSpec& spec, const ListedLayout& layout) {
    return std::all_of(spec.axes.begin(), spec.axes.end(),
                       [](const ShardedAxis& axis) { return axis.factors.size() == 1; }) &&
           std::all_of(layout.factors.begin(), layout.factors.end(), [](const std::vector<ShardDigit>& digits) {
             const auto shared =
                 std::find_if(digits.begin(), digits.end(), [](const ShardDigit& d) { return !d.axis; });
             return std::all_of(shared, digits.end(), [](const ShardDigit& d) { return !d.axis; });
           });
  }

  // One that all share which want it so.
  Value* labelled_copy(const Inner& inner, Value* value, const Node* before, const std::string& layout) {
    if (const auto own = inner_layouts_.find(value); own != inner_layouts_.end() && own->second == layout) return value;
    Value*& shared = inner_copies_[{inner.body, value, layout}];
    if (!shared) shared = new_labelled_copy(inner, value, before, layout);
    return shared;
  }

  Value* new_labelled_copy(const Inner& inner, Value* value, const Node* before, const std::string& layout) {
    const std::string label = fmt::format("{}{}", rewrite::kLabelPrefix, labels_++);
    Node* copy = inner.body->add_node("Identity", {value}, {value->name + ".as"}, "", before);
    copy->set(rewrite::kLabel, label);
    copy->outputs[0]->type = value->type;
    plan_.annotations.push_back({label, layout, by_, true});
    inner_names_.emplace(copy->outputs[0], name_in_body(*value));
    inner_layouts_.emplace(copy->outputs[0], layout);
    return copy->outputs[0];
  }

  // As annotations know it, where it is a copy already.
  const std::string& name_in_body(const Value& value) const {
    const auto copied = inner_names_.find(&value);
    return copied == inner_names_.end() ? value.name : copied->second;
  }

  // That in which all want it who use it; null if there is none, or if it is not one for where the value is.
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

  // One that others of the same layout and place share.
  Value* copy_of(Value* value, const Form& form, const std::vector<PlacedAxis>& at, const Node* before) {
    Value*& copy = copies_[{value, form.layout, request_of(at, plan_.mesh)}];
    if (copy) return copy;
    const Node* next = before;
    for (const Use& use : value->uses)  // before all that read it
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

  // Rewriting must not take a tensor and its copy for one, which would then have the copy's layout and place.
  void keep(const Value* value) {
    const auto shape = shapes_.find(value->name);
    if (value->kind != ValueKind::result || annotated_.contains(value) || shape == shapes_.end()) return;
    annotate(value, fmt::format("[{}]", fmt::join(std::vector<std::string>(shape->second.size(), "?"), ", ")));
  }

  void run_on_one() {
    warn("no node says how it is split over the devices of '{}', so that the model runs on one", configuration_.name);
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
    // A node's own name must not be another's result's.
    if (!plan_.places.empty())
      for (Node* node : nodes_)
        if (results.contains(node->name)) node->name.clear();
  }

  DevicePlan plan_;
  const DeviceConfiguration configuration_;
  const std::string by_;
  std::vector<Node*> nodes_;                // of the model as read, in order
  std::map<const Node*, size_t> position_;  // in nodes_
  std::vector<Node*> made_;
  std::map<const Node*, NodeDevices> said_;
  std::vector<Inner> inner_;
  std::map<const Value*, std::string> inner_names_, inner_layouts_;  // of copies in bodies
  std::map<std::tuple<const Graph*, const Value*, std::string>, Value*> inner_copies_;
  int labels_ = 0;
  std::optional<DefaultDevices> defaults_;
  std::map<std::string, Shape> shapes_;
  std::map<DeviceList, std::optional<ListedLayout>> layouts_;
  std::map<const Node*, std::map<std::string, Form>> forms_;
  std::map<const Node*, std::vector<PlacedAxis>> places_;
  std::set<const Value*> annotated_;
  std::map<std::tuple<const Value*, std::string, std::string>, Value*> copies_;
  InlinedAnnotations inlined_;
};

}  // namespace

std::string mesh_key(const std::string& name) {
  return "tessera.mesh:" + name;
}

DevicePlan device_plan(const OnnxModel& model, const std::string& name) {
  std::vector<std::string> names;
  std::optional<DeviceConfiguration> configuration;
  for (DeviceConfiguration& known : device_configurations(model)) {
    names.push_back("'" + known.name + "'");
    if (known.name == name) configuration = std::move(known);
  }
  if (!configuration)
    fail(kStage, "the model has no device configuration '{}'; {}", name,
         names.empty() ? "it has none" : fmt::format("it has {}", fmt::join(names, ", ")));
  if (const auto faults = device_faults(model, name); !faults.empty())
    fail(kStage, "{}{}", faults.front().message,
         faults.size() == 1 ? "" : fmt::format(" (and {} more faults; tessera check names all)", faults.size() - 1));
  return Follower(model, std::move(*configuration)).run();
}

}  // namespace tessera::compiler
