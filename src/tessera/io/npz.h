#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
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

/// Writes tensors as numpy.savez does, in order. bfloat16, which numpy lacks, is written as float32 (exactly). The file
/// appears whole or not at all: an error leaves the old one.
void write_npz(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& tensors);

}  // namespace tessera
