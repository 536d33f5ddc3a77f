#include "tessera/mesh/mesh.h"

#include <algorithm>
#include <charconv>

#include "tessera/base/error.h"
#include "tessera/base/trim.h"
#include "tessera/mesh/axis_name.h"

namespace tessera {
namespace {

constexpr int64_t kMostRanks = int64_t{1} << 24;

void require_axis_name(std::string_view name) {
  if (name.empty()) fail("mesh", "an axis has no name; write NAME=SIZE, as in dp=2,tp=4");
  if (!is_axis_name(name))
    fail("mesh", "'{}' is not an axis name; use letters, digits and '_', and start with a letter, as in dp=2,tp=4",
         name);
}

int64_t parse_size(std::string_view name, std::string_view text) {
  if (text.empty()) fail("mesh", "axis '{}' has no size; write for example {}=4", name, name);
  int64_t size = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error == std::errc::result_out_of_range)
    fail("mesh", "axis '{}' has size {}; a mesh has at most {} ranks", name, text, kMostRanks);
  if (error != std::errc() || end != text.data() + text.size())
    fail("mesh", "the size '{}' of axis '{}' is not a whole number; write for example {}=4", text, name, name);
  return size;
}

}  // namespace

Mesh::Mesh(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {
  for (size_t i = 0; i < axes_.size(); ++i) {
    const MeshAxis& axis = axes_[i];
    require_axis_name(axis.name);
    if (axis.size < 1) fail("mesh", "axis '{}' has size {}; a size is at least 1", axis.name, axis.size);
    for (size_t j = 0; j < i; ++j)
      if (axes_[j].name == axis.name) fail("mesh", "axis '{}' is named twice; name it once", axis.name);
    if (axis.size > kMostRanks / size_)
      fail("mesh", "axes up to '{}' make more than {} ranks, the most a mesh may have", axis.name, kMostRanks);
    size_ *= axis.size;
  }
}

Mesh Mesh::parse(std::string_view text) {
  if (trim(text).empty()) return Mesh();
  std::vector<MeshAxis> axes;
  for (size_t start = 0; start <= text.size();) {
    size_t end = std::min(text.find(',', start), text.size());
    std::string_view piece = trim(text.substr(start, end - start));
    if (piece.empty()) fail("mesh", "'{}' has an empty axis; write NAME=SIZE between commas, as in dp=2,tp=4", text);
    size_t equals = piece.find('=');
    if (equals == std::string_view::npos) fail("mesh", "axis '{}' has no size; write for example {}=4", piece, piece);
    std::string_view name = trim(piece.substr(0, equals));
    require_axis_name(name);
    if (trim(piece.substr(equals + 1)) == "?")
      fail("mesh", "'{}' leaves the size of the axis {} open; name it, as in {}=4", text, name, name);
    axes.push_back({std::string(name), parse_size(name, trim(piece.substr(equals + 1)))});
    start = end + 1;
  }
  return Mesh(std::move(axes));
}

std::optional<int> Mesh::find(std::string_view name) const {
  for (size_t i = 0; i < axes_.size(); ++i)
    if (axes_[i].name == name) return static_cast<int>(i);
  return std::nullopt;
}

std::vector<int64_t> Mesh::coordinates(int64_t rank) const {
  if (rank < 0 || rank >= size_) check(false, fmt::format("rank {} is one of {}", rank, size_));
  std::vector<int64_t> digits(axes_.size());
  for (size_t i = axes_.size(); i-- > 0;) {
    digits[i] = rank % axes_[i].size;
    rank /= axes_[i].size;
  }
  return digits;
}

int64_t Mesh::rank_of(const std::vector<int64_t>& coordinates) const {
  check(coordinates.size() == axes_.size(), "there is one coordinate per axis");
  int64_t rank = 0;
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (coordinates[i] < 0 || coordinates[i] >= axes_[i].size)
      check(false, fmt::format("coordinate {} lies on axis '{}'", coordinates[i], axes_[i].name));
    rank = rank * axes_[i].size + coordinates[i];
  }
  return rank;
}

std::string Mesh::str() const {
  std::string text;
  for (const MeshAxis& axis : axes_) text += fmt::format("{}{}={}", text.empty() ? "" : ",", axis.name, axis.size);
  return text;
}

}  // namespace tessera
