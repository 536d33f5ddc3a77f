#include "tessera/proof/exchange.h"

#include <optional>

#include "tessera/ir/always_equal.h"

namespace tessera::proof {

std::vector<Held> cut_up(const Rope& all, const std::vector<Expr>& extents) {
  std::vector<Held> parts;
  Expr at = 0;
  for (const Expr& extent : extents) {
    if (auto part = all.cut(at, at + extent))
      parts.push_back(std::move(*part));
    else
      parts.push_back(
          Mixer().add("part").add(all.number()).add(all.dim()).add(fingerprint(at)).add(fingerprint(extent)).number());
    at = at + extent;
  }
  return parts;
}

namespace {

Number reduced(const Communication& communication, const Members& members) {
  Mixer mixer;
  mixer.add("reduced").add(name_of(communication.reduction));
  for (size_t m = 0; m < members.count(); ++m) mixer.add(members.given(m).number);
  return mixer.number();
}

// A member's operand, as a rope along a dimension.
Rope piece(const Members& members, size_t member, int64_t along) {
  const auto dim = static_cast<size_t>(along);
  const Held held = members.given(member);
  if (held.rope && held.rope->dim() == dim) return *held.rope;
  return {held.number, dim, members.operand_extent(member, dim)};
}

Rope gathered(const Communication& communication, const Members& members) {
  Rope all = piece(members, 0, communication.dim);
  for (size_t m = 1; m < members.count(); ++m) all.append(piece(members, m, communication.dim));
  return all;
}

// The extents of members in a dimension, according to the results.
std::vector<Expr> taken(const Members& members, int64_t dim) {
  std::vector<Expr> extents;
  for (size_t m = 0; m < members.count(); ++m) extents.push_back(members.result_extent(m, static_cast<size_t>(dim)));
  return extents;
}

std::vector<Held> scattered(const Held& all, const Communication& communication, const Members& members) {
  const auto dim = static_cast<size_t>(communication.dim);
  const std::vector<Expr> extents = taken(members, communication.dim);
  Expr total = 0;
  for (const Expr& each : extents) total = total + each;
  return cut_up(all.rope && all.rope->dim() == dim ? *all.rope : Rope(all.number, dim, total), extents);
}

std::vector<Held> exchanged(const Communication& communication, const Members& members) {
  const std::vector<Expr> extents = taken(members, communication.split_dim);
  const auto dim = static_cast<size_t>(communication.concat_dim);
  std::vector<std::optional<Rope>> ropes(members.count());
  for (size_t from = 0; from < members.count(); ++from) {
    const std::vector<Held> parts = cut_up(piece(members, from, communication.split_dim), extents);
    const Expr own = members.operand_extent(from, dim);
    for (size_t m = 0; m < members.count(); ++m) {
      const Rope part(parts[m].number, dim, own);
      ropes[m] ? ropes[m]->append(part) : void(ropes[m] = part);
    }
  }
  std::vector<Held> results;
  for (auto& rope : ropes) results.emplace_back(std::move(*rope));
  return results;
}

}  // namespace

std::vector<Held> results_of(const Communication& communication, const Members& members) {
  const auto root = static_cast<size_t>(communication.root);
  const auto all = [&](const Held& held) { return std::vector<Held>(members.count(), held); };
  const auto nothing = [&] {
    std::vector<Held> results;
    for (size_t m = 0; m < members.count(); ++m) results.push_back(members.zeros(m));
    return results;
  };
  const auto only_root = [&](Held held) {
    std::vector<Held> results = nothing();
    results[root] = std::move(held);
    return results;
  };
  switch (communication.kind) {
    case comm::Kind::all_reduce:
      return all(reduced(communication, members));
    case comm::Kind::reduce:
      return only_root(reduced(communication, members));
    case comm::Kind::all_gather:
      return all(gathered(communication, members));
    case comm::Kind::gather:
      return only_root(gathered(communication, members));
    case comm::Kind::broadcast:
      return all(members.given(root));
    case comm::Kind::reduce_scatter:
      return scattered(reduced(communication, members), communication, members);
    case comm::Kind::scatter:
      return scattered(members.given(root), communication, members);
    case comm::Kind::all_to_all:
      return exchanged(communication, members);
    case comm::Kind::permute: {
      std::vector<Held> results = nothing();
      for (size_t m = 0; m < members.count(); ++m)
        if (const int64_t to = communication.targets[m]; to >= 0) results[static_cast<size_t>(to)] = members.given(m);
      return results;
    }
    default:
      return all(Held());
  }
}

}  // namespace tessera::proof
