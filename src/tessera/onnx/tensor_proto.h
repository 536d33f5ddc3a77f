#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "tessera/ir/tensor.h"

// Single tensors as serialized TensorProto files (input_0.pb, output_0.pb in test_data_set folders).
namespace tessera {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// Throws user errors, stage "import", if the file is missing, damaged or not a tensor.
NamedTensor read_tensor_file(const std::filesystem::path& path);
NamedTensor read_tensor_bytes(std::string_view bytes, const std::filesystem::path& base_dir = {});

/// Writes the file whole or not at all; throws as export_model does.
void write_tensor_file(const Tensor& tensor, std::string_view name, const std::filesystem::path& path);
std::string write_tensor_bytes(const Tensor& tensor, std::string_view name);

}  // namespace tessera
