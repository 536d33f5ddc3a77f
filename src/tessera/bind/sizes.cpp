#include "tessera/bind/sizes.h"

#include <fmt/ranges.h>

#include <set>

#include "tessera/base/error.h"
#include "tessera/ops/op.h"
#include "tessera/spmd/partition/held_part.h"

namespace tessera::bind {

Sizes Sizes::at(Symbols symbols, const std::unordered_map<const Value*, Dims>& changed) const {
  Sizes sizes(*program_, *coordinates_, std::move(symbols));
  sizes.dims_ = dims_.fresh();
  for (const auto& [value, dims] : changed) sizes.dims_.set(value, dims);
  return sizes;
}

int64_t Sizes::lookup(std::string_view name) const {
  if (auto size = spmd::look_up(name, symbols_, program_->mesh, *coordinates_)) return *size;
  refuse_unknown(name);
}

// A size that no input has is declared by the model for a tensor whose extents depend on data.
void Sizes::refuse_unknown(std::string_view name) const {
  std::vector<std::string> known;
  for (const auto& [symbol, size] : symbols_) known.push_back(symbol);
  for (const auto& node : program_->graph->nodes())
    for (const Value* result : node->outputs) {
      if (!result || !result->has_shape()) continue;
      for (const Expr& extent : result->shape()) {
        std::set<std::string> symbols;
        extent.collect_symbols(symbols);
        if (!symbols.contains(std::string(name))) continue;
        fail("bind",
             "{}: the extent '{}' of '{}' depends on data, so no input's size determines it (sizes: {}); compute "
             "it from shapes, or declare it in these",
             node->label(), name, result->name, known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
      }
    }
  fail("bind", "no input determines the size '{}'; the sizes of the inputs are: {}", name, fmt::join(known, ", "));
}

int64_t Sizes::number(const Expr& expression) const {
  return expression.evaluate([this](std::string_view name) { return std::optional(lookup(name)); });
}

std::vector<int64_t> Sizes::numbers(const std::vector<Expr>& expressions) const {
  std::vector<int64_t> numbers;
  numbers.reserve(expressions.size());
  for (const Expr& expression : expressions) numbers.push_back(number(expression));
  return numbers;
}

std::string Sizes::text() const {
  std::string text;
  for (const auto& [symbol, size] : symbols_) text += fmt::format("{}{}={}", text.empty() ? "" : ",", symbol, size);
  return text;
}

Dims Sizes::dims(const Value* value) const {
  const Shape& shape = value->shape();
  Dims dims = numbers(shape);
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d] < 0)
      fail("bind", "{}: dimension {} of '{}' is {} = {} where {}; no dimension can be negative, so give other sizes",
           value->producer ? value->producer->label() : "the model", d, value->name, shape[d].str(), dims[d], text());
  return dims;
}

kernels::TensorDesc Sizes::type(const Value* value) const {
  if (!value) return {};
  if (const Dims* known = dims_.find(value)) return {value->dtype(), *known};
  Dims bound = dims(value);
  require_countable(value->dtype(), bound, value->name);
  return {value->dtype(), dims_.set(value, std::move(bound))};
}

std::optional<std::vector<int64_t>> Sizes::elements(const Value* value) const {
  if (value->kind == ValueKind::constant) return value->data.to_int64();
  if (value->kind == ValueKind::expression) return numbers(*value->content);
  return std::nullopt;
}

Box Sizes::part(const Value* value) const {
  return spmd::held_part(*program_, value, *coordinates_, symbols_);
}

bool Sizes::writes(const Value* value) const {
  return spmd::writes_part(*program_, value, *coordinates_);
}

void Sizes::require_windows(const Node& node) const {
  const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
  if (!op || !op->windows) return;
  const Dims from = dims(node.inputs[0]), to = dims(node.outputs[0]);
  for (size_t d = 2; d < from.size() && d < to.size(); ++d)
    if (from[d] > 0 && to[d] == 0)
      fail("bind", "{}: its windows do not fit into the {} elements of dimension {}{}; give larger sizes", node.label(),
           from[d], d, symbols_.empty() ? "" : " where " + text());
}

}  // namespace tessera::bind
