#include <fmt/ranges.h>

#include "tessera/base/error.h"
#include "tessera/bind/frame.h"
#include "tessera/ops/op.h"

/// Extents and elements, as numbers.
namespace tessera::bind {

std::optional<int64_t> Binding::lookup(std::string_view name) const {
  if (auto size = spmd::look_up(name, symbols_, rank_->mesh(), rank_->coordinates())) return size;
  refuse_unknown(name);
}

// A size that no input has is one that the model declares for what depends on data.
void Binding::refuse_unknown(std::string_view name) const {
  std::vector<std::string> known;
  for (const auto& [symbol, size] : symbols_) known.push_back(symbol);
  for (const auto& node : program_.graph->nodes())
    for (const Value* result : node->outputs) {
      if (!result || !result->has_shape()) continue;
      for (const Expr& extent : result->shape()) {
        std::set<std::string> symbols;
        extent.collect_symbols(symbols);
        if (!symbols.contains(std::string(name))) continue;
        fail("bind",
             "{}: the extent '{}' of '{}' depends on data, so that no size of an input gives it (these are: {}); "
             "compute it from shapes, or declare it in these",
             node->label(), name, result->name, known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
      }
    }
  fail("bind", "nothing gives the size '{}'; the sizes of the inputs are: {}", name, fmt::join(known, ", "));
}

std::vector<int64_t> Binding::bound(const std::vector<Expr>& expressions) const {
  std::vector<int64_t> numbers;
  for (const Expr& expression : expressions)
    numbers.push_back(expression.evaluate([&](std::string_view name) { return lookup(name); }));
  return numbers;
}

std::string Binding::sizes() const {
  std::string text;
  for (const auto& [symbol, size] : symbols_) text += fmt::format("{}{}={}", text.empty() ? "" : ",", symbol, size);
  return text;
}

Dims Binding::bound_dims(const Value* value) const {
  const Shape& shape = value->shape();
  Dims dims = bound(shape);
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d] < 0)
      fail("bind", "{}: dimension {} of '{}' is {} = {} where {}; no dimension can be negative, so give other sizes",
           value->producer ? value->producer->label() : "the model", d, value->name, shape[d].str(), dims[d], sizes());
  return dims;
}

// A convolution or pooling of something has at least one window.
void Binding::require_windows(const Node& node) const {
  const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
  if (!op || !op->windows) return;
  const Dims from = bound_dims(node.inputs[0]), to = bound_dims(node.outputs[0]);
  for (size_t d = 2; d < from.size() && d < to.size(); ++d)
    if (from[d] > 0 && to[d] == 0)
      fail("bind", "{}: its windows do not fit into the {} elements of dimension {}{}; give larger sizes", node.label(),
           from[d], d, symbols_.empty() ? "" : " where " + sizes());
}

std::optional<std::vector<int64_t>> Binding::known_ints(const Value* value) const {
  if (value->kind == ValueKind::constant) return value->data.to_int64();
  if (value->kind == ValueKind::expression) return bound(*value->content);
  return std::nullopt;
}

// Row-major.
kernels::TensorDesc Binding::plain_desc(const Value* value) const {
  if (!value) return {};
  auto known = dims_.find(value);
  if (known == dims_.end()) {
    if (auto same = frame_->dims.find(value); same != frame_->dims.end()) return {value->dtype(), same->second};
    Dims dims = bound_dims(value);
    require_countable(value->dtype(), dims, value->name);
    known = dims_.emplace(value, std::move(dims)).first;
  }
  return {value->dtype(), known->second};
}

kernels::TensorDesc Binding::desc(const Value* value) const {
  kernels::TensorDesc desc = plain_desc(value);
  if (!value) return desc;
  if (auto block = frame_->blocked.find(value); block != frame_->blocked.end()) desc.block = block->second;
  if (const Alias* view = view_of(value)) desc.strides = view->strides;
  return desc;
}

}  // namespace tessera::bind
