#include "tessera/whatif/changes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "tessera/base/error.h"
#include "tessera/cost/links.h"
#include "tessera/ir/collective.h"
#include "tessera/ir/glob.h"
#include "tessera/mesh/group.h"
#include "tessera/sim/transfer.h"
#include "tessera/whatif/programs.h"
#include "tessera/whatif/statistics.h"

namespace tessera::whatif {
namespace {

// A step of a class, for what changes it.
struct Place {
  sim::ClassProgram& program;
  size_t step;

  const bind::StepInfo& info() const { return program.machine->steps[step]->info; }
};

// Of a communication, the work before it (replayed()).
bool starts_communication(const bind::StepInfo& info) {
  return !info.communication && collective_of_op(info.op);
}

void on_each_step(sim::Workload& workload, const std::function<void(const Place&)>& what) {
  for (sim::ClassProgram& program : workload.programs)
    for (size_t s = 0; s < program.machine->steps.size(); ++s) what({program, s});
}

// Calls `what` for the steps that a pattern names. Throws if there are none.
void on_matches(sim::Workload& workload, const std::string& pattern, const std::string& source,
                const std::function<void(const Place&)>& what) {
  bool any = false;
  std::set<std::string> kinds;
  on_each_step(workload, [&](const Place& place) {
    const bind::StepInfo& info = place.info();
    kinds.insert(info.op);
    if (!glob_matches(pattern, info.op) && !glob_matches(pattern, info.name)) return;
    any = true;
    what(place);
  });
  if (any) return;
  const std::vector<std::string_view> names(kinds.begin(), kinds.end());
  fail("whatif", "{} has no operator '{}'{}; its kinds of operators are: {}; or give the name of one", source, pattern,
       nearest_names(names, pattern), fmt::join(kinds, ", "));
}

void scale_operators(const WhatIfChanges& changes, sim::Workload& workload, const std::string& source) {
  for (const auto& [pattern, factor] : changes.scale_operators)
    on_matches(workload, pattern, source, [factor = factor](const Place& place) {
      (place.info().communication ? place.program.transfers[place.step].seconds : place.program.seconds[place.step]) *=
          factor;
    });
}

void drop(const WhatIfChanges& changes, sim::Workload& workload, const std::string& source) {
  for (const std::string& pattern : changes.drop)
    on_matches(workload, pattern, source, [](const Place& place) {
      if (place.info().communication)
        drop_communication(place.program, place.step);
      else
        place.program.seconds[place.step] = 0;
    });
}

void insert(const WhatIfChanges& changes, sim::Workload& workload, const std::string& source) {
  std::map<int, std::vector<Insertion>> insertions;  // by the class' rank
  for (const auto& [pattern, ms] : changes.insert)
    on_matches(workload, pattern, source, [&, ms = ms](const Place& place) {
      if (starts_communication(place.info())) return;
      insertions[place.program.rank].push_back(
          {static_cast<int>(place.step), true, "inserted", "after " + place.info().name, ms * 1e-3});
    });
  for (sim::ClassProgram& program : workload.programs) program = with_insertions(program, insertions[program.rank]);
}

// How links of other bandwidths change the times of transfers.
class Rescaling {
 public:
  Rescaling(const WhatIfChanges& changes, const Links& links, const sim::Workload& workload)
      : changes_(changes), links_(links), workload_(workload), scaled_(links.topology) {
    machine_.source = "whatif";
    for (const auto& [name, factor] : changes.scale_links)
      for (Topology::Axis& axis : scaled_.axes)
        for (LinkLevel& level : axis.levels)
          if (level.name == name) level.bandwidth *= factor;
    for (const sim::ClassProgram& program : workload.programs)
      for (size_t s = 0; s < program.transfers.size(); ++s)
        if (const sim::Transfer& transfer = program.transfers[s]; transfer.seconds > 0)
          points_[key(program, s)].emplace_back(transfer.bytes, transfer.seconds);
  }

  // By the model of the topology; without one, all but the fixed part of what such transfers take.
  void rescale(sim::ClassProgram& program, size_t step) const {
    sim::Transfer& transfer = program.transfers[step];
    if (transfer.levels.empty()) return;
    const bind::Step& of = *program.machine->steps[step];
    if (!cost::levels_of(parse_axes(of.info.axes, links_.mesh), links_.mesh, links_.topology).empty()) {
      const double usual = modelled(of, links_.topology);
      if (usual > 0) transfer.seconds *= modelled(of, scaled_) / usual;
      return;
    }
    const double fixed = std::min(line_through(points_.at(key(program, step))).fixed, transfer.seconds);
    for (const auto& [name, factor] : changes_.scale_links)
      if (name == transfer.levels.front()) transfer.seconds = fixed + (transfer.seconds - fixed) / factor;
  }

 private:
  using Key = std::pair<std::string, std::vector<std::string>>;  // operator and axes
  static Key key(const sim::ClassProgram& program, size_t step) {
    const bind::StepInfo& info = program.machine->steps[step]->info;
    return {info.op, info.axes};
  }
  double modelled(const bind::Step& step, const Topology& topology) const {
    const sim::Setting setting{links_.mesh, topology, machine_, workload_.ranks.of, links_.engine};
    return sim::transfer_of(step, setting).seconds;
  }

  const WhatIfChanges& changes_;
  const Links& links_;
  const sim::Workload& workload_;
  Topology scaled_;
  MachineModel machine_;  // of which nothing is measured
  std::map<Key, std::vector<std::pair<double, double>>> points_;
};

void scale_links(const WhatIfChanges& changes, sim::Workload& workload, const Links& links, const std::string& source) {
  if (changes.scale_links.empty()) return;
  std::set<std::string> names;
  on_each_step(workload, [&](const Place& place) {
    const std::vector<std::string>& levels = place.program.transfers[place.step].levels;
    names.insert(levels.begin(), levels.end());
  });
  for (const auto& [name, factor] : changes.scale_links)
    if (!names.contains(name)) {
      if (names.empty()) fail("whatif", "{} has no communication, so that link:{} is nothing to scale", source, name);
      fail("whatif", "no communication of {} uses links '{}'; its links are: {}", source, name, fmt::join(names, ", "));
    }
  const Rescaling rescaling(changes, links, workload);
  on_each_step(workload, [&](const Place& place) {
    if (place.program.transfers[place.step].seconds > 0) rescaling.rescale(place.program, place.step);
  });
}

}  // namespace

void apply(const WhatIfChanges& changes, sim::Workload& workload, const Links& links, const std::string& source) {
  scale_links(changes, workload, links, source);
  scale_operators(changes, workload, source);
  drop(changes, workload, source);
  insert(changes, workload, source);
  if (changes.overlap == WhatIfChanges::Overlap::off)
    for (sim::ClassProgram& program : workload.programs) program = without_overlap(program);
  for (size_t c = 0; c < workload.programs.size(); ++c) workload.steps[c].resize(workload.programs[c].seconds.size());
}

}  // namespace tessera::whatif
