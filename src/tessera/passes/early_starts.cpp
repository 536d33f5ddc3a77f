#include "tessera/passes/early_starts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "tessera/base/error.h"
#include "tessera/ir/flow.h"
#include "tessera/passes/dependences.h"
#include "tessera/passes/live_bytes.h"
#include "tessera/passes/node_work.h"
#include "tessera/spmd/collective_attributes.h"

namespace tessera::passes {
namespace {

using spmd::Program;

constexpr double kNever = std::numeric_limits<double>::infinity();
// A communication is given this many times the seconds that it takes alone, since others share its links.
constexpr double kRoom = 1.5;

/// A node, or the members of a bucket, which start as one.
struct Unit {
  std::vector<int> nodes;  // neighbours
  std::string axes;        // of a communication; empty: it computes
  double seconds = 0;
  double bytes = 0;         // of its results
  double begin = 0;         // if communication took no time, in the order given
  bool from_states = true;  // it depends on states and constants only
  int earliest = 0;         // the first place that it can have
  int place = 0;            // the unit before which it runs; its own number: it has not moved
  double start = 0;         // there
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
    bool any = false;
    std::map<std::string, double> next_start;  // by axes
    for (int u = static_cast<int>(units_.size()) - 1; u >= 0; --u) {
      Unit& unit = units_[u];
      if (unit.axes.empty())
        go_with_readers(u);
      else
        move(u, next_start.try_emplace(unit.axes, kNever).first->second);
      any = any || unit.place != u;
    }
    if (!any) return {};
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
    if (spmd::communication_of(it))
      unit.axes = fmt::format("{}", fmt::join(spmd::read_collective(it, program_.mesh).axes, ","));
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
      if (unit.axes.empty()) now += unit.seconds;
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
    std::map<const Value*, std::pair<int, int>>
        spans;  // by home: from the unit that makes it to the last that reads it
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

  // `next_start`: of the communication after it over the same axes.
  void move(int u, double& next_start) {
    Unit& unit = units_[u];
    double end = next_start;
    for (int reader : after_[u]) end = std::min(end, units_[reader].start);
    const double start = end - kRoom * unit.seconds;
    const bool in_turn = std::any_of(unit.nodes.begin(), unit.nodes.end(), [&](int node) {
      const Node& it = *dependences_.nodes[node];
      return it.is("Send", spmd::kCommDomain) || it.is("Recv", spmd::kCommDomain);
    });
    int place = u;
    while (!in_turn && place > unit.earliest && units_[place].begin > start &&
           bytes_at_[place - 1] + unit.bytes <= most_)
      --place;
    for (int at = place; at < u; ++at) bytes_at_[at] += unit.bytes;
    unit.place = place;
    unit.start = std::min(unit.begin, std::max(start, units_[place].begin));
    next_start = std::min(next_start, unit.start);
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
};

}  // namespace

void early_starts(Program& program, Context& context) {
  if (!context.prices || flow::has_flow(*program.graph)) return;
  const std::vector<Node*> order = EarlyStarts(program, *context.prices).run();
  if (!order.empty()) program.graph->arrange(order);
}

}  // namespace tessera::passes
