// Properties of the steps of layout changes: their collectives, their groups' messages, and the bytes that they move.
#include <algorithm>
#include <array>
#include <deque>
#include <map>

#include "tessera/spmd/reshard/reshard.h"

namespace tessera::spmd {
namespace {

// In the order of the steps' enumerators.
constexpr std::array<std::optional<Collective>, 12> kCollectives = {
    std::nullopt,           Collective::all_gather,     Collective::all_to_all,
    Collective::all_reduce, Collective::reduce_scatter, std::nullopt,
    Collective::broadcast,  Collective::reduce,         Collective::gather,
    Collective::scatter,    Collective::permute,        Collective::permute};

}  // namespace

std::optional<Collective> collective_of(ReshardKind kind) {
  return kCollectives.at(static_cast<size_t>(kind));
}

std::optional<ReshardKind> reshard_by(Collective collective) {
  const auto found = std::find(kCollectives.begin(), kCollectives.end(), collective);
  return found == kCollectives.end() ? std::nullopt
                                     : std::optional(static_cast<ReshardKind>(found - kCollectives.begin()));
}

std::vector<int64_t> targets_of(const ReshardStep& step) {
  std::vector<int64_t> targets(static_cast<size_t>(ranks_of(step.axes)), -1);
  if (step.kind != ReshardKind::reorder) {
    targets[static_cast<size_t>(step.root)] = step.to_root;
    return targets;
  }
  const auto members = static_cast<int64_t>(targets.size());
  // The piece that a member has in a layout: its indices along the axes of each part that changes, after those that
  // stay.
  auto piece = [&](int64_t member, const Sharding& layout) {
    int64_t index = 0;
    for (size_t d = 0; d < layout.dims.size(); ++d)
      for (size_t p = 0; p < layout.dims[d].parts.size(); ++p) {
        const auto &before = step.before.dims[d].parts[p].axes, &after = step.after.dims[d].parts[p].axes;
        if (before == after) continue;
        const auto& axes = layout.dims[d].parts[p].axes;
        const auto stay =
            std::mismatch(before.begin(), before.end(), after.begin(), after.end()).first - before.begin();
        for (auto axis = axes.begin() + stay; axis != axes.end(); ++axis)
          index = index * axis->size + digit_of(member, step.axes, *axis);
      }
    return index;
  };
  // A member that wants the piece that it has keeps it; the others take theirs from the first free member that has it.
  std::vector<bool> served(targets.size(), false);
  for (int64_t member = 0; member < members; ++member)
    if (piece(member, step.before) == piece(member, step.after)) {
      targets[static_cast<size_t>(member)] = member;
      served[static_cast<size_t>(member)] = true;
    }
  std::map<int64_t, std::deque<int64_t>> free;  // senders by their piece
  for (int64_t from = 0; from < members; ++from)
    if (targets[static_cast<size_t>(from)] < 0) free[piece(from, step.before)].push_back(from);
  for (int64_t to = 0; to < members; ++to) {
    if (served[static_cast<size_t>(to)]) continue;
    auto& senders = free[piece(to, step.after)];
    if (senders.empty()) continue;
    targets[static_cast<size_t>(senders.front())] = to;
    senders.pop_front();
  }
  return targets;
}

std::string ReshardStep::str(const Mesh& mesh) const {
  const auto collective = collective_of(kind);
  std::string text(collective ? traits_of(*collective).op : kind == ReshardKind::slice ? "Slice" : "Keep");
  for (size_t i = 0; i < axes.size(); ++i) text += (i ? "," : " ") + axes[i].str(mesh);
  return text;
}

Expr bytes_received(const ReshardStep& step, DType dtype, const Mesh& mesh) {
  const auto collective = collective_of(step.kind);
  if (!collective) return 0;
  int64_t ranks = 1;
  for (const AxisRef& axis : step.axes) ranks *= axis.size;
  const Expr elements = received(*collective, largest_shard(step.before, mesh), largest_shard(step.after, mesh), ranks,
                                 [](const Expr& whole, int64_t members) { return floordiv(whole, members); });
  return ceildiv(elements * bits_of(dtype), 8);
}

}  // namespace tessera::spmd
