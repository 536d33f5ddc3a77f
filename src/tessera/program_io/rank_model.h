#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/program_io/expression_nodes.h"
#include "tessera/program_io/manifest.h"
#include "tessera/program_io/weights_file.h"
#include "tessera/write.h"

namespace tessera::program_io {

/// Keys of metadata_props of every value that stands for a global one: the global value's name, its type
/// ("float32[batch, 64]"), and its sharding ("[batch{dp}, -]").
inline constexpr std::string_view kValueKey = "tessera.value";
inline constexpr std::string_view kGlobalKey = "tessera.global";
inline constexpr std::string_view kShardingKey = "tessera.sharding";

/// Renames symbols whose names could not be read back in an expression ("batch size", "a-b").
class SymbolNames {
 public:
  explicit SymbolNames(const spmd::Program& program);
  Expr rename(const Expr& expr) const;
  Shape rename(const Shape& shape) const;
  Sharding rename(Sharding sharding) const;
  std::string rename(const std::string& symbol) const;

 private:
  std::map<std::string, std::string, std::less<>> renamed_;
};

/// The model of the rank at `coordinates` and of those in its class. It has local types, axis indices of the `unbound`
/// axes only, symbolic shape operands as int64 nodes, and collectives that state their members' extents. Inputs are the
/// program's, then symbols; outputs are the program's, then the states' next values.
///
/// States have type and size (as in `shards`), but no data. The options determine how communication is lowered and
/// learns its rank; it is in the order of the nodes, without tokens.
struct WrittenModel {
  OnnxModel model;
  bool uses_rank = false;  ///< it reads its rank's number, or has it folded in
  bool ordered = false;    ///< tokens are threaded through it
};
WrittenModel rank_model(const spmd::Program& program, const std::vector<int64_t>& coordinates,
                        const std::vector<std::string>& unbound, const std::vector<StoredShard>& shards,
                        const SymbolNames& names, const WriteOptions& options);

/// Reads a whole tensor's type in the form of kGlobalKey, "float32[batch, min(512, s)]"; nullopt for other text.
std::optional<TensorType> read_global_type(std::string_view text);

/// The placement that a value's metadata state, if any. Throws user errors that name `source` for invalid metadata.
std::optional<spmd::Placement> stated_placement(const Value& value, const Mesh& mesh, const std::string& source);

/// A program, and the types that its file states in another form than the one inferred from its nodes.
struct ReadProgram {
  spmd::Program program;
  StatedTypes stated;
};

/// The inverse: turns a model that a class of `ranks` runs into a program; with `bound`, into the first rank's program.
/// Types are inferred from the nodes. Inlines functions, checks and drops tokens, and drops operands of communication
/// that none of the ranks sends. States have no data; ranks' shards are kept separately. Throws user errors that name
/// `source` if anything contradicts the manifest.
ReadProgram program_of(OnnxModel model, const Manifest& manifest, const std::string& source,
                       const std::vector<int>& ranks, bool bound);

}  // namespace tessera::program_io
