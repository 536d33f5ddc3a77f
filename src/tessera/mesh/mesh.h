#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {
inline namespace v1 {

/// One named axis of a mesh.
struct MeshAxis {
  std::string name;
  int64_t size = 1;
  bool operator==(const MeshAxis&) const = default;
};

/// An ordered list of named axes; ranks are numbered row-major (the last axis varies fastest). A mesh without axes has
/// one rank.
class Mesh {
 public:
  Mesh() = default;
  explicit Mesh(std::vector<MeshAxis> axes);
  /// Reads "dp=2,tp=4". Sizes are at least 1; names are unique and consist of letters, digits and '_', not starting
  /// with a digit; at most 2^24 ranks. Throws a user error that says what is wrong.
  static Mesh parse(std::string_view text);

  const std::vector<MeshAxis>& axes() const { return axes_; }
  int64_t size() const { return size_; }
  /// Index of the axis of that name.
  std::optional<int> find(std::string_view name) const;
  /// Coordinates of a rank, one per axis.
  std::vector<int64_t> coordinates(int64_t rank) const;
  int64_t rank_of(const std::vector<int64_t>& coordinates) const;
  std::string str() const;  ///< "dp=2,tp=4"; "" without axes
  bool operator==(const Mesh& other) const { return axes_ == other.axes_; }

 private:
  std::vector<MeshAxis> axes_;
  int64_t size_ = 1;
};

}  // namespace v1
}  // namespace tessera
