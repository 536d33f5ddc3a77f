#include "tessera/runtime/input_sizes.h"

#include <fmt/ranges.h>

#include <set>

#include "tessera/base/error.h"

namespace tessera::runtime {
namespace {

std::string text_of(const InputDim& dim) {
  return fmt::format("'{}' dimension {}", dim.input, dim.dim);
}

// "'x' dimension 0 says batch = 3": of the extent's symbols.
std::string deciding(const Expr& extent, const SolvedSizes& solved, const std::vector<InputDim>& dims) {
  std::set<std::string> symbols;
  extent.collect_symbols(symbols);
  std::vector<std::string> reasons;
  for (const std::string& symbol : symbols)
    if (const auto found = solved.find(symbol); found != solved.end())
      reasons.push_back(fmt::format("{} says {} = {}", text_of(dims[found->second.by]), symbol, found->second.size));
  return fmt::format("{}", fmt::join(reasons, ", "));
}

[[noreturn]] void refuse_extent(const KnownExtent& given, const InputDim& dim, const SolvedSizes& solved,
                                const std::vector<InputDim>& dims) {
  const auto& [extent, size] = given;
  const auto left = with_known(extent, solved);
  const std::string begin = fmt::format("input '{}': dimension {} has extent {}, but ", dim.input, dim.dim, size);
  const std::string why = deciding(extent, solved, dims), since = why.empty() ? "" : "; " + why;
  if (extent.is_constant()) fail("inputs", "{}the model needs {}", begin, extent.str());
  if (!left) fail("inputs", "{}the model needs {}, which is not a number there{}", begin, extent.str(), since);
  if (const auto symbol = extent.as_symbol())
    fail("inputs",
         "input '{}': dimension {} ({}) has extent {}, but {} has made it {}; they must be equal. If the model means "
         "two sizes, give the symbol of one of them another name in it",
         dim.input, dim.dim, *symbol, size, text_of(dims[solved.at(*symbol).by]), left->str());
  if (left->is_constant()) fail("inputs", "{}the model needs {} ({}){}", begin, left->str(), extent.str(), since);
  std::set<std::string> unknown;
  left->collect_symbols(unknown);
  if (says_a_size(*left))
    fail("inputs", "{}the model needs {}, which no whole {} from 0 on gives{}", begin, extent.str(), *unknown.begin(),
         since);
  fail("inputs",
       "{}the model needs {}, which does not determine {}{}; replace symbols by numbers in the model, as "
       "`with_sizes` {}=SIZE does",
       begin, extent.str(), fmt::join(unknown, " and "), since, *unknown.begin());
}

}  // namespace

void InputSizes::add(const std::string& input, const Shape& shape, const Dims& dims) {
  for (size_t d = 0; d < dims.size(); ++d) {
    extents_.push_back({shape[d], dims[d]});
    dims_.push_back({input, d});
  }
}

Symbols InputSizes::solved() const {
  const SolvedSizes solved = solve_extents(extents_);
  Symbols symbols;
  for (const auto& [symbol, found] : solved) symbols[symbol] = found.size;
  for (size_t i = 0; i < extents_.size(); ++i) {
    const auto& [extent, size] = extents_[i];
    if (const auto constant = extent.constant()) {
      if (*constant == size) continue;
    } else if (const auto symbol = extent.as_symbol()) {
      if (symbols.at(*symbol) == size) continue;
    } else if (const auto known = with_known(extent, solved); known && known->is(size)) {
      continue;
    }
    refuse_extent(extents_[i], dims_[i], solved, dims_);
  }
  return symbols;
}

void InputSizes::require_expressions() const {
  const SolvedSizes solved = solve_extents(extents_);
  for (size_t i = 0; i < extents_.size(); ++i) {
    const auto& [extent, size] = extents_[i];
    if (extent.is_constant() || extent.as_symbol()) continue;
    const auto known = with_known(extent, solved);
    if (!known || (known->is_constant() && !known->is(size)) || says_a_size(*known))
      refuse_extent(extents_[i], dims_[i], solved, dims_);
  }
}

}  // namespace tessera::runtime
