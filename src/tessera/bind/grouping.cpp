#include <algorithm>
#include <set>
#include <unordered_map>

#include "tessera/bind/asked.h"
#include "tessera/bind/blocks.h"
#include "tessera/bind/groups.h"
#include "tessera/bind/views.h"
#include "tessera/ir/flow.h"

namespace tessera::bind {
namespace {

using kernels::Fusion;
using kernels::Library;
using kernels::TensorDesc;
using kernels::TypeOf;

/// Assigns the nodes of a graph to kernels; it is also the library's view of the graph meanwhile. First, in running
/// order, products and similar kernels take over nodes; then, from the last node to the first, the remaining
/// element-wise nodes form groups.
class Grouper : public Regrouping, private kernels::Surroundings {
 public:
  Grouper(const Graph& graph, const Library& library)
      : graph_(graph),
        library_(library),
        flow_(flow::flow_of(graph)),
        kept_(graph.outputs.begin(), graph.outputs.end()) {
    for (const auto& value : graph.values())
      if (value->next) kept_.insert(value->next);
    for (size_t n = 0; n < graph.nodes().size(); ++n) {
      const size_t number = graph.nodes()[n]->number;
      if (number >= order_.size()) order_.resize(number + 1);
      order_[number] = n;
    }
  }

  Grouping run(const Bound& values) {
    const Bound noted = asked_.noted(values);
    type_of_ = noted.type;
    asked_.decision = kAll;
    fuse_forward();
    fuse_backward();
    asked_.decision = kAll;
    std::vector<NodeGroup> groups;
    for (const auto& node : graph_.nodes()) {
      auto group = at_.find(node.get());
      if (group != at_.end() && !is_spare(*node)) groups.push_back({std::move(group->second), {}});
    }
    at_.clear();
    std::map<const Value*, int64_t> blocked = assign_blocks(groups, kept_, type_of_, library_);
    views_.emplace(std::move(groups), kept_, std::move(blocked), library_);
    type_of_ = nullptr;
    return views_->assign(values);
  }

  std::optional<std::map<const Value*, Alias>> views(const std::vector<const Value*>& changed,
                                                     const Bound& values) override {
    type_of_ = values.type;
    const bool stay = groups_stay(changed);
    type_of_ = nullptr;
    return stay ? views_->assign_again(changed, values) : std::nullopt;
  }

 private:
  // Stands for decisions that are not repeated individually: if a value that one of them read changes, all are made
  // again.
  static constexpr size_t kAll = SIZE_MAX;

  TensorDesc type(const Value* value) const override { return type_of_(value); }
  bool is_free(const Node& node) const override {
    auto taken = taken_.find(&node);
    return taken == taken_.end() || taken->second <= before_;
  }
  bool run_together(const Node& a, const Node& b) const override {
    return flow_.empty() || flow_.of(&a) == flow_.of(&b);
  }
  bool is_kept(const Value* value) const override { return kept_.contains(value); }
  size_t position(const Node& node) const override { return order_.at(node.number); }

  static std::vector<const Node*> nodes_of(const Fusion& fusion) {
    std::vector<const Node*> nodes{fusion.root};
    for (const kernels::Follower& follower : fusion.followers) nodes.push_back(follower.node);
    return nodes;
  }

  void fuse_forward() {
    for (const auto& node : graph_.nodes()) {
      if (!is_free(*node)) continue;
      Fusion fusion = library_.fuse(*node, *this);
      const Node* place = fusion.followers.empty() ? node.get() : fusion.followers.back().node;
      if (fusion.own || place != node.get()) taken_.emplace(node.get(), kAll);
      for (const kernels::Follower& follower : fusion.followers) {
        taken_.emplace(follower.node, kAll);
        at_.erase(follower.node);  // a kernel may take over nodes before its root
      }
      for (const Node* spared : fusion.spared) ++spared_[spared];
      at_.emplace(place, std::move(fusion));
    }
  }

  void fuse_backward() {
    for (size_t n = graph_.nodes().size(); n-- > 0;) {
      const Node& node = *graph_.nodes()[n];
      asked_.decision = before_ = n;
      if (!is_free(node)) continue;
      Fusion fusion = library_.fuse_backward(node, *this);
      if (fusion.followers.empty()) continue;
      members_[n] = nodes_of(fusion);
      for (const Node* member : members_[n]) {
        at_.erase(member);
        taken_.emplace(member, n);
      }
      at_[&node] = std::move(fusion);
    }
  }

  bool groups_stay(const std::vector<const Value*>& changed) {
    for (size_t n : asked_.of(changed)) {
      if (n == kAll) return false;
      before_ = n;
      const std::vector<const Node*> members = nodes_of(library_.fuse_backward(*graph_.nodes()[n], *this));
      auto known = members_.find(n);
      if (known == members_.end() ? members.size() != 1 : members != known->second) return false;
    }
    return true;
  }

  // Whether no reader needs the node's result.
  bool is_spare(const Node& node) const {
    auto spared = spared_.find(&node);
    return spared != spared_.end() && spared->second == node.outputs[0]->uses.size() &&
           !kept_.contains(node.outputs[0]);
  }

  const Graph& graph_;
  const Library& library_;
  const flow::Flow flow_;
  TypeOf type_of_;               // while nodes are assigned
  std::vector<size_t> order_;    // by the nodes' numbers: their places in running order
  std::set<const Value*> kept_;  // read after the run: outputs, and states' next values
  std::unordered_map<const Node*, size_t>
      taken_;          // nodes in groups of several: the last one of element-wise ones, else kAll
  size_t before_ = 0;  // the node whose group is being made; 0 for a product's
  std::unordered_map<const Node*, Fusion> at_;          // by the node at whose place they run, while groups are made
  std::map<size_t, std::vector<const Node*>> members_;  // of groups of element-wise nodes, by their last one
  std::unordered_map<const Node*, size_t> spared_;      // readers of a result that do not need it
  Asked asked_;                                         // by last nodes of element-wise groups
  std::optional<Views> views_;
};

/// A graph whose nodes all run alone.
class Apart : public kernels::Surroundings {
 public:
  explicit Apart(const TypeOf& type_of) : type_of_(type_of) {}
  TensorDesc type(const Value* value) const override { return type_of_(value); }
  bool is_free(const Node&) const override { return false; }
  bool run_together(const Node&, const Node&) const override { return false; }
  bool is_kept(const Value*) const override { return true; }
  size_t position(const Node&) const override { return 0; }

 private:
  const TypeOf& type_of_;
};

}  // namespace

Grouping group_nodes(const Graph& graph, const Bound& values, const kernels::Library& library) {
  auto grouper = std::make_shared<Grouper>(graph, library);
  Grouping grouping = grouper->run(values);
  grouping.again = std::move(grouper);
  return grouping;
}

Grouping single_nodes(const Graph& graph, const Bound& values, const kernels::Library& library) {
  const Apart around(values.type);
  std::vector<NodeGroup> groups;
  for (const auto& node : graph.nodes()) groups.push_back({library.fuse(*node, around), {}});
  return Views(std::move(groups), {}, {}, library).assign_whole(values);
}

}  // namespace tessera::bind
