#include "tessera/proof/rope.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/ir/always_equal.h"

namespace tessera::proof {
namespace {

// Whether `a` is at or before `b`; nullopt if that depends on symbols.
std::optional<bool> at_or_before(const Expr& a, const Expr& b) {
  if (always_equal(a, b)) return true;
  const Expr distance = b - a;
  if (distance.lower_bound().value_or(-1) >= 0) return true;
  if (distance.upper_bound().value_or(0) < 0) return false;
  return std::nullopt;
}

}  // namespace

Rope::Rope(const Number& value, size_t dim, Expr extent) : dim_(dim) {
  pieces_.push_back({value, 0, extent, extent});
}

std::optional<Rope> Rope::cut(const Expr& begin, const Expr& end) const {
  Rope result = *this;
  result.pieces_.clear();
  std::vector<Expr> seams = {0};  // where pieces meet
  for (const Piece& piece : pieces_) seams.push_back(seams.back() + (piece.end - piece.begin));
  auto seam_at = [&](const Expr& place) {
    return std::find_if(seams.begin(), seams.end(), [&](const Expr& seam) { return always_equal(seam, place); }) -
           seams.begin();
  };
  const auto first = static_cast<size_t>(seam_at(begin)), last = static_cast<size_t>(seam_at(end));
  if (last < seams.size() && first <= last) {
    for (size_t p = first; p < last; ++p) result.add(pieces_[p]);
    return result;
  }
  const bool begins_at_seam = first < seams.size(), ends_at_seam = last < seams.size();
  for (size_t p = 0; p < pieces_.size(); ++p) {
    const Piece& piece = pieces_[p];
    const Expr &from = seams[p], &to = seams[p + 1];
    // Facts that follow from the order of seams, and from the cut being within the rope, need not be derived from
    // expressions.
    const auto is_before = begins_at_seam ? std::optional(p < first) : at_or_before(to, begin);
    if (is_before && *is_before) continue;
    const auto is_behind = ends_at_seam                   ? std::optional(p >= last)
                           : begins_at_seam && p == first ? std::optional(false)
                                                          : at_or_before(end, from);
    if (is_behind && *is_behind) break;
    const auto starts_inside = begins_at_seam ? std::optional(p == first) : at_or_before(from, begin);
    const auto ends_inside = ends_at_seam              ? std::optional(p + 1 == last)
                             : p + 1 == pieces_.size() ? std::optional(true)
                                                       : at_or_before(end, to);
    if (!is_before || !is_behind || !starts_inside || !ends_inside) return std::nullopt;
    result.add({piece.of, *starts_inside ? piece.begin + (begin - from) : piece.begin,
                *ends_inside ? piece.begin + (end - from) : piece.end, piece.extent});
  }
  return result;
}

void Rope::append(const Rope& other) {
  check(other.dim_ == dim_, "ropes are joined along one dimension");
  for (const Piece& piece : other.pieces_) add(piece);
}

void Rope::add(Piece piece) {
  if (always_equal(piece.begin, piece.end)) return;
  if (!pieces_.empty() && pieces_.back().of == piece.of && always_equal(pieces_.back().end, piece.begin))
    pieces_.back().end = piece.end;
  else
    pieces_.push_back(std::move(piece));
}

Number Rope::number() const {
  if (pieces_.size() == 1) {
    const Piece& only = pieces_.front();
    if (always_equal(only.begin, 0) && always_equal(only.end, only.extent)) return only.of;
  }
  Mixer mixer;
  mixer.add("rope").add(dim_).add(pieces_.size());
  for (const Piece& piece : pieces_) mixer.add(piece.of).add(fingerprint(piece.begin)).add(fingerprint(piece.end));
  return mixer.number();
}

}  // namespace tessera::proof
