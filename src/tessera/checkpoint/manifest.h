#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/checkpoint/tensor_type.h"

namespace tessera::checkpoint {

using Scalar = std::variant<int64_t, double, std::string>;

/// What is saved beside the tensors.
struct Facts {
  int64_t step = 0;
  std::string model;                      ///< which model the tensors belong to: fingerprint_of, or another text
  std::map<std::string, Scalar> scalars;  ///< the cursor of the data, the seed, …; doubles are finite
  /// The identity of the run that saves it (new_run); "": it was written before runs had one.
  std::string run{};
};

/// A region of a tensor in a file: its elements, dense and row-major.
struct StoredPiece {
  std::string file;  ///< in the checkpoint's folder
  uint64_t offset = 0, bytes = 0;
  uint32_t crc32 = 0;
  Region region;
};

struct StoredTensor {
  DType dtype = DType::undefined;
  Dims dims;
  std::vector<StoredPiece> pieces;
};

/// The content of checkpoint.json, and of the table that each rank writes of its own pieces.
struct Manifest {
  Facts facts;
  std::map<std::string, StoredTensor> tensors;
};

/// The reason why a checkpoint cannot be used; names the file, and the tensor if the defect is in one.
struct Defect : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// A defect that an older checkpoint does not fix: the file has a version that this code does not know.
struct UnknownVersion : Defect {
  using Defect::Defect;
};

/// JSON in two parts: the first line holds the CRC-32 of all that follows.
std::string print_manifest(const Manifest& manifest);
/// Throws Defect for anything that print_manifest would not write. `what` names the file.
Manifest parse_manifest(std::string_view text, std::string_view what);

/// The reason why the pieces of a tensor do not contain each element exactly once; nullopt if they do.
std::optional<std::string> wrong_cover(const StoredTensor& tensor);

inline constexpr std::string_view kManifestFile = "checkpoint.json";
/// "step-000120"
std::string folder_name(int64_t step);
/// The step of a folder of that name; nullopt: another name.
std::optional<int64_t> step_of(std::string_view folder_name);
/// Where a run writes the checkpoint of a step before it gets its name: ".step-000120.RUN.partial". No two runs share
/// one, so that their pieces cannot mix.
std::filesystem::path partial_folder(const std::filesystem::path& folder, int64_t step, const std::string& run);
std::string rank_file(int64_t rank);   ///< "rank-0.bin"
std::string rank_table(int64_t rank);  ///< "rank-0.json"
/// The first 64 bytes of a rank's file, which name its run; "" for a run without identity.
std::string rank_header(const std::string& run);

}  // namespace tessera::checkpoint
