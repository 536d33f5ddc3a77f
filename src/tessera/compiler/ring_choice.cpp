#include "tessera/compiler/ring_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "tessera/base/time_text.h"
#include "tessera/ir/text.h"
#include "tessera/passes/product_pieces.h"

namespace tessera::compiler {
namespace {

using passes::ProductCollective;
using passes::RingChoice;
using passes::RingForm;
using passes::RingPrice;

// The step must get shorter by this share.
constexpr double kWorthwhile = 0.02;
// Prices are rough: so many forms up to so much dearer are simulated, too.
constexpr size_t kMostOthers = 2;
constexpr double kNearlyAsCheap = 1.1;
// Larger rings are left out: programs, and the time that plans take, grow with them.
constexpr int64_t kMostMembers = 32;
// So are those of large programs, whose steps would take minutes to simulate: nodes times members.
constexpr int64_t kMostWork = 5000;

const std::vector<RingForm>& forms() {
  static const std::vector<RingForm> all = {{false, 1}, {true, 1}, {false, 2}, {true, 2}, {false, 4}};
  return all;
}

std::string shapes_of(const Node& node) {
  std::string text = node.op_type;
  for (const auto* values : {&node.inputs, &node.outputs})
    for (const Value* value : *values)
      text +=
          value && value->has_shape() ? fmt::format(" {}{}", name_of(value->dtype()), to_string(value->shape())) : " _";
  return text;
}

// Candidates that are alike, and what is known of them.
struct Group {
  std::vector<const ProductCollective*> members;
  RingForm form;
  RingPrice price;
  std::vector<RingForm> others;  // forms that are nearly as cheap
  RingOutcome outcome;

  void add_to(std::vector<RingChoice>& choices) const {
    for (const ProductCollective* each : members) choices.push_back({each->at, form});
  }
};

class Choice {
 public:
  Choice(const spmd::Program& program, const cost::Prices* prices, const StepSeconds& seconds)
      : program_(program), prices_(prices), seconds_(seconds), all_(passes::product_collectives(program)) {
    std::map<std::string, size_t> known;
    for (const ProductCollective& each : all_) {
      const auto [found, fresh] = known.emplace(likeness(each), groups_.size());
      if (fresh) groups_.emplace_back();
      groups_[found->second].members.push_back(&each);
    }
    for (Group& group : groups_) describe(group);
  }

  std::vector<RingChoice> all(std::vector<RingOutcome>& outcomes) {
    std::vector<RingChoice> choices;
    for (Group& group : groups_) {
      group.outcome.taken = group.members.front()->is_candidate();
      if (group.outcome.taken) group.add_to(choices);
      group.outcome.why = group.outcome.taken ? str(group.form) : std::get<std::string>(group.members.front()->site);
      outcomes.push_back(std::move(group.outcome));
    }
    return choices;
  }

  std::vector<RingChoice> run(std::vector<RingOutcome>& outcomes) {
    for (Group& group : groups_)
      if (pays_alone(group)) taken_.push_back(&group);
    if (!taken_.empty()) weigh();
    std::vector<RingChoice> choices;
    for (const Group* group : taken_) group->add_to(choices);
    for (Group& group : groups_) outcomes.push_back(std::move(group.outcome));
    return choices;
  }

 private:
  const Node& node_of(const ProductCollective& each) const { return *program_.graph->nodes()[each.at]; }

  std::string likeness(const ProductCollective& each) const {
    const Node& node = node_of(each);
    std::string text = shapes_of(node);
    if (const auto* axes = node.get<std::vector<std::string>>("axes"))
      for (const std::string& axis : *axes) text += " " + axis;
    if (!each.is_candidate()) return text + " " + std::get<std::string>(each.site);
    for (const Node* product : each.products()) text += "\n" + shapes_of(*product);
    return text;
  }

  void describe(Group& group) const {
    const Node& first = node_of(*group.members.front());
    std::string axes;
    if (const auto* names = first.get<std::vector<std::string>>("axes"))
      for (const std::string& axis : *names) axes += (axes.empty() ? "" : ",") + axis;
    const auto others = static_cast<int64_t>(group.members.size()) - 1;
    group.outcome.collective = fmt::format("{} over {} of '{}'{}", first.op_type, axes,
                                           program_.name_of(first.input(0) ? first.input(0) : first.output(0)),
                                           others == 0   ? ""
                                           : others == 1 ? " and 1 other"
                                                         : fmt::format(" and {} others", others));
    group.outcome.count = others + 1;
    group.outcome.bytes = first.input(0) ? passes::bytes_of(program_, first) : 0;
  }

