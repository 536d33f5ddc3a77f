#include <algorithm>
#include <set>

#include "tessera/bind/asked.h"
#include "tessera/bind/blocks.h"
#include "tessera/bind/groups.h"
#include "tessera/bind/views.h"
#include "tessera/ir/flow.h"

namespace tessera::bind {
namespace {

constexpr size_t kMostFollowers = 4;     // of a product
constexpr size_t kMostAfterSums = 8;     // followers of a product of integers
constexpr size_t kMostElementwise = 24;  // nodes of an element-wise group
constexpr size_t kNear = 32;             // nodes; a node farther away would keep its operands for long

using kernels::Follower;
using kernels::is_weight;
using kernels::Library;
using kernels::PackedLayout;
using kernels::TensorDesc;

// Whether the value is a weight, or may be a part of one, or one in another shape, that nothing else reads: of a weight
// of codes, whose products are much slower with the plain form.
bool may_be_packed(const Node& node, const Value* value) {
  const bool integers = node.is("MatMulInteger") && node.domain.empty();
  while (value && !is_weight(value)) {
    const Node* maker = value->producer;
    const bool passes = integers && maker && maker->domain.empty() && value->uses.size() == 1 &&
                        (maker->is("Reshape") || maker->is("Squeeze") || maker->is("Slice"));
    value = passes ? maker->input(0) : nullptr;
  }
  return value;
}

std::optional<PackedLayout> packed_weight(const Node& node, const DescOf& desc_of, const Library& library) {
  return may_be_packed(node, node.input(1)) ? library.packed_layout(node, desc_of(node.input(1))) : std::nullopt;
}

NodeGroup single(const Node& node, const DescOf& desc_of, const Library& library) {
  NodeGroup group{&node, {}, node.inputs, node.outputs, nullptr, packed_weight(node, desc_of, library)};
  if (group.packed)
    for (const size_t operand : group.packed->spared) group.inputs[operand] = nullptr;
  return group;
}

// Whether all elements are known to be +0.
bool is_zero(const Value* value) {
  const Node* maker = value->producer;
  if (!maker || !maker->is("Expand") || !maker->domain.empty()) return false;
  const Value* element = maker->input(0);
  if (!element->is_fixed() || !is_float(element->dtype()) || element->data.count() != 1) return false;
  const std::byte* bytes = element->data.data;
  return std::all_of(bytes, bytes + element->data.bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

// Whether the node adds elements to a tensor of zeros at some places.
bool scatters_into_zeros(const Node& node) {
  const std::string_view op = node.op_type;
  const bool scatters = node.domain.empty() ? op == "ScatterND" || op == "ScatterElements"
                                            : op == "ScatterNDShard" || op == "ScatterElementsShard";
  return scatters && node.get_string("reduction", "none") == "add" && is_zero(node.input(0));
}

class Grouper : public Regrouping {
 public:
  Grouper(const Graph& graph, const Library& library)
      : graph_(graph),
        library_(library),
        flow_(flow::flow_of(graph)),
        kept_(graph.outputs.begin(), graph.outputs.end()) {
    for (const auto& value : graph.values())
      if (value->next) kept_.insert(value->next);
    for (const auto& node : graph.nodes()) order_.emplace(node.get(), order_.size());
  }

  Grouping run(const Bound& values) {
    const Bound noted = asked_.noted(values);
    desc_of_ = noted.desc;
    asked_.decision = kAll;
    std::map<const Node*, NodeGroup> at;  // by the node at whose place they run
    for (const auto& node : graph_.nodes()) {
      if (is_taken(*node)) continue;
      NodeGroup group = rooted_at(*node);
      const Node* place = node.get();
      if (sums_integers(group))
        place = add_followers_of_sums(group, *node);
      else if (is_root(group))
        place = add_followers(group, *node);
      at.emplace(place, std::move(group));
    }
    // A group may have taken nodes from before its root.
    std::erase_if(at, [&](const auto& group) { return group.second.root == group.first && is_taken(*group.first); });
    for (size_t n = graph_.nodes().size(); n-- > 0;) {
      const Node& node = *graph_.nodes()[n];
      asked_.decision = before_ = n;
      if (is_taken(node) || !library_.can_group(node)) continue;
      const std::vector<const Node*> members = elementwise_members(node);
      if (members.size() == 1) continue;
      for (const Node* member : members) {
        at.erase(member);
        taken_.emplace(member, n);
      }
      at[&node] = elementwise_group_of(members);
      members_[n] = members;
    }
    asked_.decision = kAll;
    std::vector<NodeGroup> groups;
    for (const auto& node : graph_.nodes()) {
      auto group = at.find(node.get());
      if (group != at.end() && !is_spare(*node)) groups.push_back(std::move(group->second));
    }
    std::map<const Value*, int64_t> blocked = assign_blocks(groups, kept_, desc_of_, library_);
    views_.emplace(std::move(groups), kept_, std::move(blocked), library_);
    desc_of_ = nullptr;
    return views_->assign(values);
  }

  std::optional<std::map<const Value*, Alias>> views(const std::vector<const Value*>& changed,
                                                     const Bound& values) override {
    desc_of_ = values.desc;
    const bool stay = groups_stay(changed);
    desc_of_ = nullptr;
    return stay ? views_->assign_again(changed, values) : std::nullopt;
  }

 private:
  // Decisions that are not repeated one by one: if a value that they asked for changes, all are repeated.
  static constexpr size_t kAll = SIZE_MAX;

  bool groups_stay(const std::vector<const Value*>& changed) {
    for (size_t n : asked_.of(changed)) {
      if (n == kAll) return false;
      before_ = n;
      const std::vector<const Node*> members = elementwise_members(*graph_.nodes()[n]);
      auto known = members_.find(n);
      if (known == members_.end() ? members.size() != 1 : members != known->second) return false;
    }
    return true;
  }

  // Groups of element-wise nodes are made from the last node to the first; each takes nodes that later groups have
  // left.
  bool is_taken(const Node& node) const {
    auto taken = taken_.find(&node);
    return taken != taken_.end() && taken->second > before_;
  }

  NodeGroup rooted_at(const Node& node) {
    if (node.is("Add") && node.domain.empty())
      for (size_t addend : {0, 1})
        if (scatters_alone(node, addend)) return scattering_into(node, addend);
    return product_of_stored(node);
  }

  // Whether one runs as often as the other: neither is in a branch or loop in which the other is not.
  bool run_together(const Node& a, const Node& b) const { return flow_.empty() || flow_.of(&a) == flow_.of(&b); }

  // Whether the addend is scattered into zeros for this sum alone.
  bool scatters_alone(const Node& sum, size_t addend) const {
    const Value *scattered = sum.inputs[addend], *other = sum.inputs[1 - addend];
    if (!scattered->producer || scattered->uses.size() != 1 || kept_.contains(scattered)) return false;
    if (!run_together(sum, *scattered->producer)) return false;
    return scatters_into_zeros(*scattered->producer) && desc_of_(other).dims == desc_of_(scattered).dims;
  }

  // A sum with what is scattered into zeros scatters into the other addend instead.
  NodeGroup scattering_into(const Node& sum, size_t addend) {
    const Node* scatter = sum.inputs[addend]->producer;
    auto own = std::make_shared<Node>(*scatter);
    own->inputs[0] = sum.inputs[1 - addend];
    own->outputs = sum.outputs;
    ++spared_[scatter];
    ++spared_[scatter->input(0)->producer];
    taken_.emplace(&sum, kAll);
    NodeGroup group = single(*own, desc_of_, library_);
    group.own = std::move(own);
    return group;
  }

  // A product with the transpose of a weight reads the weight itself, if it can be packed in its own layout.
  NodeGroup product_of_stored(const Node& node) {
    NodeGroup group = single(node, desc_of_, library_);
    const bool integers = node.is("MatMulInteger") && node.domain.empty();
    if (!(node.is("MatMul") || integers) || !node.input(1)) return group;
    const Node* transpose = node.input(1)->producer;
    if (!transpose || !transpose->is("Transpose") || !is_weight(transpose->input(0))) return group;
    if (transpose->get_ints("perm", {1, 0}) != std::vector<int64_t>{1, 0} || transpose->input(0)->rank() != 2)
      return group;
    auto own = std::make_shared<Node>(node);
    own->inputs[1] = transpose->inputs[0];
    own->set("transB", int64_t{1});
    auto packed = packed_weight(*own, desc_of_, library_);
    if (!packed) return group;
    group.packed = std::move(packed);
    ++spared_[transpose];
    group.inputs = own->inputs;
    group.root = own.get();
    group.own = std::move(own);
    return group;
  }

  // A node whose result no reader needs.
  bool is_spare(const Node& node) const {
    auto spared = spared_.find(&node);
    return spared != spared_.end() && spared->second == node.outputs[0]->uses.size() &&
           !kept_.contains(node.outputs[0]);
  }

  bool is_root(const NodeGroup& group) const {
    const Node& node = *group.root;
    if (!node.domain.empty() || node.outputs.size() != 1 || !is_weight(node.input(1))) return false;
    if (!library_.has_epilogues(node.outputs[0]->dtype())) return false;
    if (node.is("Conv")) return node.outputs[0]->rank() >= 3;
    if (node.is("Gemm") && (node.input(2) || node.get_float("alpha", 1) != 1)) return false;
    return (node.is("Gemm") || node.is("MatMul")) && node.inputs[0]->rank() >= 2 && node.inputs[1]->rank() == 2;
  }

  static bool sums_integers(const NodeGroup& group) {
    const Node& node = *group.root;
    return node.domain.empty() && (node.is("MatMulInteger") || node.is("ConvInteger"));
  }

  // The same for a product of integers, whose sums become floats, and perhaps integers again.
  const Node* add_followers_of_sums(NodeGroup& group, const Node& root) {
    constexpr size_t kOwnOperands = 4;
    const Node* last = &root;
    const TensorDesc desc = desc_of_(last->outputs[0]);
    const bool channels = root.is("ConvInteger");
    while (desc.count() > 0 && group.followers.size() < kMostAfterSums) {
      const Value* value = last->outputs[0];
      if (value->uses.size() != 1 || kept_.contains(value)) break;
      const Node& node = *value->uses[0].node;
      const size_t index = value->uses[0].index;
      if (!library_.can_follow_sums(node, index) || is_taken(node) || !run_together(root, node)) break;
      if (desc_of_(node.outputs[0]).dims != desc.dims) break;
      const auto goes_along = [&](size_t i) {
        if (i == index || !node.inputs[i]) return true;
        const TensorDesc other = desc_of_(node.inputs[i]);
        const TensorDesc alike{other.dtype, desc.dims};
        return other.count() == 1 ? other.rank() <= desc.rank()
                                  : other.dims != desc.dims && fits(other, alike, channels);
      };
      bool all = true;
      for (size_t i = 0; i < node.inputs.size(); ++i) all = all && goes_along(i);
      if (!all) break;
      group.inputs.resize(std::max(group.inputs.size(), kOwnOperands));
      Follower follower{&node, std::vector<int>(node.inputs.size(), ~static_cast<int>(group.followers.size()))};
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (i == index) continue;
        follower.operands[i] = static_cast<int>(group.inputs.size());
        group.inputs.push_back(node.inputs[i]);
      }
      group.followers.push_back(std::move(follower));
      taken_.emplace(&node, kAll);
      last = &node;
    }
    if (channels && last->is("QuantizeLinear")) last = add_sum_of_codes(group, root, *last);
    group.outputs = last->outputs;
    return last;
  }

  // Codes that are added to others, as at the end of a residual block, become the sum's codes before they are stored.
  const Node* add_sum_of_codes(NodeGroup& group, const Node& root, const Node& quantize) {
    const Value& codes = *quantize.outputs[0];
    if (kept_.contains(&codes)) return &quantize;
    const std::vector<const Node*> nodes = library_.sum_after_codes(codes);
    if (nodes.empty() || order_.at(nodes.back()) - order_.at(&root) > kNear) return &quantize;
    const Dims dims = desc_of_(&codes).dims;
    for (const Node* node : nodes) {
      const Value* result = node->outputs[0];
      if (is_taken(*node) || !run_together(root, *node) || desc_of_(result).dims != dims) return &quantize;
      if (node != nodes.back() && kept_.contains(result)) return &quantize;
    }
    const Node* last = &quantize;
    std::map<const Value*, int> made = {{&codes, ~static_cast<int>(group.followers.size())}};
    for (const Node* node : nodes) {
      Follower follower{node, {}};
      for (Value* operand : node->inputs) {
        auto known = made.find(operand);
        follower.operands.push_back(known != made.end() ? known->second : static_cast<int>(group.inputs.size()));
        if (known == made.end()) group.inputs.push_back(operand);
      }
      group.followers.push_back(std::move(follower));
      made.emplace(node->outputs[0], ~static_cast<int>(group.followers.size()));
      taken_.emplace(node, kAll);
      last = node;
    }
    return last;
  }

  // Appends the followers of the node, one after the other; returns the last one.
  const Node* add_followers(NodeGroup& group, const Node& root) {
    const TensorDesc desc = desc_of_(root.outputs[0]);
    const Node* last = &root;
    if (desc.count() == 0) return last;
    while (group.followers.size() < kMostFollowers) {
      const Value* value = last->outputs[0];
      if (value->uses.size() != 1 || kept_.contains(value)) break;
      const Node& node = *value->uses[0].node;
      if (!library_.can_follow(node) || is_taken(node) || !run_together(root, node)) break;
      const TensorDesc result = desc_of_(node.outputs[0]);
      if (result.dtype != desc.dtype || result.dims != desc.dims) break;
      Follower follower{&node, std::vector<int>(node.inputs.size(), ~static_cast<int>(group.followers.size()))};
      if (library_.takes_operand(node)) {
        Value* other = node.inputs[1 - value->uses[0].index];
        const TensorDesc operand = desc_of_(other);
        if (!fits(operand, desc, root.is("Conv"))) break;
        // A convolution can add another tensor only as the previous content of its result's memory.
        const bool held = node.is("Add") && group.followers.empty();
        if (root.is("Conv") && operand.dims == desc.dims && !held) break;
        if (root.is("Conv")) group.inputs.resize(std::max<size_t>(group.inputs.size(), 3));  // the bias's place
        follower.operands[1 - value->uses[0].index] = static_cast<int>(group.inputs.size());
        group.inputs.push_back(other);
      }
      group.followers.push_back(follower);
      taken_.emplace(&node, kAll);
      last = &node;
    }
    group.outputs = last->outputs;
    return last;
  }

  // An element-wise node and those before it whose results these nodes read, and others only after them.
  std::vector<const Node*> elementwise_members(const Node& last) const {
    std::vector<const Node*> members{&last};
    const Dims dims = desc_of_(last.outputs[0]).dims;
    const auto is_member = [&](const Node* node) { return std::count(members.begin(), members.end(), node) > 0; };
    const auto may_join = [&](const Value* operand) {
      const Node* node = operand ? operand->producer : nullptr;
      if (!node || is_taken(*node) || is_member(node) || !library_.can_group(*node)) return false;
      if (!run_together(*node, last)) return false;
      if (order_.at(&last) - order_.at(node) > kNear) return false;
      return desc_of_(operand).dims == dims && std::all_of(operand->uses.begin(), operand->uses.end(), [&](Use use) {
               return is_member(use.node) || order_.at(use.node) > order_.at(&last);
             });
    };
    std::set<const Node*> refused;
    for (size_t m = 0; m < members.size(); ++m)
      for (const Value* operand : members[m]->inputs) {
        if (members.size() == kMostElementwise || !may_join(operand) || refused.contains(operand->producer)) continue;
        members.push_back(operand->producer);
        if (goes_together(elementwise_group_of(members), dims)) continue;
        refused.insert(operand->producer);
        members.pop_back();
      }
    return members;
  }

  NodeGroup elementwise_group_of(std::vector<const Node*> members) const {
    std::sort(members.begin(), members.end(),
              [&](const Node* a, const Node* b) { return order_.at(a) < order_.at(b); });
    NodeGroup group = single(*members.front(), desc_of_, library_);
    for (size_t m = 1; m < members.size(); ++m) {
      Follower follower{members[m], {}};
      for (Value* operand : members[m]->inputs) {
        auto member = std::find(members.begin(), members.end(), operand ? operand->producer : nullptr);
        auto known = std::find(group.inputs.begin(), group.inputs.end(), operand);
        if (member != members.end()) {
          follower.operands.push_back(~static_cast<int>(member - members.begin()));
          continue;
        }
        follower.operands.push_back(static_cast<int>(known - group.inputs.begin()));
        if (known == group.inputs.end()) group.inputs.push_back(operand);
      }
      group.followers.push_back(std::move(follower));
    }
    group.outputs.assign(members.size(), nullptr);
    for (size_t m = 0; m < members.size(); ++m) {
      Value* result = members[m]->outputs[0];
      const bool is_inside = std::all_of(result->uses.begin(), result->uses.end(), [&](const Use& use) {
        return std::count(members.begin(), members.end(), use.node) > 0;
      });
      if (m + 1 == members.size() || !is_inside || kept_.contains(result))
        group.outputs[kernels::result_of_member(m, members.size())] = result;
    }
    while (!group.outputs.back()) group.outputs.pop_back();
    return group;
  }

  bool goes_together(const NodeGroup& group, const Dims& dims) const {
    std::vector<TensorDesc> operands;
    for (const Value* operand : group.inputs) operands.push_back(operand ? desc_of_(operand) : TensorDesc{});
    return library_.has_long_rows(*group.root, dims, operands);
  }

  // The other operand of a sum or product: like the result, or one value per column or channel.
  static bool fits(const TensorDesc& other, const TensorDesc& result, bool channels) {
    if (other.dtype != result.dtype) return false;
    if (other.dims == result.dims) return true;
    const size_t axis = channels ? 1 : result.dims.size() - 1;
    const size_t offset = result.dims.size() - other.dims.size();  // aligned at the right
    if (other.dims.size() > result.dims.size() || axis < offset || other.count() != result.dims[axis]) return false;
    return other.dims[axis - offset] == result.dims[axis];
  }

  const Graph& graph_;
  const Library& library_;
  const flow::Flow flow_;
  DescOf desc_of_;                       // while nodes are assigned
  std::map<const Node*, size_t> order_;  // in running order
  std::set<const Value*> kept_;          // read after the run: outputs, and states' next values
  std::map<const Node*, size_t> taken_;  // nodes in groups of several: the last one of element-wise ones, else kAll
  size_t before_ = 0;                    // the node whose group is being made; 0: that of a product
  std::map<size_t, std::vector<const Node*>> members_;  // of groups of element-wise nodes, by their last one
  std::map<const Node*, size_t> spared_;                // readers of a result that do not need it
  Asked asked_;                                         // by last nodes of element-wise groups
  std::optional<Views> views_;
};

}  // namespace

Grouping group_nodes(const Graph& graph, const Bound& values, const kernels::Library& library) {
  auto grouper = std::make_shared<Grouper>(graph, library);
  Grouping grouping = grouper->run(values);
  grouping.again = std::move(grouper);
  return grouping;
}

Grouping single_nodes(const Graph& graph, const Bound& values, const kernels::Library& library) {
  std::vector<NodeGroup> groups;
  for (const auto& node : graph.nodes()) groups.push_back(single(*node, values.desc, library));
  return Views(std::move(groups), {}, {}, library).assign_whole(values);
}

}  // namespace tessera::bind
