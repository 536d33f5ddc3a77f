#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tessera/ir/tensor.h"

namespace tessera {
inline namespace v1 {

/// Whole tensors (never shards) by the model's input or output names.
using Tensors = std::map<std::string, Tensor>;

/// Sizes by the names of symbolic dimensions: {"batch", 8}.
using SymbolSizes = std::map<std::string, int64_t, std::less<>>;

/// A tensor as a model declares it. Extents are numbers, symbols, or expressions over symbols ("sequence + 1").
struct TensorInfo {
  std::string name;
  DType dtype = DType::undefined;
  std::vector<std::string> shape;
};

/// Reads a .npz file, or a folder of TensorProto files `PREFIX_0.pb`, `PREFIX_1.pb`, … as in ONNX's test_data_set_N (or
/// a folder that holds such a folder). `ports` are the model's inputs or outputs. A tensor of the folder whose name is
/// not that of a port belongs to the port of its number. Inputs of another type than their port's are converted if that
/// changes no element; float32 always becomes the 16-bit float of its port, because .npz files have no bfloat16. Arrays
/// whose name is not that of a port are not read; "NAME@3" is rank 3's own array for the port NAME. Throws a user error
/// if the file or folder is missing or damaged, if `prefix` is "input" and an array is not read, and if the arrays take
/// more than `memory_limit` bytes (0: what the machine has).
Tensors read_tensors(const std::filesystem::path& path, const std::string& prefix, const std::vector<TensorInfo>& ports,
                     size_t memory_limit = 0);

/// All arrays of a .npz file, by name. Throws a user error as above.
Tensors read_tensors(const std::filesystem::path& path, size_t memory_limit = 0);

/// Writes a .npz file, whole or not at all. bfloat16 is written as float32. Throws a user error if the path cannot be
/// written.
void write_tensors(const std::filesystem::path& path, const Tensors& tensors);

/// Throws a user error for a path that write_tensors cannot write, and for a file that is mapped; leaves nothing there.
void require_writable(const std::filesystem::path& path);

}  // namespace v1
}  // namespace tessera
