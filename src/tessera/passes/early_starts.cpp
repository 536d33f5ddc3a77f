#include "tessera/passes/early_starts.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "tessera/base/error.h"
#include "tessera/ir/flow.h"
#include "tessera/mesh/group.h"
#include "tessera/mesh/queues.h"
#include "tessera/passes/dependences.h"
#include "tessera/passes/live_bytes.h"
#include "tessera/passes/node_work.h"
#include "tessera/spmd/collective_attributes.h"

namespace tessera::passes {
namespace {

using spmd::Program;

// A communication is given this many times the seconds that it takes, since computation may be faster than its price:
// kernels take over nodes that follow.
constexpr double kRoom = 1.25;
// It starts at most this many times its seconds before its result is needed, although the queue may be busy until then:
// what has come early is held.
constexpr double kMostAhead = 8;

/// When a queue of communications is busy: they take place one after the other.
class Busy {
 public:
  void add(double begin, double end) {
    double& known = ends_[begin];
    known = std::max(known, end);
  }
  /// The latest begin of so many seconds that end before `end`, and in which nothing else takes place.
  double latest(double end, double seconds) const {
    for (auto next = ends_.lower_bound(end); next != ends_.begin();) {
      --next;
      if (next->second <= end - seconds) break;
      end = std::min(end, next->first);
    }
    return end - seconds;
  }

 private:
  std::map<double, double> ends_;  // by begin
};

/// A node, or the members of a bucket, which start as one.
struct Unit {
  std::vector<int> nodes;  // neighbours
  bool communicates = false;
  bool in_order = false;  // a Send or Recv: these stay in order
  int queue = 0;          // of a communication
  double seconds = 0;
  double bytes = 0;         // of its results
  double begin = 0;         // if communication took no time, in the order given
  bool from_states = true;  // it depends on states and constants only
  int earliest = 0;         // the first place that it can have
  int place = 0;            // the unit before which it runs; its own number: it has not moved
  double start = 0;         // there; of a communication, when its turn comes
};

class EarlyStarts {
 public:
  EarlyStarts(const Program& program, const cost::Prices& prices)
      : program_(program), prices_(prices), dependences_(*program.graph), live_(program) {
    for (int node = 0; node < static_cast<int>(dependences_.nodes.size()); ++node) add(node);
    before_.resize(units_.size());
    after_.resize(units_.size());
    for (size_t node = 0; node < dependences_.nodes.size(); ++node)
      for (int later : dependences_.after[node])
        if (unit_of_[node] != unit_of_[later]) {
          before_[unit_of_[later]].push_back(unit_of_[node]);
          after_[unit_of_[node]].push_back(unit_of_[later]);
        }
    find_bounds();
    find_memory();
  }

  /// The new order; empty if nothing moves.
  std::vector<Node*> run() {
    take_turns();
    for (int u = static_cast<int>(units_.size()) - 1; u >= 0; --u)
      if (may_move(u))
        move(u);
      else if (!units_[u].communicates)
        go_with_readers(u);
    delay_behind_operands();
    const auto moves = [&](const Unit& unit) { return unit.place != &unit - units_.data(); };
    if (std::none_of(units_.begin(), units_.end(), moves)) return {};
    std::vector<Node*> order = arranged();
    return live_.peak(order) <= most_ ? std::move(order) : std::vector<Node*>();
  }

 private:
  void add(int node) {
    const Node& it = *dependences_.nodes[node];
    const int64_t* bucket = it.get<int64_t>(spmd::kBucketAttribute);
    const bool joins = bucket && bucket_ && *bucket == *bucket_;
    bucket_ = bucket ? std::optional(*bucket) : std::nullopt;
    if (!joins) units_.emplace_back();
    Unit& unit = units_.back();
    unit_of_.push_back(static_cast<int>(units_.size()) - 1);
    unit.nodes.push_back(node);
    unit.communicates = it.domain == spmd::kCommDomain;
    unit.in_order = it.is("Send", spmd::kCommDomain) || it.is("Recv", spmd::kCommDomain);
    if (unit.communicates && has_queues(prices_.machine().device)) {
      const std::vector<AxisRef> axes = parse_axes(spmd::read_collective(it, program_.mesh).axes, program_.mesh);
      const auto number = static_cast<int>(queues_.size());
      unit.queue = queues_.try_emplace(queue_of(axes, program_.mesh), number).first->second;
    }
    unit.seconds += seconds_of(it, program_, prices_);
    for (const Value* home : live_.made_by(it)) unit.bytes += live_.of(home);
  }

  // Times of computation, and how far forward each unit may go.
  void find_bounds() {
    double now = 0;
    for (int u = 0; u < static_cast<int>(units_.size()); ++u) {
      Unit& unit = units_[u];
      unit.begin = unit.start = now;
      unit.place = u;
      if (!unit.communicates) now += unit.seconds;
      unit.from_states = !unit.in_order;  // nobody knows what a message brings
      for (int node : unit.nodes)
        for (const Value* operand : dependences_.nodes[node]->inputs)
          unit.from_states = unit.from_states && !(operand && operand->kind == ValueKind::input);
      for (int maker : before_[u]) {
        unit.from_states = unit.from_states && units_[maker].from_states;
        unit.earliest = std::max(unit.earliest, units_[maker].from_states ? units_[maker].earliest : maker + 1);
      }
    }
  }