  // Whether a ring takes less time than the collective and its products, if there is nothing else.
  bool pays_alone(Group& group) {
    const ProductCollective& first = *group.members.front();
    std::string& why = group.outcome.why;
    if (!first.is_candidate()) return why = std::get<std::string>(first.site), false;
    if (!prices_) return why = "no machine is named by whose times to choose", false;
    if (!prices_->overlaps()) return why = "transfers move only while ranks wait for them", false;
    if (ranks_of(first.axes()) > kMostMembers)
      return why = fmt::format("its group has more than {} members", kMostMembers), false;
    if (const auto nodes = static_cast<int64_t>(program_.graph->nodes().size());
        nodes * ranks_of(first.axes()) > kMostWork)
      return why = fmt::format("{} nodes are too many to simulate the step with rings of {}", nodes,
                               ranks_of(first.axes())),
             false;
    std::vector<std::pair<RingPrice, RingForm>> prices;
    for (const RingForm& form : forms()) prices.emplace_back(price_of(program_, first, form, *prices_), form);
    std::stable_sort(prices.begin(), prices.end(),
                     [](const auto& a, const auto& b) { return a.first.ring < b.first.ring; });
    std::tie(group.price, group.form) = prices.front();
    for (size_t i = 1; i < prices.size() && group.others.size() < kMostOthers; ++i)
      if (prices[i].first.ring < kNearlyAsCheap * group.price.ring) group.others.push_back(prices[i].second);
    if (group.price.gain() > 0) return true;
    why = fmt::format("by itself, a ring would take {} instead of {}: products take {} in pieces, {} whole",
                      time_text(group.price.ring), time_text(group.price.apart()), time_text(group.price.pieces),
                      time_text(group.price.products));
    return false;
  }

  double seconds_with(const std::vector<Group*>& groups) const {
    std::vector<RingChoice> choices;
    for (const Group* group : groups) group->add_to(choices);
    return seconds_(choices);
  }

  // The least time of a step in which these candidates have one of their other forms; they keep the best.
  double try_others(Group& group, double best) const {
    for (const RingForm& other : group.others) {
      const RingForm was = std::exchange(group.form, other);
      if (const double time = seconds_with(taken_); time < best)
        best = time;
      else
        group.form = was;
    }
    return best;
  }

  // Simulates the step: without rings, with all, and without each in turn, those first that gain least by themselves.
  void weigh() {
    const double without = seconds_with({});
    std::stable_sort(taken_.begin(), taken_.end(), [](const Group* a, const Group* b) {
      return a->price.gain() * static_cast<double>(a->members.size()) <
             b->price.gain() * static_cast<double>(b->members.size());
    });
    double best = seconds_with(taken_);
    for (const std::vector<Group*> tried = taken_; Group * group : tried) {
      std::vector<Group*> rest;
      for (Group* other : taken_)
        if (other != group) rest.push_back(other);
      const double time = rest.empty() ? without : seconds_with(rest);
      if (time <= best) {
        group->outcome.why =
            fmt::format("in a ring, the step would take {} instead of {}", time_text(best), time_text(time));
        taken_ = rest;
        best = time;
      } else {
        group->outcome.why =
            fmt::format("without it, the step would take {} instead of {}", time_text(time), time_text(best));
      }
    }
    for (Group* group : taken_) best = try_others(*group, best);
    for (Group* group : taken_) {
      group->outcome.taken = best <= (1 - kWorthwhile) * without;
      group->outcome.why = str(group->form) + "; " + group->outcome.why;
      if (!group->outcome.taken)
        group->outcome.why = fmt::format("rings would shorten the step only from {} to {}, less than {:.0f} %",
                                         time_text(without), time_text(best), kWorthwhile * 100);
    }
    if (!taken_.empty() && !taken_.front()->outcome.taken) taken_.clear();
  }

  const spmd::Program& program_;
  const cost::Prices* prices_;
  const StepSeconds seconds_;
  const std::vector<ProductCollective> all_;
  std::vector<Group> groups_;
  std::vector<Group*> taken_;
};

}  // namespace

std::vector<passes::RingChoice> choose_rings(const spmd::Program& program, const cost::Prices* prices,
                                             const StepSeconds& seconds, std::vector<RingOutcome>& outcomes) {
  return Choice(program, prices, seconds).run(outcomes);
}

std::vector<RingChoice> all_rings(const spmd::Program& program, std::vector<RingOutcome>& outcomes) {
  return Choice(program, nullptr, {}).all(outcomes);
}

}  // namespace tessera::compiler
