#include <set>

#include "tessera/base/error.h"
#include "tessera/program_io/rank_model.h"

namespace tessera::program_io {
namespace {

bool reads_back(const std::string& symbol) {
  auto parsed = Expr::parse(symbol);
  return parsed && parsed->as_symbol() == symbol && !symbol.starts_with('@');
}

std::string plain_form(const std::string& symbol) {
  std::string plain;
  for (char c : symbol) plain += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return plain.empty() || std::isdigit(static_cast<unsigned char>(plain[0])) ? "size_" + plain : plain;
}

}  // namespace

SymbolNames::SymbolNames(const spmd::Program& program) {
  std::set<std::string> symbols, taken;
  auto collect = [&](const Shape& shape) {
    for (const Expr& extent : shape) extent.collect_symbols(symbols);
  };
  for (const auto& value : program.graph->values()) {
    if (value->has_shape()) collect(value->shape());
    if (value->content) collect(*value->content);
  }
  for (const auto& [value, placement] : program.placements) collect(*placement.global.shape);
  for (const auto& [symbol, value] : program.hints) symbols.insert(symbol);
  for (const std::string& symbol : symbols)
    if (reads_back(symbol)) taken.insert(symbol);
  for (const std::string& symbol : symbols) {
    if (symbol.starts_with('@') || taken.contains(symbol)) continue;
    std::string wanted = plain_form(symbol), plain = wanted;
    for (int i = 2; taken.contains(plain); ++i) plain = fmt::format("{}_{}", wanted, i);
    taken.insert(plain);
    renamed_[symbol] = plain;
  }
}

std::string SymbolNames::rename(const std::string& symbol) const {
  auto found = renamed_.find(symbol);
  return found == renamed_.end() ? symbol : found->second;
}

Expr SymbolNames::rename(const Expr& expr) const {
  if (renamed_.empty()) return expr;
  return expr.substitute([&](std::string_view name) -> std::optional<Expr> {
    auto found = renamed_.find(name);
    return found == renamed_.end() ? std::nullopt : std::optional(Expr::symbol(found->second));
  });
}

Shape SymbolNames::rename(const Shape& shape) const {
  Shape result;
  for (const Expr& extent : shape) result.push_back(rename(extent));
  return result;
}

Sharding SymbolNames::rename(Sharding sharding) const {
  for (DimSharding& dim : sharding.dims)
    for (Part& part : dim.parts) part.size = rename(part.size);
  return sharding;
}

}  // namespace tessera::program_io
