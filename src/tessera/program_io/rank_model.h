#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/program_io/manifest.h"
#include "tessera/program_io/weights_file.h"
#include "tessera/tessera.h"

namespace tessera::program_io {

/// Keys of metadata_props of every value that stands for a global one: the global value's name, its type
/// ("float32[batch, 64]"), and how it is laid over the mesh ("[batch{dp}, -]").
inline constexpr std::string_view kValueKey = "tessera.value";
inline constexpr std::string_view kGlobalKey = "tessera.global";
inline constexpr std::string_view kShardingKey = "tessera.sharding";

/// Symbols whose names no expression could be read back with ("batch size", "a-b"), under names that can.
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

/// The model of the ranks that are like the one at `coordinates`: local types, no axis indices but those of the
/// `unbound` axes, symbolic shape operands as int64 nodes, collectives that say their members' extents. Inputs are the
/// program's, then symbols; outputs the program's, then the states' next values.
///
/// States have type and size (as in `shards`), but no data. Communication is lowered and learns its rank as the options
/// say; it is in the order of the nodes, without tokens.
struct WrittenModel {
  OnnxModel model;
  bool uses_rank = false;  ///< it reads its rank's number, or has it folded in
  bool ordered = false;    ///< tokens are threaded through it
};
WrittenModel rank_model(const spmd::Program& program, const std::vector<int64_t>& coordinates,
                        const std::vector<std::string>& unbound, const std::vector<StoredShard>& shards,
                        const SymbolNames& names, const WriteOptions& options);

/// A whole tensor's type as kGlobalKey has it, "float32[batch, min(512, s)]"; nullopt for anything else.
std::optional<TensorType> read_global_type(std::string_view text);

/// What a value's metadata say that it stands for, if they do. User errors naming `source` for what cannot be read.
std::optional<spmd::Placement> stated_placement(const Value& value, const Mesh& mesh, const std::string& source);

/// The inverse: a model that a class of `ranks` runs, as a program; with `bound`, as the first one's only. Functions
/// are inlined, tokens checked and dropped, and so are operands of communication that none of the ranks has to give.
/// States have no data: ranks' shards are kept apart. User errors naming `source` for whatever does not fit the
/// manifest.
spmd::Program program_of(OnnxModel model, const Manifest& manifest, const std::string& source,
                         const std::vector<int>& ranks, bool bound);

}  // namespace tessera::program_io
