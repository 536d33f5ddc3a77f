#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tessera/ir/graph.h"

namespace tessera::compiler {

/// "NAME=[-, tp]": an order about every value whose name matches.
struct AnnotationRequest {
  std::string pattern;          ///< `*` matches any characters
  std::string sharding;         ///< an entry per dimension; "..." stands for any number of whole ones
  std::string by;               ///< "annotation", "plan file"
  bool optional = false;        ///< followed as nearly as can be, with a warning, where it cannot be followed
  bool is_one_of_many = false;  ///< of a label: a pattern reaches others as well, and means those that it fits

  /// Splits at the last '=' before the bracket. A user error if there is none.
  static AnnotationRequest parse(std::string_view text, std::string_view by, std::string_view stage = "annotate");
  /// Whether it applies to tensors of that rank.
  bool fits(size_t rank) const;
  /// The sharding for a tensor of that rank, with as many entries, where it fits; else as written.
  std::string for_rank(size_t rank) const;
  /// Entries that are written, "..." not counted.
  size_t entries() const;
  bool has_ellipsis() const;
  /// Whether it means results by their label (rewrite/passes.h).
  bool is_labelled() const;
  /// Whether a request for storage keeps the state whole: it names the state, or it is a wildcard that fits the state
  /// and does not reach the pieces into which rewriting may cut it.
  bool keeps_whole(const Value& state) const;
};

/// "NAME=pp:1": where the nodes run whose name, a result's, or that of a module that they come from, matches.
struct PlaceRequest {
  std::string pattern;  ///< `*` matches any characters
  std::string place;    ///< as parse_place reads it
  std::string by;       ///< "place", "plan file"

  /// Splits at the first '=' after which a place is written, maybe of a sub-axis ("pp:(2)2=1"); if none is, at the
  /// last. A user error if there is no '='.
  static PlaceRequest parse(std::string_view text, std::string_view by);
};

}  // namespace tessera::compiler
