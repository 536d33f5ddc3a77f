#include "tessera/runtime/whole_states.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/checkpoint/shard.h"
#include "tessera/mesh/box.h"

namespace tessera::runtime {
namespace {

bool overlap(const WholeState::Piece& a, const WholeState::Piece& b) {
  for (size_t d = 0; d < a.begin.size(); ++d)
    if (a.begin[d] + a.extents[d] <= b.begin[d] || b.begin[d] + b.extents[d] <= a.begin[d]) return false;
  return true;
}

bool fits(const WholeState::Piece& piece, const Dims& dims) {
  if (piece.begin.size() != dims.size() || piece.extents.size() != dims.size()) return false;
  for (size_t d = 0; d < dims.size(); ++d)
    if (piece.begin[d] < 0 || piece.extents[d] > dims[d] || piece.begin[d] > dims[d] - piece.extents[d]) return false;
  return true;
}

CopiedBox box_of_piece(const WholeState& state, const WholeState::Piece& piece) {
  return {{state.dims, piece.begin, piece.extents}, state.dtype};
}

}  // namespace

std::string WholeState::str(const std::string& name) const {
  std::string text = fmt::format("{} [{}]", name_of(dtype), fmt::join(dims, ", "));
  if (!is_divided(name)) return text;
  text += " in pieces";
  for (size_t i = 0; i < pieces.size(); ++i)
    text += fmt::format("{} [{}] at [{}]", i ? "," : "", fmt::join(pieces[i].extents, ", "),
                        fmt::join(pieces[i].begin, ", "));
  return text;
}

WholeStates whole_states(const RankPrograms& programs) {
  WholeStates all;
  for (const auto& [name, state] : programs.changing_states()) {
    const spmd::Placement& placement = *state.placement;
    Dims extents;
    for (const Expr& extent : *placement.global.shape) {
      const auto number = extent.constant();
      check(number.has_value(), fmt::format("the state '{}' has fixed extents", name));
      extents.push_back(*number);
    }
    const StateOrigin origin =
        placement.origin ? *placement.origin : StateOrigin{name, extents, Dims(extents.size(), 0)};
    auto [known, fresh] = all.try_emplace(origin.name, WholeState{placement.global.dtype, origin.dims, {}});
    if (known->second.dtype != placement.global.dtype || known->second.dims != origin.dims)
      fail("state",
           "the states '{}' and '{}' are pieces of '{}', but do not agree on its type; write the program again",
           known->second.pieces.front().state, name, origin.name);
    known->second.pieces.push_back({name, origin.begin, std::move(extents)});
  }
  for (auto& [name, state] : all)
    std::sort(state.pieces.begin(), state.pieces.end(), [](const auto& a, const auto& b) {
      return a.begin < b.begin || (a.begin == b.begin && a.state < b.state);
    });
  return all;
}

size_t saved_bytes(const RankPrograms& programs, int rank) {
  const SymbolLookup no_symbols = [](std::string_view) -> std::optional<int64_t> { return std::nullopt; };
  const Mesh& mesh = programs.mesh();
  const std::vector<int64_t> coordinates = mesh.coordinates(rank);
  size_t bytes = 0;
  for (const auto& [name, state] : programs.changing_states(rank)) {
    const Sharding& sharding = state.placement->sharding;
    if (checkpoint::saves_shard(sharding, mesh, coordinates))
      bytes += bytes_of(state.placement->global.dtype, box_of(sharding, mesh, coordinates, no_symbols).count());
  }
  return bytes;
}

void require_whole(const WholeStates& states) {
  for (const auto& [name, state] : states) {
    if (!state.is_divided(name)) continue;
    int64_t elements = 0;
    bool good = true;
    for (size_t i = 0; i < state.pieces.size() && good; ++i) {
      good = fits(state.pieces[i], state.dims);
      elements += count_of(state.pieces[i].extents);
      for (size_t j = 0; j < i && good; ++j) good = !overlap(state.pieces[i], state.pieces[j]);
    }
    if (!good || elements != count_of(state.dims))
      fail("state",
           "the program does not hold each element of the state '{}' once: it is {}; write the program again, or name "
           "'{}' in an annotation or `storage`, so that it stays whole",
           name, state.str(name), name);
  }
}

void join_pieces(const WholeState& state, const std::map<std::string, Tensor>& pieces, Tensor& whole) {
  for (const WholeState::Piece& piece : state.pieces)
    copy_to_whole(whole.mutable_data(), pieces.at(piece.state).data, box_of_piece(state, piece));
}

void cut_pieces(const WholeState& state, const Tensor& whole, std::map<std::string, Tensor>& pieces) {
  for (const WholeState::Piece& piece : state.pieces) {
    Tensor part = Tensor::zeros(state.dtype, piece.extents);
    copy_from_whole(part.mutable_data(), whole.data, box_of_piece(state, piece));
    pieces.insert_or_assign(piece.state, std::move(part));
  }
}

}  // namespace tessera::runtime
