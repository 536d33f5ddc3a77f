#include "tessera/passes/order.h"

#include <algorithm>
#include <set>

#include "tessera/ir/flow.h"
#include "tessera/passes/dependences.h"
#include "tessera/passes/live_bytes.h"
#include "tessera/passes/node_work.h"

namespace tessera::passes {
namespace {

using spmd::Program;

class Order {
 public:
  explicit Order(const Program& program) : program_(program), live_(program), dependences_(*program.graph) {
    for (int node = 0; node < count(); ++node)
      for (const Value* home : live_.read_by(*nodes_[node])) readers_[home].push_back(node);
    note_ends();
  }

  /// Of the two orders, with and without early ends, the one that needs less memory; if equal, that with early ends,
  /// which communicates earlier.
  std::vector<Node*> run() {
    std::vector<Node*> late = made(false), early = made(true);
    return live_.peak(early) <= live_.peak(late) ? std::move(early) : std::move(late);
  }

 private:
  int count() const { return static_cast<int>(nodes_.size()); }

  std::vector<Node*> made(bool early_ends) {
    early_ends_ = early_ends;
    order_.clear();
    missing_.assign(nodes_.size(), 0);
    done_.assign(nodes_.size(), false);
    for (const std::vector<int>& later : dependences_.after)
      for (int node : later) ++missing_[node];
    uses_ = {};
    for (const Node* node : nodes_)
      for (const Value* home : live_.read_by(*node)) ++uses_[home];
    for (const Value* home : live_.kept()) ++uses_[home];
    for (int node = 0; node < count(); ++node) {
      if (done_[node]) continue;
      take(node);
      while (!early_.empty()) {
        const int first = early_.begin()->second;
        early_.erase(early_.begin());
        take(first);
      }
    }
    return std::move(order_);
  }

  void note_ends() {
    ends_.resize(nodes_.size());
    std::vector<bool> leads_to_product(nodes_.size()), is_product(nodes_.size());
    for (int node = count() - 1; node >= 0; --node) {
      is_product[node] = multiplies(*nodes_[node]);
      for (int later : dependences_.after[node])
        leads_to_product[node] = leads_to_product[node] || leads_to_product[later] || is_product[later];
      const std::vector<const Value*> homes = live_.read_by(*nodes_[node]);
      const bool waits = std::any_of(homes.begin(), homes.end(),
                                     [](const Value* home) { return home->producer->domain == spmd::kCommDomain; });
      ends_[node] = !leads_to_product[node] && !waits && !homes.empty();
    }
  }

  // Whether each element of its result is a sum of several products: neither element-wise nor a normalization.
  bool multiplies(const Node& node) const {
    constexpr double kLeastDepth = 8;
    return work_of(node, program_.hints).depth >= kLeastDepth;
  }

  // Whether a ready node should run before its turn.
  bool gains(int node) const {
    if (live_.made_by(*nodes_[node]).empty()) return true;
    if (early_ends_ && ends_[node]) return true;
    double freed = 0, needed = 0;
    for (const Value* home : live_.read_by(*nodes_[node]))
      if (*uses_.find(home) == 1) freed += live_.of(home);
    for (const Value* home : live_.made_by(*nodes_[node])) needed += live_.of(home);
    return freed > needed || (freed == needed && freed > 0 && nodes_[node]->domain == spmd::kCommDomain);
  }

  void consider(int node) {
    const bool computes = nodes_[node]->domain != spmd::kCommDomain;
    if (!done_[node] && missing_[node] == 0 && gains(node)) early_.insert({computes, node});
  }

  void take(int node) {
    done_[node] = true;
    order_.push_back(nodes_[node]);
    std::set<int> changed;
    for (int later : dependences_.after[node]) {
      --missing_[later];
      changed.insert(later);
    }
    for (const Value* home : live_.read_by(*nodes_[node]))
      if (--uses_[home] == 1) changed.insert(readers_[home].begin(), readers_[home].end());
    for (int other : changed) consider(other);
  }

  const Program& program_;
  const LiveBytes live_;
  const Dependences dependences_;
  const std::vector<Node*>& nodes_ = dependences_.nodes;
  ValueMap<std::vector<int>> readers_;
  std::vector<bool> ends_;  // by node: it reads results, none of communications, and no product depends on it
  // Of the order that is being made:
  bool early_ends_ = false;
  std::vector<int> missing_;  // by node: how many it waits for
  ValueMap<int> uses_;        // remaining uses of a home
  std::vector<bool> done_;
  std::set<std::pair<bool, int>> early_;  // nodes that gain by running now, communications first
  std::vector<Node*> order_;
};

}  // namespace

void order(Program& program, Context&) {
  program.graph->arrange(Order(program).run());
  flow::arrange_regions(*program.graph);
}

}  // namespace tessera::passes
