#include "tessera/bind/loops.h"

#include <fmt/format.h>

#include <algorithm>

/// Branches and loops: their steps stay together, their values live as long as any iteration needs them, and controls
/// say which step comes next.
///
/// Example: y = Loop (trips, c = x) { c = c + w } has the actions Loop, Carry, Add, Next, Again, and the controls
///
///   act Loop; open; act Carry; test → end; act Add; act Next; act Again; ask; back → Add; end
///
/// c has two buffers: Add reads one and writes the other, since the value of Next is made there, and `back` exchanges
/// them. The buffer of w, made before the loop, lives to the end of the loop, because every iteration reads it.
namespace tessera::bind {
namespace {

/// Makes the controls, action by action.
class ControlMaker {
 public:
  ControlMaker(const std::vector<NodeGroup>& groups, const Regions& regions, std::vector<LoopPlan> loops)
      : groups_(groups), regions_(regions) {
    made_.loops = std::move(loops);
  }

  void add(int action, int task, const Step& step) {
    const int region = regions_.of_group[task];
    const Node& node = *groups_[task].root;
    while (!open_.empty() && !regions_.flow.is_within(region, open_.back().region)) close();
    if (!open_.empty() && flow::role_of(node) != flow::Role::carry &&
        regions_.flow.regions[open_.back().region].is_loop())
      test(open_.back());
    made_.controls.push_back({Kind::act, action});
    if (flow::role_of(node) == flow::Role::loop)
      open_loop(region, step);
    else if (flow::role_of(node) == flow::Role::branch)
      open_branch(region, node, step);
    else if (flow::role_of(node) == flow::Role::again)
      ask(step);
  }

  Controls finish() {
    while (!open_.empty()) close();
    return std::move(made_);
  }

 private:
  using Kind = Control::Kind;
  struct Open {
    int region, index;
    int test = -1;  // the test or branch whose target is not known yet
  };

  static Location place_of(const Step& step, size_t operand) {
    return operand < step.inputs.size() ? step.inputs[operand] : Location{};
  }
  int here() const { return static_cast<int>(made_.controls.size()); }

  void open_loop(int region, const Step& step) {
    LoopPlan& loop = made_.loops[loops_];
    loop.trips = place_of(step, 0);
    loop.condition = place_of(step, 1);
    loop.iteration = step.outputs[0];
    open_.push_back({region, loops_});
    made_.controls.push_back({Kind::open, loops_++});
  }

  void open_branch(int region, const Node& node, const Step& step) {
    open_.push_back({region, static_cast<int>(made_.branches.size()), here()});
    made_.controls.push_back({Kind::branch, open_.back().index});
    made_.branches.push_back({node.outputs[0]->name, step.inputs[0], node.get_int("taken", 1) != 0});
  }

  void ask(const Step& step) {
    made_.loops[open_.back().index].again = place_of(step, 1);
    made_.controls.push_back({Kind::ask, open_.back().index});
  }

  void test(Open& loop) {
    if (loop.test >= 0) return;
    loop.test = here();
    made_.controls.push_back({Kind::test, loop.index});
  }

  void close() {
    Open& last = open_.back();
    if (regions_.flow.regions[last.region].is_loop()) {
      test(last);
      made_.controls.push_back({Kind::back, last.index, last.test + 1});
    }
    made_.controls[last.test].target = here();
    open_.pop_back();
  }

  const std::vector<NodeGroup>& groups_;
  const Regions& regions_;
  Controls made_;
  std::vector<Open> open_;
  int loops_ = 0;  // number of loops that have begun
};

}  // namespace

Carried place_carried(const Subject& subject, const std::vector<NodeGroup>& groups, const Values& values,
                      const Regions& regions, const Order& order, const Uses& uses, const Destinations& taken,
                      Arena& arena) {
  Carried carried;
  if (regions.empty()) return carried;
  const std::vector<Span> spans = spans_of_regions(regions, order.spans, order.end());
  const auto& all = regions.flow.regions;
  std::map<const Value*, int> nexts;  // for each home, the number of Nexts that read it
  for (const NodeGroup& group : groups)
    if (flow::role_of(*group.root) == flow::Role::next) ++nexts[values.home(group.root->input(0))];
  std::vector<int> loop_of(all.size(), -1);
  for (size_t r = 0; r < loop_of.size(); ++r) {
    if (!all[r].is_loop()) continue;
    loop_of[r] = static_cast<int>(carried.loops.size());
    carried.loops.push_back({.name = all[r].begin->outputs[0]->name});
  }
  const auto buffer = [&](const Value* value, int region, std::string_view what) {
    const Span& span = spans[region];
    return arena.add_place(values.type(value).bytes(), {span.begin, std::max(span.end, uses.last(values.home(value)))},
                           {value, fmt::format("{}'{}'", what, value->name)});
  };
  const auto is_placed = [&](const Value* value) { return carried.direct.contains(value) || taken.contains(value); };
  for (size_t g = 0; g < groups.size(); ++g) {
    const Node& node = *groups[g].root;
    const int region = regions.of_group[g];
    if (flow::role_of(node) == flow::Role::carry) carried.direct[node.outputs[0]] = buffer(node.outputs[0], region, "");
    if (flow::role_of(node) == flow::Role::stack && !is_placed(values.home(node.outputs[0])))
      carried.direct[values.home(node.outputs[0])] = buffer(values.home(node.outputs[0]), region, "");
    if (flow::role_of(node) != flow::Role::next) continue;
    const Value *value = values.home(node.input(0)), *now = node.input(2), *held = node.outputs[0];
    // Both buffers live as long as the value after the loop, which may be in either.
    const Location next = carried.direct[held] = buffer(now, region, "the next ");
    carried.loops[loop_of[region]].exchanged.emplace_back(carried.direct.at(now).index, next.index);
    const bool is_made_here = value->producer && regions.flow.of(value->producer) == region &&
                              flow::role_of(*value->producer) != flow::Role::carry &&
                              flow::role_of(*value->producer) != flow::Role::loop;
    const kernels::TensorDesc type = values.type(value);
    const bool fits = !values.is_blocked(value) && type.strides.empty() && type.bytes() == values.type(now).bytes();
    if (is_made_here && fits && nexts[value] == 1 && !subject.options.keep_all && !is_placed(value))
      carried.direct.emplace(value, next);
  }
  return carried;
}

Controls controls_of(const std::vector<NodeGroup>& groups, const Regions& regions, const std::vector<Action>& actions,
                     const std::vector<std::shared_ptr<Step>>& steps, std::vector<LoopPlan> loops) {
  if (regions.empty()) return {};
  ControlMaker maker(groups, regions, std::move(loops));
  for (int a = 0; a < static_cast<int>(actions.size()); ++a) maker.add(a, actions[a].task, *steps[actions[a].task]);
  return maker.finish();
}

}  // namespace tessera::bind