  // The bytes that are live while each unit runs, and how many may be.
  void find_memory() {
    // By home: the unit that makes it, and the last that reads it.
    std::map<const Value*, std::pair<int, int>> spans;
    const auto touch = [&](const Value* home, int unit) {
      spans.try_emplace(home, unit, unit).first->second.second = unit;
    };
    for (size_t node = 0; node < dependences_.nodes.size(); ++node) {
      for (const Value* home : live_.made_by(*dependences_.nodes[node])) touch(home, unit_of_[node]);
      for (const Value* home : live_.read_by(*dependences_.nodes[node])) touch(home, unit_of_[node]);
    }
    for (const Value* home : live_.kept()) touch(home, static_cast<int>(units_.size()) - 1);
    std::vector<double> change(units_.size() + 1);
    for (const auto& [home, span] : spans) {
      change[span.first] += live_.of(home);
      change[span.second + 1] -= live_.of(home);
    }
    double now = 0, peak = 0;
    for (size_t u = 0; u < units_.size(); ++u) {
      bytes_at_.push_back(now += change[u]);
      peak = std::max(peak, now);
    }
    most_ = peak + std::max(peak / 20, static_cast<double>(1 << 20));
  }

  // Such as gathers of stored parameters. Others start as soon as they can in the order given (passes/order.h).
  bool may_move(int u) const {
    return units_[u].communicates && units_[u].from_states && !units_[u].in_order && !after_[u].empty();
  }

  // When those that do not move take place.
  void take_turns() {
    std::map<int, double> free;
    for (int u = 0; u < static_cast<int>(units_.size()); ++u) {
      Unit& unit = units_[u];
      if (!unit.communicates || may_move(u)) continue;
      double& next = free[unit.queue];
      unit.start = std::max(next, unit.begin);
      next = unit.start + unit.seconds;
      busy_[unit.queue].add(unit.start, next);
    }
  }

  // What is computed from states alone runs before the first of its readers that has moved.
  void go_with_readers(int u) {
    Unit& unit = units_[u];
    if (!unit.from_states) return;
    for (int reader : after_[u])
      if (units_[reader].place < unit.place) {
        unit.place = units_[reader].place;
        unit.start = units_[reader].start;
      }
  }

  void move(int u) {
    Unit& unit = units_[u];
    double end = std::numeric_limits<double>::infinity();
    for (int reader : after_[u]) end = std::min(end, units_[reader].start);
    const double start = std::max(busy_[unit.queue].latest(end, kRoom * unit.seconds), end - kMostAhead * unit.seconds);
    int place = u;
    while (place > unit.earliest && units_[place].begin > start && bytes_at_[place - 1] + unit.bytes <= most_) --place;
    for (int at = place; at < u; ++at) bytes_at_[at] += unit.bytes;
    unit.place = place;
    unit.start = std::min(unit.begin, std::max(start, units_[place].begin));
    busy_[unit.queue].add(unit.start, unit.start + unit.seconds);
  }

  // Behind the end of the communications that make its operands, since a rank would wait for these instead of
  // computing; but not behind a node that computes with the result.
  void delay_behind_operands() {
    const int count = static_cast<int>(units_.size());
    std::vector<int> last(units_.size(), count);
    for (int u = count - 1; u >= 0; --u)
      for (int reader : after_[u])
        last[u] = std::min(last[u], units_[reader].communicates ? last[reader] : units_[reader].place);
    for (int u = 0; u < count; ++u) {
      Unit& unit = units_[u];
      if (!unit.communicates || unit.in_order) continue;
      double begin = 0;
      for (int maker : before_[u])
        if (units_[maker].communicates) begin = std::max(begin, units_[maker].start + units_[maker].seconds);
      int place = unit.place;
      while (place < last[u] && units_[place].begin < begin) ++place;
      if (place <= unit.place) continue;
      unit.place = place;
      unit.start = begin;
    }
  }

  std::vector<Node*> arranged() const {
    using Turn = std::tuple<int, bool, int>;  // place, whether it has not moved, unit
    const auto turn_of = [&](int u) { return Turn(units_[u].place, units_[u].place == u, u); };
    std::vector<size_t> missing;
    std::set<Turn> ready;
    for (int u = 0; u < static_cast<int>(units_.size()); ++u) {
      missing.push_back(before_[u].size());
      if (missing.back() == 0) ready.insert(turn_of(u));
    }
    std::vector<Node*> order;
    while (!ready.empty()) {
      const int u = std::get<2>(*ready.begin());
      ready.erase(ready.begin());
      for (int node : units_[u].nodes) order.push_back(dependences_.nodes[node]);
      for (int later : after_[u])
        if (--missing[later] == 0) ready.insert(turn_of(later));
    }
    check(order.size() == dependences_.nodes.size(), "communications move without a cycle");
    return order;
  }

  const Program& program_;
  const cost::Prices& prices_;
  const Dependences dependences_;
  const LiveBytes live_;
  std::vector<Unit> units_;  // in the order given
  std::vector<int> unit_of_;
  std::vector<std::vector<int>> before_, after_;  // by unit
  std::optional<int64_t> bucket_;                 // of the last node added
  std::vector<double> bytes_at_;                  // by unit
  double most_ = 0;
  std::map<std::string, int> queues_;  // by name (mesh/queues.h)
  std::map<int, Busy> busy_;           // by queue
};

}  // namespace

void early_starts(Program& program, Context& context) {
  if (!context.early_starts || !context.prices || !context.prices->overlaps() || flow::has_flow(*program.graph)) return;
  if (context.cells) return;  // one clock for all nodes says nothing of stages
  const std::vector<Node*> order = EarlyStarts(program, *context.prices).run();
  if (!order.empty()) program.graph->arrange(order);
}

}  // namespace tessera::passes
