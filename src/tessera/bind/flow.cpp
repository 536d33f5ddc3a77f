#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/bind/frame.h"

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

const Node* maker_of(const NodeGroup& group) {
  for (const Value* result : group.outputs)
    if (result) return result->producer;
  return group.root;
}

}  // namespace

void Binding::find_regions() {
  Frame& frame = *frame_;
  frame.flow = flow::flow_of(*program_.graph);
  frame.region_of_group.assign(frame.groups.size(), -1);
  if (frame.flow.empty()) return;
  for (size_t g = 0; g < frame.groups.size(); ++g) frame.region_of_group[g] = frame.flow.of(maker_of(frame.groups[g]));
}

// No step leaves its branch or its part of an iteration, and no communication is under way where one ends.
std::vector<Action> Binding::order_by_sections(const Tasks& of) const {
  const Frame& frame = *frame_;
  const auto is_first = [&](size_t g) {
    const Node& node = *frame.groups[g].root;
    return flow::is(node, "Loop") || flow::is(node, "Carry");
  };
  std::vector<int> section(of.tasks.size(), 0);
  for (size_t g = 1; g < section.size(); ++g) {
    const Node& before = *frame.groups[g - 1].root;
    const bool begins = frame.region_of_group[g] != frame.region_of_group[g - 1] || is_first(g) != is_first(g - 1) ||
                        flow::is(before, "Branch") || flow::is(before, "Again");
    section[g] = section[g - 1] + (begins ? 1 : 0);
  }
  std::vector<std::set<int>> touched_in(of.memories.size());  // sections, by memory
  for (size_t g = 0; g < section.size(); ++g)
    for (const auto* memories : {&of.tasks[g].reads, &of.tasks[g].writes})
      for (int memory : *memories) touched_in[memory].insert(section[g]);
  std::vector<Memory> memories = of.memories;
  for (size_t m = 0; m < memories.size(); ++m) memories[m].kept |= touched_in[m].size() > 1;
  std::vector<Action> actions;
  for (size_t first = 0; first < section.size();) {
    size_t end = first;
    while (end < section.size() && section[end] == section[first]) ++end;
    const std::vector<Task> tasks(of.tasks.begin() + static_cast<long>(first),
                                  of.tasks.begin() + static_cast<long>(end));
    for (Action action : schedule(tasks, memories, options_.prefetch)) {
      action.task += static_cast<int>(first);
      actions.push_back(action);
    }
    first = end;
  }
  return actions;
}

// What is made before a loop and read in it is read by its last iteration, too.
void Binding::note_uses_by_later_iterations() {
  Frame& frame = *frame_;
  if (frame.flow.empty()) return;
  const auto& regions = frame.flow.regions;
  frame.region_spans.assign(regions.size(), {static_cast<int>(frame.actions.size()), -1});
  std::map<const Value*, int> made_in;
  for (size_t g = 0; g < frame.groups.size(); ++g) {
    for (int region = frame.region_of_group[g]; region >= 0; region = regions[region].parent) {
      Span& span = frame.region_spans[region];
      span = {std::min(span.begin, frame.spans[g].begin), std::max(span.end, frame.spans[g].end)};
    }
    for (const Value* result : frame.groups[g].outputs)
      if (result) made_in.emplace(home(result), frame.region_of_group[g]);
  }
  const auto add_end = [&](const Value* value, int region) {
    const int end = frame.region_spans[region].end;
    frame.uses[value].push_back({end, end});
  };
  for (size_t g = 0; g < frame.groups.size(); ++g) {
    const Node& root = *frame.groups[g].root;
    if (flow::is(root, "Loop") || flow::is(root, "Carry")) add_end(root.outputs[0], frame.region_of_group[g]);
    for (const Value* operand : frame.groups[g].inputs) {
      if (!operand) continue;
      const auto made = made_in.find(home(operand));
      const int from = made == made_in.end() ? -1 : made->second;
      for (int region = frame.region_of_group[g]; region >= 0 && !frame.flow.is_within(from, region);
           region = regions[region].parent)
        if (regions[region].is_loop()) add_end(home(operand), region);
    }
  }
}

