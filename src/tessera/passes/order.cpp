#include "tessera/passes/order.h"

#include <algorithm>
#include <set>

#include "tessera/ir/flow.h"
#include "tessera/passes/dependences.h"
#include "tessera/passes/live_bytes.h"
#include "tessera/passes/stage_order.h"

namespace tessera::passes {
namespace {

using spmd::Program;

class Order {
 public:
  explicit Order(const Program& program) : live_(program), dependences_(*program.graph) {
    missing_.resize(nodes_.size());
    done_.resize(nodes_.size());
    for (const std::vector<int>& later : dependences_.after)
      for (int node : later) ++missing_[node];
    note_uses();
  }

  std::vector<Node*> run() {
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

 private:
  int count() const { return static_cast<int>(nodes_.size()); }

  void note_uses() {
    for (int node = 0; node < count(); ++node)
      for (const Value* home : live_.read_by(*nodes_[node])) {
        readers_[home].push_back(node);
        ++uses_[home];
      }
    for (const Value* home : live_.kept()) ++uses_[home];
  }

  // Whether a ready node should run before its turn.
  bool gains(int node) const {
    if (live_.made_by(*nodes_[node]).empty()) return true;
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

  const LiveBytes live_;
  const Dependences dependences_;
  const std::vector<Node*>& nodes_ = dependences_.nodes;
  std::vector<int> missing_;  // by node: how many it waits for
  ValueMap<std::vector<int>> readers_;
  ValueMap<int> uses_;  // remaining uses of a home
  std::vector<bool> done_;
  std::set<std::pair<bool, int>> early_;  // nodes that gain by running now, communications first
  std::vector<Node*> order_;
};

}  // namespace

void order(Program& program, Context& context) {
  program.graph->arrange(Order(program).run());
  stage_order(program, context);
  flow::arrange_regions(*program.graph);
}

}  // namespace tessera::passes
