#include "tessera/sim/meetings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <optional>

#include "tessera/mesh/group.h"

namespace tessera::sim {

std::vector<int> MeetingRegistry::next_of(int of_class, int step) {
  const ClassProgram& program = programs_[static_cast<size_t>(of_class)];
  const bind::Step& it = *program.machine->steps[static_cast<size_t>(step)];
  const Transfer& transfer = program.transfers[static_cast<size_t>(step)];
  const std::optional<Collective> kind = collective_of_op(it.info.op);
  const std::string axes = fmt::format("{}", fmt::join(it.info.axes, ","));
  if (kind == Collective::send) {
    const int to = class_of(it.info.to);
    if (to < 0) return {};
    const std::string name = fmt::format("{} {}>{}", axes, of_class, to);
    return {next(of_class, name, "sender", {of_class}, {of_class, to}, transfer, {of_class, to})};
  }
  if (kind == Collective::recv) {
    const int from = class_of(it.info.from);
    if (from < 0) return {};
    const std::string name = fmt::format("{} {}>{}", axes, from, of_class);
    return {next(of_class, name, "receiver", {from}, {from, of_class}, transfer, {from, of_class})};
  }
  if (kind == Collective::permute && !setting_.whole_permutations) return permute(of_class, it, axes, transfer);
  const Group& group = group_over(program.rank, it.info.axes);
  return {next(of_class, group.name, "member", group.classes, group.classes, transfer, {})};
}

std::vector<int> MeetingRegistry::permute(int of_class, const bind::Step& step, const std::string& axes,
                                          const Transfer& transfer) {
  const int from = class_of(step.info.from), to = class_of(step.info.to);
  const int64_t number = met_[static_cast<size_t>(of_class)]["permute " + axes]++;
  std::vector<int> found;
  const auto meet = [&](int sender, int receiver) {
    const std::set<int> both{sender, receiver};
    const std::string name = fmt::format("permute {} {}>{}", axes, sender, receiver);
    found.push_back(numbered(name, number, both, both, transfer, {sender, receiver}));
  };
  if (from >= 0) meet(from, of_class);
  const bool to_itself = to == of_class && from == of_class;
  if (to >= 0 && !to_itself) meet(of_class, to);
  return found;
}

int MeetingRegistry::next(int of_class, const std::string& name, const std::string& side, const std::set<int>& needed,
                          const std::set<int>& members, const Transfer& transfer, const Way& way) {
  const int64_t number = met_[static_cast<size_t>(of_class)][fmt::format("{} {}", name, side)]++;
  return numbered(name, number, needed, members, transfer, way);
}

int MeetingRegistry::numbered(const std::string& name, int64_t number, const std::set<int>& needed,
                              const std::set<int>& members, const Transfer& transfer, const Way& way) {
  std::map<int64_t, int>& named = ids_[name];
  const auto [found, fresh] = named.try_emplace(number, static_cast<int>(meetings_.size()));
  if (!fresh) return found->second;
  Meeting made;
  made.id = found->second;
  if (found != named.begin()) made.previous = std::prev(found)->second;
  made.transfer = transfer;
  made.left = transfer.seconds;
  made.missing = needed;
  made.members.assign(members.begin(), members.end());
  if (way.from >= 0) {
    made.ends = {{way.from, false}, {way.to, true}};
  } else {
    for (int member : members) made.ends.insert(made.ends.end(), {{member, false}, {member, true}});
  }
  meetings_.push_back(std::move(made));
  return found->second;
}

const MeetingRegistry::Group& MeetingRegistry::group_over(int rank, const std::vector<std::string>& axes) {
  const auto [found, fresh] = groups_.try_emplace({rank, axes});
  Group& group = found->second;
  if (!fresh) return group;
  for (int member : group_of(rank, parse_axes(axes, setting_.mesh), setting_.mesh))
    group.classes.insert(class_of(member));
  group.name = fmt::format("{} {}", fmt::join(axes, ","), fmt::join(group.classes, ","));
  return group;
}

}  // namespace tessera::sim
