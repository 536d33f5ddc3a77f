#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/checkpoint/manifest.h"
#include "tessera/io/mapped_file.h"

namespace tessera::checkpoint {

/// The steps of all checkpoints in a folder, good or not, the highest first; none if there is no such folder.
std::vector<int64_t> steps_in(const std::filesystem::path& folder);

/// When checksums are compared.
enum class Verify {
  all,     ///< those of all pieces, when the checkpoint is opened
  lazily,  ///< that of each piece when the piece is first read
};

/// A checkpoint that was saved on any mesh, to be read on any other. Its files are mapped. Several threads may read.
class Checkpoint {
 public:
  Checkpoint(Checkpoint&&) = default;
  Checkpoint& operator=(Checkpoint&&) = default;

  /// Opens the folder of one checkpoint, "run/step-000120". A defect (missing, cut or damaged files, an unknown
  /// version) is a user error "[checkpoint] …" that names file and tensor, and another good checkpoint beside it if
  /// there is one.
  static Checkpoint open(const std::filesystem::path& path, Verify verify = Verify::all);

  /// Opens the good checkpoint of the highest step in a folder of checkpoints; nullopt if the folder has no
  /// checkpoints, or does not exist. `passed_over` receives the defects of each later one. A user error if none is
  /// good, or if a later tessera has written the last one.
  static std::optional<Checkpoint> latest(const std::filesystem::path& folder, std::vector<std::string>& passed_over,
                                          Verify verify = Verify::all);

  const std::filesystem::path& path() const { return path_; }
  const Facts& facts() const { return manifest_.facts; }
  /// All tensors, by name.
  std::vector<TensorType> tensors() const;
  bool contains(const std::string& name) const { return manifest_.tensors.contains(name); }

  /// A user error that names the first tensor that is missing, has another type or shape, or is not the model's, unless
  /// the checkpoint has these tensors and `model` is what was saved as Facts::model.
  void require_model(const std::string& model, std::span<const TensorType> tensors) const;

  /// Gathers a region into `to`, dense and row-major. The tensor must exist and the region lie within it. A damaged
  /// piece is a user error, as when opening.
  void read(const std::string& name, const Region& region, void* to) const;
  Tensor read(const std::string& name, const Region& region) const;
  Tensor read(const std::string& name) const;  ///< whole

 private:
  struct Verified;
  Checkpoint() = default;
  static Checkpoint load(const std::filesystem::path& path, Verify verify);
  void verify(const std::string& name, const StoredPiece& piece) const;

  std::filesystem::path path_;
  Manifest manifest_;
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;
  std::shared_ptr<Verified> verified_;
};

}  // namespace tessera::checkpoint
