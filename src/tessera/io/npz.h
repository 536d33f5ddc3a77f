#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/ir/tensor.h"

namespace tessera {

/// Which arrays of a .npz file to read, and how much.
struct NpzOptions {
  /// Whether to read the array of that name; others are neither inflated nor looked at. Null: read all.
  std::function<bool(const std::string& name)> wanted;
  /// Bytes that the arrays may take, counted by the sizes that entries state before they are read. 0: what the machine
  /// has.
  size_t memory_limit = 0;
};

/// The arrays of a .npz file (a zip of .npy files, stored or deflated) by name. A defect of the file is a user error
/// "[inputs] FILE: …" that names the array.
std::map<std::string, Tensor> read_npz(const std::filesystem::path& path, const NpzOptions& options = {});

/// The arrays of a .npz file, read slice by slice along their first dimension. Arrays that are stored (numpy.savez) are
/// read on request, without their checksums, which verify() compares; arrays that are deflated, or stored with the
/// first dimension fastest, are read whole at once. Several threads may read.
class NpzSlices {
 public:
  /// The limit is for what is read whole. User errors as read_npz gives them.
  explicit NpzSlices(const std::filesystem::path& path, const NpzOptions& options = {});
  ~NpzSlices();
  NpzSlices(const NpzSlices&) = delete;
  NpzSlices& operator=(const NpzSlices&) = delete;

  /// The extents of all arrays, by name.
  const std::map<std::string, Dims>& dims() const { return dims_; }
  /// The slice [index] of an array, of the array's extents but the first. `name` and `index` must exist.
  Tensor read(const std::string& name, int64_t index);
  /// Reads all arrays and compares their checksums; leaves off once `stops`, which it asks for each piece of 1 MiB,
  /// returns true. A user error names the array.
  void verify(const std::function<bool()>& stops = [] { return false; });

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::map<std::string, Dims> dims_;
};

/// Writes tensors as numpy.savez does, in order. bfloat16, which numpy lacks, is written as float32 (exactly). The file
/// appears whole or not at all: an error leaves the old one.
void write_npz(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& tensors);

}  // namespace tessera
