#include "tessera/rewrite/canonical/uniform.h"

#include <algorithm>
#include <map>

#include "tessera/rewrite/edit.h"

namespace tessera::rewrite {
namespace {

/// How many elements of its operand a ReduceSum adds up in each element; nullopt if its axes are not known.
std::optional<Expr> count_summed(const Node& node) {
  const Shape& shape = node.inputs[0]->shape();
  const auto axes = node.input(1) ? numbers(node.input(1)) : std::vector<int64_t>{};
  if (!axes) return std::nullopt;
  Expr count = 1;
  if (axes->empty()) {
    if (node.get_int("noop_with_empty_axes", 0) == 0)
      for (const Expr& extent : shape) count = count * extent;
    return count;
  }
  for (int64_t axis : *axes) count = count * shape.at(static_cast<size_t>(axis < 0 ? axis + shape.size() : axis));
  return count;
}

class Uniform {
 public:
  std::optional<Expr> element(const Value* value) {
    if (!value || !value->has_shape() || is_float(value->dtype())) return std::nullopt;
    const auto [found, is_new] = found_.try_emplace(value);  // references into a map stay valid
    if (is_new) found->second = derived(*value);
    return found->second;
  }

 private:
  std::optional<Expr> derived(const Value& value) {
    if (const auto known = contents(&value); known && !known->empty())
      return std::all_of(known->begin(), known->end(), [&](const Expr& element) { return element == known->front(); })
                 ? std::optional(known->front())
                 : std::nullopt;
    const Node* node = value.producer;
    // Narrow integers may wrap around.
    if (!node || (value.dtype() != DType::int64 && value.dtype() != DType::int32)) return std::nullopt;
    if (node->is("Add") || node->is("Sub") || node->is("Mul")) return combined(*node);
    if (node->is("ReduceSum")) {
      const auto summed = element(node->input(0));
      const auto count = summed ? count_summed(*node) : std::nullopt;
      return count ? std::optional(*summed * *count) : std::nullopt;
    }
    for (const char* moves : {"Cast", "Expand", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Slice"})
      if (node->is(moves)) return element(node->input(0));
    return std::nullopt;
  }

  std::optional<Expr> combined(const Node& node) {
    const auto a = element(node.input(0)), b = element(node.input(1));
    if (!a || !b) return std::nullopt;
    if (node.is("Add")) return *a + *b;
    if (node.is("Sub")) return *a - *b;
    return *a * *b;
  }

  std::map<const Value*, std::optional<Expr>> found_;
};

}  // namespace

std::optional<Expr> uniform_element(const Value* value) {
  return Uniform().element(value);
}

}  // namespace tessera::rewrite
