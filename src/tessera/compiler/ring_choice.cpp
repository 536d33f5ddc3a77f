#include "tessera/compiler/ring_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "tessera/base/rounded_time.h"
#include "tessera/ir/text.h"
#include "tessera/passes/product_pieces.h"
#include "tessera/passes/shortened.h"
#include "tessera/spmd/collective_attributes.h"

namespace tessera::compiler {
namespace {

using passes::ProductCollective;
using passes::RingChoice;
using passes::RingForm;
using passes::RingPrice;

// The step must get shorter by this share.
constexpr double kWorthwhile = 0.02;
// Prices are rough: rings that are up to so much dearer than without are simulated, too, and so many other forms that
// are up to so much dearer than the best.
constexpr double kNearlyAsCheap = 1.1;
constexpr size_t kMostOthers = 2;
// Larger rings are left out: programs, and the time that plans take, grow with them.
constexpr int64_t kMostMembers = 32;
// The most nodes times members of a program whose steps are simulated whole, and of one that stands for another.
constexpr int64_t kMuchWork = 5000, kMostWork = 20000;

std::vector<RingForm> forms_of(const ProductCollective& candidate, const cost::Prices& prices) {
  std::vector<RingForm> all = {{false, 1}, {true, 1}, {false, 2}, {true, 2}, {false, 4}};
  if (const int64_t units = prices.far_units(candidate.axes()); units > 0)
    for (const bool both_ways : {false, true}) all.push_back({.both_ways = both_ways, .units = units});
  std::erase_if(all, [&](const RingForm& form) {
    return (form.units > 0 ? form.units : ranks_of(candidate.axes())) > kMostMembers;
  });
  const auto* reduces = std::get_if<passes::ProductReduce>(&candidate.site);
  if (!reduces || reduces->readers.empty()) return all;
  for (size_t i = 0, count = all.size(); i < count; ++i) {
    all.push_back(all[i]);
    all.back().both_halves = true;
  }
  return all;
}

// Of the program with rings for all of the largest group that may have one.
int64_t work_of(const spmd::Program& program, const std::vector<ProductCollective>& collectives) {
  int64_t most = 1;
  for (const ProductCollective& each : collectives)
    if (each.is_candidate()) most = std::max(most, std::min(ranks_of(each.axes()), kMostMembers));
  return most * static_cast<int64_t>(program.graph->nodes().size());
}

bool has_messages_or_flow(const spmd::Program& program) {
  return flow::has_flow(*program.graph) ||
         std::any_of(program.graph->nodes().begin(), program.graph->nodes().end(), [](const auto& node) {
           const auto kind = spmd::communication_of(*node);
           return kind == Collective::send || kind == Collective::recv;
         });
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
  std::string likeness;
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
  // `stands_for_more`: the program is a short form of another, and fewer trials must do.
  Choice(const spmd::Program& program, const cost::Prices* prices, const StepSeconds& seconds,
         bool stands_for_more = false)
      : program_(program),
        prices_(prices),
        seconds_(seconds),
        stands_for_more_(stands_for_more),
        all_(passes::product_collectives(program)) {
    std::map<std::string, size_t> known;
    for (const ProductCollective& each : all_) {
      const auto [found, fresh] = known.emplace(likeness(each), groups_.size());
      if (fresh) groups_.emplace_back().likeness = found->first;
      groups_[found->second].members.push_back(&each);
    }
    for (Group& group : groups_) describe(group);
  }

  int64_t work() const { return work_of(program_, all_); }

  std::vector<RingChoice> all(std::vector<RingOutcome>& outcomes) {
    std::vector<RingChoice> choices;
    for (Group& group : groups_) {
      group.outcome.taken = group.members.front()->is_candidate();
      group.form.both_halves = std::holds_alternative<passes::ProductReduce>(group.members.front()->site);
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

  // What another choice, for fewer blocks, has found for these groups.
  std::vector<RingChoice> as_in(Choice& other, std::vector<RingOutcome>& outcomes) {
    std::vector<RingOutcome> found;
    other.run(found);
    std::map<std::string, size_t> known;
    for (size_t g = 0; g < other.groups_.size(); ++g) known.emplace(other.groups_[g].likeness, g);
    std::vector<RingChoice> choices;
    for (Group& group : groups_) {
      const auto at = known.find(group.likeness);
      if (at == known.end()) {
        group.outcome.why = "no block that stands for others has it";
      } else {
        group.form = other.groups_[at->second].form;
        group.outcome.taken = found[at->second].taken;
        group.outcome.why = found[at->second].why;
      }
      if (group.outcome.taken) group.add_to(choices);
      outcomes.push_back(std::move(group.outcome));
    }
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
    const std::vector<RingForm> forms = forms_of(first, *prices_);
    if (forms.empty()) return why = fmt::format("its group has more than {} members", kMostMembers), false;
    if (work() > (stands_for_more_ ? kMostWork : kMuchWork))
      return why = fmt::format("{} nodes are too many to simulate the step with rings", program_.graph->nodes().size()),
             false;
    std::vector<std::pair<RingPrice, RingForm>> prices;
    for (const RingForm& form : forms) prices.emplace_back(price_of(program_, first, form, *prices_), form);
    std::stable_sort(prices.begin(), prices.end(),
                     [](const auto& a, const auto& b) { return a.first.ring < b.first.ring; });
    std::tie(group.price, group.form) = prices.front();
    for (size_t i = 1; !stands_for_more_ && i < prices.size() && group.others.size() < kMostOthers; ++i)
      if (prices[i].first.ring < kNearlyAsCheap * group.price.ring) group.others.push_back(prices[i].second);
    if (group.price.ring < (stands_for_more_ ? 1 : kNearlyAsCheap) * group.price.apart()) return true;
    why = fmt::format("by itself, a ring would take {} instead of {}: {}", rounded_time(group.price.ring),
                      rounded_time(group.price.apart()), group.price.pieces_text());
    return false;
  }

  double seconds_with(const std::vector<Group*>& groups) const {
    std::vector<RingChoice> choices;
    for (const Group* group : groups) group->add_to(choices);
    return seconds_(program_, choices);
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

  // Whether all rings, if each gained what it does by itself, would not shorten the step enough: so no more is
  // simulated.
  bool is_too_little_for(double without) {
    double gain = 0;
    for (const Group* group : taken_) gain += group->price.gain() * static_cast<double>(group->members.size());
    if (gain >= kWorthwhile * without) return false;
    for (Group* group : taken_)
      group->outcome.why = fmt::format("rings would shorten the step of {} by {} at most, less than {:.0f} %",
                                       rounded_time(without), rounded_time(gain), kWorthwhile * 100);
    taken_.clear();
    return true;
  }

  // Simulates the step: without rings, with all, and without each in turn, those first that gain least by themselves.
  void weigh() {
    const double without = seconds_with({});
    if (stands_for_more_ && is_too_little_for(without)) return;
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
            fmt::format("in a ring, the step would take {} instead of {}", rounded_time(best), rounded_time(time));
        taken_ = rest;
        best = time;
      } else {
        group->outcome.why =
            fmt::format("without it, the step would take {} instead of {}", rounded_time(time), rounded_time(best));
      }
    }
    for (Group* group : taken_) best = try_others(*group, best);
    for (Group* group : taken_) {
      group->outcome.taken = best <= (1 - kWorthwhile) * without;
      group->price = price_of(program_, *group->members.front(), group->form, *prices_);
      group->outcome.why = str(group->form) + ", " + group->price.pieces_text() + "; " + group->outcome.why;
      if (!group->outcome.taken)
        group->outcome.why = fmt::format("rings would shorten the step only from {} to {}, less than {:.0f} %",
                                         rounded_time(without), rounded_time(best), kWorthwhile * 100);
    }
    if (!taken_.empty() && !taken_.front()->outcome.taken) taken_.clear();
  }

  const spmd::Program& program_;
  const cost::Prices* prices_;
  const StepSeconds& seconds_;
  const bool stands_for_more_;
  const std::vector<ProductCollective> all_;
  std::vector<Group> groups_;
  std::vector<Group*> taken_;
};

}  // namespace

std::vector<passes::RingChoice> choose_rings(const spmd::Program& program, const cost::Prices* prices,
                                             const StepSeconds& seconds, bool may_shorten,
                                             std::vector<RingOutcome>& outcomes) {
  Choice whole(program, prices, seconds);
  may_shorten &= prices && prices->overlaps() && whole.work() > kMuchWork;
  if (!may_shorten || has_messages_or_flow(program)) return whole.run(outcomes);
  const spmd::Program few = passes::shortened(program);
  Choice of_few(few, prices, seconds, true);
  return whole.as_in(of_few, outcomes);
}

std::vector<RingChoice> all_rings(const spmd::Program& program, std::vector<RingOutcome>& outcomes) {
  const StepSeconds none;
  return Choice(program, nullptr, none).all(outcomes);
}

}  // namespace tessera::compiler
