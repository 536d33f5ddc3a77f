#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "tessera/ir/tensor.h"

namespace tessera {
inline namespace v1 {

/// Whole tensors (never shards) by the model's input or output names.
using Tensors = std::map<std::string, Tensor>;

/// Sizes by the names of symbolic dimensions: {"batch", 8}.
using SymbolSizes = std::map<std::string, int64_t, std::less<>>;

/// Reads a .npz file, or a folder of TensorProto files `PREFIX_0.pb`, `PREFIX_1.pb`, … as in ONNX's test_data_set_N. A
/// file of the folder that carries no name is called by its number ("0", "1"). Throws a user error if there is nothing
/// of the kind or it is damaged.
Tensors read_tensors(const std::filesystem::path& path, const std::string& prefix);

/// Writes a .npz file, whole or not at all. bfloat16 is written as float32. Throws a user error if the path cannot be
/// written.
void write_tensors(const std::filesystem::path& path, const Tensors& tensors);

/// Throws the user error that write_tensors would throw for a path that cannot be written, and leaves nothing there.
void require_writable(const std::filesystem::path& path);

}  // namespace v1
}  // namespace tessera
