#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"

namespace tessera::compiler {

/// "NAME=[-, tp]": a layout for every value whose name matches.
struct AnnotationRequest {
  std::string pattern;          ///< `*` matches any characters
  std::string sharding;         ///< an entry per dimension; "..." stands for any number of whole dimensions
  std::string by;               ///< "annotation", "plan file"
  bool optional = false;        ///< if it cannot be followed: followed as closely as possible, with a warning
  bool is_one_of_many = false;  ///< made from a pattern that matches several tensors, and applies to those that it fits

  /// Splits at the last '=' before the bracket. Throws a user error if there is none.
  static AnnotationRequest parse(std::string_view text, std::string_view by, std::string_view stage = "annotate");
  /// Whether it applies to tensors of that rank.
  bool fits(size_t rank) const;
  /// The sharding with an entry for each dimension of a tensor of that rank, if it applies; else as written.
  std::string for_rank(size_t rank) const;
  /// The number of entries as written, without "...".
  size_t entries() const;
  bool has_ellipsis() const;
  /// Whether it selects results by their label (rewrite/passes.h).
  bool is_labelled() const;
  /// Whether a storage request prevents rewriting from cutting the state into pieces: it names the state, or it is a
  /// wildcard that matches the state but would not match its pieces.
  bool keeps_whole(const Value& state) const;
};

/// "NAME=pp:1": the place of every node whose name, or the name of one of its results or modules, matches.
struct PlaceRequest {
  std::string pattern;  ///< `*` matches any characters
  std::string place;    ///< as parse_place reads it
  std::string by;       ///< "place", "plan file"

  /// Splits at the first '=' that a place follows, possibly of a sub-axis ("pp:(2)2=1"); if there is none, at the last.
  /// Throws a user error if there is no '='.
  static PlaceRequest parse(std::string_view text, std::string_view by);
};

/// The axis along which the stages of a pipeline lie.
inline constexpr std::string_view kPipelineAxis = "pp";

/// How stages on kPipelineAxis compute micro-batches, and how the model is cut into them.
struct PipelineRequest {
  std::string schedule;  ///< "1f1b", "auto", or the path of a table (tessera/pipeline.h); empty: by default
  std::string stages;  ///< "7,9,9,7": blocks of each stage; "auto" or empty: so that the slowest is as fast as possible

  /// Nullopt if both texts are empty. Throws a user error that names the setting: `stages` is not a list, the mesh has no
  /// kPipelineAxis, or `places` are along it.
  static std::optional<PipelineRequest> parse(const std::string& schedule, const std::string& stages, const Mesh& mesh,
                                              const std::vector<PlaceRequest>& places);
  /// The blocks of each stage, which may have none; empty if they are to be found.
  std::vector<int64_t> blocks() const;
};

}  // namespace tessera::compiler
