#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tessera/ir/tensor.h"

namespace tessera {

/// A .safetensors file (https://github.com/huggingface/safetensors): eight bytes with the length of a JSON header, the
/// header, and the elements of all tensors, little-endian and row-major.
struct Safetensors {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

/// Maps a file; the tensors are views of it, aligned to their elements or not (ir/aligned.h). A defect is a user error
/// "[safetensors] FILE: …" that names the tensor.
Safetensors read_safetensors(const std::filesystem::path& path);

/// Writes whole tensors, the widest elements first and then by name, so that all are aligned. The file appears whole or
/// not at all. A user error for types that the format does not have: strings, complex numbers and types below 8 bits.
void save_safetensors(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace tessera