// Buffers that live as long as their loop: two for each carried value, and those of what iterations write row by row.
void Binding::place_carried() {
  Frame& frame = *frame_;
  machine_.loops.clear();
  if (frame.flow.empty()) return;
  std::map<const Value*, int> nexts;  // by home: Nexts that take it
  for (const NodeGroup& group : frame.groups)
    if (flow::is(*group.root, "Next")) ++nexts[home(group.root->input(0))];
  std::vector<int> loop_of(frame.flow.regions.size(), -1);
  for (size_t r = 0; r < loop_of.size(); ++r) {
    if (!frame.flow.regions[r].is_loop()) continue;
    loop_of[r] = static_cast<int>(machine_.loops.size());
    machine_.loops.push_back({.name = frame.flow.regions[r].begin->outputs[0]->name});
  }
  const auto buffer = [&](const Value* value, int region, std::string_view what) {
    const Span& span = frame.region_spans[region];
    const int made = new_buffer(desc(value).bytes(), {span.begin, std::max(span.end, last_use(value))},
                                {value, fmt::format("{}'{}'", what, value->name)});
    return Location{Location::Where::arena, static_cast<size_t>(made), nullptr, 0};
  };
  for (size_t g = 0; g < frame.groups.size(); ++g) {
    const Node& node = *frame.groups[g].root;
    const int region = frame.region_of_group[g];
    if (flow::is(node, "Carry")) frame.direct[node.outputs[0]] = buffer(node.outputs[0], region, "");
    if (flow::is(node, "Stack") && !frame.direct.contains(home(node.outputs[0])))
      frame.direct[home(node.outputs[0])] = buffer(home(node.outputs[0]), region, "");
    if (!flow::is(node, "Next")) continue;
    const Value *value = home(node.input(0)), *carried = node.input(2), *held = node.outputs[0];
    const Location& now = frame.direct.at(carried);
    // Both live as long as the value after the loop, which may be in either.
    const Location next = frame.direct[held] = buffer(carried, region, "the next ");
    machine_.loops[loop_of[region]].exchanged.emplace_back(now.index, next.index);
    const bool is_made_here = value->producer && frame.flow.of(value->producer) == region &&
                              !flow::is(*value->producer, "Carry") && !flow::is(*value->producer, "Loop");
    const bool fits =
        !frame.blocked.contains(value) && desc(value).strides.empty() && desc(value).bytes() == desc(carried).bytes();
    if (is_made_here && fits && nexts[value] == 1 && !options_.keep_all) frame.direct.emplace(value, next);
  }
}

// Made from the order of the actions, once all places are known.
void Binding::control() {
  const Frame& frame = *frame_;
  machine_.controls.clear();
  machine_.branches.clear();
  if (frame.flow.empty()) return;
  using Kind = Control::Kind;
  std::vector<Control>& controls = machine_.controls;
  struct Open {
    int region, index;
    int test = -1;  // where the target of the test or the branch is still to be filled in
  };
  std::vector<Open> open;
  int loops = 0;
  const auto here = [&] { return static_cast<int>(controls.size()); };
  const auto test = [&](Open& loop) {
    if (loop.test >= 0) return;
    loop.test = here();
    controls.push_back({Kind::test, loop.index});
  };
  const auto close = [&] {
    Open& last = open.back();
    if (frame.flow.regions[last.region].is_loop()) {
      test(last);
      controls.push_back({Kind::back, last.index, last.test + 1});
    }
    controls[last.test].target = here();
    open.pop_back();
  };
  for (int a = 0; a < static_cast<int>(frame.actions.size()); ++a) {
    const int task = frame.actions[a].task, region = frame.region_of_group[task];
    const Node& node = *frame.groups[task].root;
    const Step& step = *machine_.steps[task];
    const auto place_of = [&](size_t operand) {
      return operand < step.inputs.size() ? step.inputs[operand] : Location{};
    };
    while (!open.empty() && !frame.flow.is_within(region, open.back().region)) close();
    const bool is_loop = flow::is(node, "Loop"), is_branch = flow::is(node, "Branch");
    if (!open.empty() && !flow::is(node, "Carry") && frame.flow.regions[open.back().region].is_loop())
      test(open.back());
    controls.push_back({Kind::act, a});
    if (is_loop) {
      LoopPlan& loop = machine_.loops[loops];
      loop.trips = place_of(0);
      loop.condition = place_of(1);
      loop.iteration = step.outputs[0];
      open.push_back({region, loops});
      controls.push_back({Kind::open, loops++});
    } else if (is_branch) {
      open.push_back({region, static_cast<int>(machine_.branches.size()), here()});
      controls.push_back({Kind::branch, open.back().index});
      machine_.branches.push_back({node.outputs[0]->name, step.inputs[0], node.get_int("taken", 1) != 0});
    } else if (flow::is(node, "Again")) {
      machine_.loops[open.back().index].again = place_of(1);
      controls.push_back({Kind::ask, open.back().index});
    }
  }
  while (!open.empty()) close();
}

}  // namespace tessera::bind
