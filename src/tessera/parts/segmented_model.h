#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tessera/compiler/source.h"
#include "tessera/parts/segments.h"
#include "tessera/tensors.h"

namespace tessera::parts {

/// A model and its parts: one part if a single program can run it. Immutable.
struct SegmentedModel : compiler::Source {
  using Source::Source;

  /// Its parts, computed once. Throws like segments_of().
  const std::vector<Segment>& segments() const;
  /// The reason for more than one part, if only rewriting the model showed it; else empty.
  const std::string& why_in_parts() const;

  bool runs_in_parts() const { return segments().size() > 1; }
  /// The same for inputs of these shapes, for which two symbols may differ that a branch or loop assumes to be equal.
  bool runs_in_parts(const Tensors& inputs) const;
  /// Inputs of the model whose elements must be known before it, or one of its parts, is compiled.
  std::vector<std::string> value_inputs() const;
  /// What these inputs have for them. Throws a user error for one that is missing or has another rank.
  Tensors needed_values(const Tensors& inputs) const;
  /// Symbols whose sizes must be known before it is compiled.
  const std::set<std::string>& size_symbols() const { return segments().front().sizes; }
  /// Whether one program runs it for all inputs.
  bool is_one_program() const;

  /// The same object for another model, read from the same files.
  std::shared_ptr<const SegmentedModel> with(OnnxModel changed) const;
  /// Throws as compiler::require_symbols() does.
  std::shared_ptr<const SegmentedModel> with_sizes(const Symbols& sizes) const;
  /// Throws as parts::with_values() does.
  std::shared_ptr<const SegmentedModel> with_values(const Tensors& values) const;

 private:
  mutable std::mutex mutex_;
  mutable std::vector<Segment> segments_;
  mutable std::string why_in_parts_;
};

}  // namespace tessera::parts
