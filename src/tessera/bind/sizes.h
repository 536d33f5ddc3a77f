#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/bind/layered.h"
#include "tessera/kernels/kernel.h"
#include "tessera/mesh/box.h"
#include "tessera/spmd/program.h"

namespace tessera::bind {

/// A program's extents, elements of expressions and parts of tensors as numbers, for one rank and certain values of the
/// symbols. User errors name the symbol or the node.
class Sizes {
 public:
  /// The program and the coordinates must outlive it.
  Sizes(const spmd::Program& program, const std::vector<int64_t>& coordinates, Symbols symbols)
      : program_(&program), coordinates_(&coordinates), symbols_(std::move(symbols)) {}
  /// The same for other values of the symbols. `changed`: the extents that differ; all others stay.
  Sizes at(Symbols symbols, const std::unordered_map<const Value*, Dims>& changed) const;

  const Symbols& symbols() const { return symbols_; }
  /// The size of a symbol, or the rank's index along an axis ("@tp").
  int64_t lookup(std::string_view name) const;
  int64_t number(const Expr& expression) const;
  std::vector<int64_t> numbers(const std::vector<Expr>& expressions) const;

  /// Extents. Throws a user error if one is negative, or the number of elements overflows.
  Dims dims(const Value* value) const;
  /// The row-major type; undefined for null.
  kernels::TensorDesc type(const Value* value) const;
  /// The elements of a constant or an expression; nullopt if they are unknown.
  std::optional<std::vector<int64_t>> elements(const Value* value) const;

  /// The part of a value's global tensor that this rank holds, and whether this rank writes it (the first rank that
  /// holds the part does).
  Box part(const Value* value) const;
  bool writes(const Value* value) const;

  /// Throws a user error if a convolution or pooling has elements but not a single window.
  void require_windows(const Node& node) const;

  /// The extents that dims() or type() has returned.
  const std::unordered_map<const Value*, Dims>& known() const { return dims_.below(); }
  /// Lets sizes made by at() reuse the extents known so far.
  void share() { dims_.share(); }

 private:
  [[noreturn]] void refuse_unknown(std::string_view name) const;
  std::string text() const;

  const spmd::Program* program_;
  const std::vector<int64_t>* coordinates_;
  Symbols symbols_;
  mutable Layered<std::unordered_map<const Value*, Dims>> dims_;
};

}  // namespace tessera::bind
