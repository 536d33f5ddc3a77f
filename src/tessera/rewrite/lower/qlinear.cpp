#include "tessera/ops/library/infer.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/lower/lower.h"

// Operators of com.microsoft that ONNX Runtime's static quantizer writes in its format QOperator: each is a function of
// floats between DequantizeLinear and QuantizeLinear. Later, products among them become products of integers
// (raise/quantized.cpp).
namespace tessera::rewrite {
namespace {

using ops::fail_node;
using Values = std::vector<Value*>;

// Operand `x` as floats; its scale and zero point are the next two operands. A list of scales is along `axis`.
Value* dequantized_operand(Lowerer& l, size_t x, int64_t axis = 1) {
  if (!l.has(x) || !l.has(x + 1)) fail_node(l.node, "its operand {} and the scale after it must be given", x);
  std::vector<Attribute> attributes;
  if (l.in(x + 1)->rank() == 1) attributes.push_back(attribute("axis", axis));
  return l.b.emit("DequantizeLinear", {l.in(x), l.b.as_number(l.in(x + 1)), l.b.as_number(l.in(x + 2))}, attributes);
}

// `y`, quantized with operand `scale` and the zero point after it. Without a zero point, codes have the type of operand
// `like`.
Values quantized_result(Lowerer& l, Value* y, size_t scale, size_t like) {
  if (!l.has(scale)) fail_node(l.node, "its operand {}, the scale of its result, must be given", scale);
  std::vector<Attribute> attributes;
  if (!l.has(scale + 1)) attributes.push_back(attribute("output_dtype", static_cast<int64_t>(l.in(like)->dtype())));
  return {l.b.emit("QuantizeLinear", {y, l.b.as_number(l.in(scale)), l.b.as_number(l.in(scale + 1))}, attributes)};
}

template <const std::string_view& Type>
Values of_two(Lowerer& l) {
  return quantized_result(l, l.b.emit(Type, {dequantized_operand(l, 0), dequantized_operand(l, 3)}), 6, 0);
}

template <const std::string_view& Type>
Values of_one(Lowerer& l) {
  if (l.node.get_int("channels_last", 0) != 0)
    fail_node(l.node, "its channels come last, which is not supported; use the layout [batch, channels, …]");
  std::vector<Attribute> attributes = l.node.attributes;
  std::erase_if(attributes, [](const Attribute& a) { return a.name == "channels_last" || a.name == "opset"; });
  return quantized_result(l, l.b.emit(Type, {dequantized_operand(l, 0)}, attributes), 3, 0);
}

// Before opset 13, Softmax took all dimensions from `axis` on as one.
Values softmax(Lowerer& l) {
  constexpr int64_t kOneDimension = 13;
  const size_t rank = l.in(0)->rank();
  const bool is_old = l.node.get_int("opset", kOneDimension) < kOneDimension;
  const int64_t axis = axis_of(l.node, "axis", is_old ? 1 : -1, rank);
  const Shape& x = l.in(0)->shape();
  if (is_old && !product(Shape(x.begin() + axis + 1, x.end())).is(1))
    fail_node(l.node, "it takes several dimensions as one, which is not supported; convert the model to opset 13");
  return quantized_result(l, l.b.emit("Softmax", {dequantized_operand(l, 0)}, {attribute("axis", axis)}), 3, 0);
}

Values concat(Lowerer& l) {
  std::vector<Value*> parts;
  for (size_t x = 2; x < l.node.inputs.size(); x += 3) parts.push_back(dequantized_operand(l, x));
  return quantized_result(l, l.b.emit("Concat", parts, {attribute("axis", l.node.get_int("axis", 0))}), 0, 2);
}

Values gemm(Lowerer& l) {
  constexpr size_t kB = 3, kC = 6, kScale = 7;
  const bool turned = l.node.get_int("transB", 0) != 0;
  std::vector<Value*> operands = {dequantized_operand(l, 0), dequantized_operand(l, kB, turned ? 0 : 1)};
  if (l.has(kC)) {
    // Its scale is that of the sums that it is added to.
    Value* scale = l.b.mul(l.b.as_number(l.in(1)), l.b.as_number(l.in(kB + 1)));
    scale = l.b.mul(scale, static_cast<double>(l.node.get_float("alpha", 1)));
    operands.push_back(l.b.mul(l.b.cast(l.in(kC), DType::float32), scale));
  }
  Value* y = l.b.emit("Gemm", operands, l.node.attributes);
  return l.has(kScale) ? quantized_result(l, y, kScale, 0) : Values{y};
}

Values where(Lowerer& l) {
  constexpr size_t kX = 1, kY = 4, kScale = 7;
  return quantized_result(l, l.b.where(l.in(0), dequantized_operand(l, kX), dequantized_operand(l, kY)), kScale, kX);
}

constexpr std::string_view kQuantizerDomain = "com.microsoft";
constexpr std::string_view kAdd = "Add", kMul = "Mul", kSigmoid = "Sigmoid", kLeakyRelu = "LeakyRelu",
                           kAveragePool = "AveragePool", kGlobalAveragePool = "GlobalAveragePool";

}  // namespace

std::vector<Lowering> qlinear_lowerings() {
  const auto row = [](std::string_view op_type, size_t operands, Values (*lower)(Lowerer&)) {
    return Lowering{.op_type = op_type, .operands = operands, .lower = lower, .domain = kQuantizerDomain};
  };
  return {
      row("QLinearAdd", 2, of_two<kAdd>),
      row("QLinearMul", 2, of_two<kMul>),
      row("QLinearSigmoid", 2, of_one<kSigmoid>),
      row("QLinearLeakyRelu", 2, of_one<kLeakyRelu>),
      row("QLinearAveragePool", 2, of_one<kAveragePool>),
      row("QLinearGlobalAveragePool", 2, of_one<kGlobalAveragePool>),
      row("QLinearSoftmax", 2, softmax),
      row("QLinearConcat", 1, concat),
      row("QGemm", 2, gemm),
      row("QLinearWhere", 2, where),
  };
}

}  // namespace tessera::rewrite
