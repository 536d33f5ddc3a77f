#include "tessera/ir/collective.h"

#include <algorithm>
#include <array>

#include "tessera/base/error.h"

namespace tessera {
namespace {

constexpr std::array<CollectiveTraits, 12> kCollectives = {{
    {.kind = Collective::all_reduce,
     .op = "AllReduce",
     .name = "all_reduce",
     .reduces = true,
     .passes = 2,
     .by_levels = true,
     .joins = true},
    {.kind = Collective::all_gather,
     .op = "AllGather",
     .name = "all_gather",
     .block = BlockSide::operand,
     .passes = 1,
     .by_levels = true,
     .joins = true},
    {.kind = Collective::reduce_scatter,
     .op = "ReduceScatter",
     .name = "reduce_scatter",
     .block = BlockSide::result,
     .reduces = true,
     .passes = 1,
     .by_levels = true,
     .joins = true},
    {.kind = Collective::all_to_all, .op = "AllToAll", .name = "all_to_all", .block = BlockSide::both, .passes = 1},
    {.kind = Collective::broadcast, .op = "Broadcast", .name = "broadcast", .root = RootRole::gives},
    {.kind = Collective::reduce, .op = "Reduce", .name = "reduce", .root = RootRole::gets, .reduces = true},
    {.kind = Collective::gather,
     .op = "Gather",
     .name = "gather",
     .block = BlockSide::operand,
     .root = RootRole::gets,
     .passes = 1},
    {.kind = Collective::scatter,
     .op = "Scatter",
     .name = "scatter",
     .block = BlockSide::result,
     .root = RootRole::gives,
     .passes = 1},
    {.kind = Collective::permute, .op = "Permute", .name = "permute"},
    {.kind = Collective::send, .op = "Send", .name = "send", .message = true},
    {.kind = Collective::recv, .op = "Recv", .name = "recv", .message = true},
    {.kind = Collective::barrier, .op = "Barrier", .name = "barrier"},
}};

}  // namespace

std::span<const CollectiveTraits> collectives() {
  return kCollectives;
}

const CollectiveTraits& traits_of(Collective kind) {
  const auto index = static_cast<size_t>(kind);
  if (index < kCollectives.size() && kCollectives[index].kind == kind) return kCollectives[index];
  fail("comm", "operation kind {} does not exist", static_cast<int>(kind));
}

std::string_view name_of(Collective kind) {
  return traits_of(kind).name;
}

std::optional<Collective> collective_of_op(std::string_view op) {
  const auto found =
      std::find_if(kCollectives.begin(), kCollectives.end(), [&](const CollectiveTraits& row) { return row.op == op; });
  return found == kCollectives.end() ? std::nullopt : std::optional(found->kind);
}

}  // namespace tessera
