#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/program_io/file_stamp.h"
#include "tessera/proof/meaning.h"
#include "tessera/spmd/program.h"
#include "tessera/write.h"

namespace tessera::program_io {

/// The name of the file that marks a folder as a written program.
inline constexpr std::string_view kManifestFile = "manifest.json";

/// The content of a written program's manifest.json.
struct Manifest {
  /// An input, output or state: the tensor of the whole model, and its name in the ranks' models.
  struct Tensor {
    std::string name;
    std::string value;
    TensorType global;
    Sharding sharding;
  };
  struct State : Tensor {
    std::optional<std::string> next;    ///< the output that becomes its value after a step
    bool changes = false;               ///< by `next`, or by another program that shares it
    std::optional<StateOrigin> origin;  ///< if it is a piece of a parameter
  };
  /// A file that some ranks read.
  struct RankFile {
    FileStamp stamp;
    std::vector<int> ranks;         ///< ascending
    std::optional<FileStamp> init;  ///< of a model: the model that computes some of its inputs once (init_model.h)
    /// For a weights file: the hash of each state's shard, by the state's value (weights_file.h).
    std::map<std::string, uint64_t, std::less<>> hashes;
  };

  /// The proved meaning of models: as written, and in their normal form (normal_form.h).
  struct RankMeaning {
    proof::Number written;
    proof::Meaning normal;
    std::vector<int> ranks;  ///< ascending
  };

  std::string tessera;  ///< version that wrote it
  std::string source;   ///< a description of the program's source
  Mesh mesh;
  std::map<std::string, int64_t, std::less<>> hints;
  std::vector<spmd::ExtentEquality> equal_extents;
  WriteOptions form;                 ///< of the models
  std::optional<std::string> token;  ///< the output that is the last token of every model that communicates
  std::vector<Tensor> inputs, outputs;
  std::vector<State> states;
  std::vector<std::string> init;      ///< values of the models that ranks compute once (spmd/partition/init.h)
  std::vector<RankFile> models;       ///< every rank has one
  std::vector<RankFile> weights;      ///< every rank has one; empty without states
  std::vector<RankMeaning> meanings;  ///< every rank has one

  /// The stamps of the files that hold the models, those of their init included.
  std::vector<FileStamp*> model_stamps();

  std::string to_json() const;
  /// Throws user errors that name `path`, the entry and the fix: for text that is not JSON, another format version,
  /// unknown or missing entries, invalid values, and ranks without files.
  static Manifest from_json(std::string_view text, const std::filesystem::path& path);
};

/// The manifest of a written program's folder. Throws a user error if the folder is not a written program.
Manifest read_manifest(const std::filesystem::path& folder);

/// The meanings of a folder's models, for a manifest that lacks them. Throws an error if the models are not proved.
std::vector<Manifest::RankMeaning> proved_meanings(const std::filesystem::path& folder, const Manifest& manifest);

/// Ascending ranks as "0-3,8", and back; nullopt for text of another form.
std::string print_ranks(const std::vector<int>& ranks);
std::optional<std::vector<int>> parse_ranks(std::string_view text, int64_t count);

}  // namespace tessera::program_io
