#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/program_io/file_stamp.h"
#include "tessera/proof/meaning.h"
#include "tessera/spmd/program.h"
#include "tessera/tessera.h"

namespace tessera::program_io {

/// The name of the file by which a folder is known as a written program.
inline constexpr std::string_view kManifestFile = "manifest.json";

/// What manifest.json says of a written program.
struct Manifest {
  /// An input, output or state: the tensor of the whole model, and what it is called in the ranks' models.
  struct Tensor {
    std::string name;
    std::string value;
    TensorType global;
    Sharding sharding;
  };
  struct State : Tensor {
    std::optional<std::string> next;  ///< the output that becomes its value after a step
  };
  /// A file that some ranks read.
  struct RankFile {
    FileStamp stamp;
    std::vector<int> ranks;  ///< ascending
    /// Of a weights file: what each state's shard is, by the state's value (weights_file.h).
    std::map<std::string, uint64_t, std::less<>> hashes;
  };

  /// What models were proved to compute: as it was written, and in its normal form (normal_form.h).
  struct RankMeaning {
    proof::Number written;
    proof::Meaning normal;
    std::vector<int> ranks;  ///< ascending
  };

  std::string tessera;  ///< version that wrote it
  std::string source;   ///< what the program was made from, in words
  Mesh mesh;
  std::map<std::string, int64_t, std::less<>> hints;
  std::vector<spmd::ExtentEquality> equal_extents;
  WriteOptions form;                 ///< of the models
  std::optional<std::string> token;  ///< the output that is the last token of every model that communicates
  std::vector<Tensor> inputs, outputs;
  std::vector<State> states;
  std::vector<RankFile> models;       ///< every rank has one
  std::vector<RankFile> weights;      ///< every rank has one, or there are none: without states
  std::vector<RankMeaning> meanings;  ///< every rank has one

  std::string to_json() const;
  /// User errors that name `path`, the entry and the mend: not JSON, another format version, unknown or missing
  /// entries, values that cannot be, ranks without files.
  static Manifest from_json(std::string_view text, const std::filesystem::path& path);
};

/// That of a written program's folder. A user error if it is none.
Manifest read_manifest(const std::filesystem::path& folder);

/// What the models of a folder compute, which its manifest does not say yet. An error where they are not proved.
std::vector<Manifest::RankMeaning> proved_meanings(const std::filesystem::path& folder, const Manifest& manifest);

/// "0-3,8": ascending ranks, and back; nullopt for what is none.
std::string print_ranks(const std::vector<int>& ranks);
std::optional<std::vector<int>> parse_ranks(std::string_view text, int64_t count);

}  // namespace tessera::program_io
