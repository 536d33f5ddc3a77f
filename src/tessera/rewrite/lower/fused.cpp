#include <array>
#include <optional>

#include "tessera/ops/library/infer.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/lower/lower.h"

// Products that ONNX Runtime's optimizer wrote as one operator with what comes before or after them: an activation, or
// the quantization of an operand and the scale of the result.
namespace tessera::rewrite {
namespace {

using ops::fail_node;
using Values = std::vector<Value*>;

/// An activation, and what its parameters are called, in the order in which a list gives them.
struct Activation {
  std::string_view op_type;
  std::array<std::string_view, 2> parameters = {};
};
constexpr std::array<Activation, 11> kActivations = {{
    {"Relu"},
    {"Sigmoid"},
    {"Tanh"},
    {"Softplus"},
    {"Softsign"},
    {"LeakyRelu", {"alpha"}},
    {"Elu", {"alpha"}},
    {"ThresholdedRelu", {"alpha"}},
    {"HardSigmoid", {"alpha", "beta"}},
    {"Selu", {"alpha", "gamma"}},
    {"Clip", {"min", "max"}},
}};

/// The activation of `y` that the node names. `parameter` returns parameter `name`, which has number `index`; nullopt:
/// the operator's default.
template <typename Parameter>
Value* activated(Lowerer& l, Value* y, const Parameter& parameter) {
  const auto* name = l.node.get<std::string>("activation");
  if (!name || name->empty()) return y;
  for (const Activation& known : kActivations) {
    if (known.op_type != *name) continue;
    std::vector<Attribute> attributes;
    std::vector<Value*> operands = {y};
    for (size_t i = 0; i < known.parameters.size() && !known.parameters[i].empty(); ++i) {
      const std::optional<float> given = parameter(i, known.parameters[i]);
      if (known.op_type == "Clip")  // whose bounds are operands
        operands.push_back(given ? l.b.number(y, *given) : nullptr);
      else if (given)
        attributes.push_back(attribute(known.parameters[i], *given));
    }
    return l.b.emit(known.op_type, operands, attributes);
  }
  fail_node(l.node, "its activation '{}' is not supported; export the model without this fusion", *name);
}

/// The node's attributes that are the plain operator's own.
std::vector<Attribute> own_attributes(const Node& node) {
  std::vector<Attribute> own = node.attributes;
  std::erase_if(own, [](const Attribute& a) { return a.name.starts_with("activation"); });
  return own;
}

Values fused_conv(Lowerer& l) {
  constexpr size_t kBias = 2, kAddend = 3;
  Value* y = l.b.emit("Conv", {l.in(0), l.in(1), l.in(kBias)}, own_attributes(l.node));
  if (l.has(kAddend)) y = l.b.add(y, l.in(kAddend));
  const auto* given = l.node.get<std::vector<float>>("activation_params");
  return {activated(l, y, [&](size_t index, std::string_view) {
    return given && index < given->size() ? std::optional(given->at(index)) : std::nullopt;
  })};
}

Values fused_gemm(Lowerer& l) {
  Value* y = l.b.emit("Gemm", {l.in(0), l.in(1), l.in(2)}, own_attributes(l.node));
  return {activated(l, y, [&](size_t, std::string_view name) {
    const auto* given = l.node.get<float>("activation_" + std::string(name));
    return given ? std::optional(*given) : std::nullopt;
  })};
}

Values matmul_integer_to_float(Lowerer& l) {
  for (const size_t of_a : {2, 4})
    if (l.has(of_a) && !product(l.in(of_a)->shape()).is(1))
      fail_node(l.node, "operand {} has the shape {}; its left matrix can have one scale and one zero point", of_a,
                to_string(l.in(of_a)->shape()));
  return {scaled_product(l.b, l.node, {l.in(0), l.b.as_number(l.in(2)), l.b.as_number(l.in(4))},
                         {l.in(1), l.in(3), l.in(5)}, l.in(6))};
}

}  // namespace

Value* scaled_product(ops::NodeBuilder& b, const Node& node, const Codes& left, const Codes& right, Value* bias) {
  const DType dtype = left.scale->dtype();
  const auto wide = [&](Value* value) { return b.cast(value, DType::float32); };
  Value* sums = integer_product(b, node, left.codes, left.zero, right.codes, right.zero);
  Value* y = b.cast(b.mul(wide(sums), b.mul(wide(left.scale), wide(b.as_number(right.scale)))), dtype);
  return bias ? b.add(y, bias) : y;
}

std::vector<Lowering> fused_lowerings() {
  std::vector<Lowering> rows = {
      {"FusedConv", 2, fused_conv},
      {"FusedGemm", 2, fused_gemm},
      {"MatMulIntegerToFloat", 4, matmul_integer_to_float},
  };
  for (Lowering& row : rows) row.domain = "com.microsoft";
  return rows;
}

}  // namespace tessera::rewrite
