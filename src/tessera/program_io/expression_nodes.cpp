#include "tessera/program_io/expression_nodes.h"

#include "tessera/base/error.h"

namespace tessera::program_io {
namespace {

constexpr std::string_view kPrefix = "expression";

Tensor tensor_of(const std::vector<int64_t>& elements, Dims dims, DType dtype) {
  switch (dtype) {
    case DType::int64:
      return Tensor::of(dtype, std::move(dims), elements);
    case DType::int32:
      return Tensor::of(dtype, std::move(dims), std::vector<int32_t>(elements.begin(), elements.end()));
    case DType::boolean:
      return Tensor::of(dtype, std::move(dims), std::vector<uint8_t>(elements.begin(), elements.end()));
    default:
      fail("write", "a shape operand of type {} cannot be written; it must be int64, int32 or bool", name_of(dtype));
  }
}

// ONNX's Div rounds towards zero, floordiv downwards: the same if neither operand is negative.
bool divides_downwards(const Expr& a, const Expr& b) {
  auto low = a.lower_bound(), divisor_low = b.lower_bound();
  return low && *low >= 0 && divisor_low && *divisor_low >= 0;
}

}  // namespace

Value* ExpressionNodes::apply(std::string_view op_type, std::vector<Value*> operands, std::string_view name) {
  Node* node = graph_.add_node(op_type, std::move(operands), {std::string(name.empty() ? kPrefix : name)});
  node->outputs[0]->type = {DType::int64, Shape{1}};
  return node->outputs[0];
}

Value* ExpressionNodes::number(int64_t value) {
  Value*& known = known_[std::to_string(value)];
  if (!known) known = graph_.add_constant(kPrefix, Tensor::of<int64_t>(DType::int64, {1}, {value}));
  return known;
}

Value* ExpressionNodes::atom(const Expr::Atom& atom) {
  if (auto known = known_.find(atom.key); known != known_.end()) return known->second;
  Value* result = nullptr;
  if (atom.kind == Expr::AtomKind::symbol) {
    Value* scalar = nullptr;
    if (atom.name.starts_with('@')) {
      scalar = axis_index_(atom.name.substr(1));
    } else {
      std::string name = std::string(kSymbolPrefix) + atom.name;
      scalar = graph_.add_input(name, {DType::int64, Shape{}});
      if (scalar->name != name)
        fail("write", "the model has a tensor '{}', a name that is reserved for a size; rename it", name);
    }
    result = apply("Unsqueeze", {scalar, number(0)});
  } else {
    Value* a = element(atom.arguments[0]);
    Value* b = element(atom.arguments[1]);
    switch (atom.kind) {
      case Expr::AtomKind::floordiv:
        // ONNX's Mod has the divisor's sign, so a - mod(a, b) is the multiple of b at or below a.
        if (!divides_downwards(atom.arguments[0], atom.arguments[1])) a = apply("Sub", {a, apply("Mod", {a, b})});
        result = apply("Div", {a, b});
        break;
      case Expr::AtomKind::mod:
        result = apply("Mod", {a, b});
        break;
      case Expr::AtomKind::min:
        result = apply("Min", {a, b});
        break;
      default:
        result = apply("Max", {a, b});
    }
  }
  return known_[atom.key] = result;
}

Value* ExpressionNodes::term(int64_t coefficient, const Expr::Term& term) {
  if (term.factors.empty()) return number(coefficient);
  Value* product = nullptr;
  for (const auto& factor : term.factors) product = product ? apply("Mul", {product, atom(*factor)}) : atom(*factor);
  return coefficient == 1 ? product : apply("Mul", {product, number(coefficient)});
}

Value* ExpressionNodes::element(const Expr& expr) {
  if (auto constant = expr.constant()) return number(*constant);
  if (auto known = known_.find(expr.str()); known != known_.end()) return known->second;
  Value* sum = nullptr;
  for (const Expr::Term& each : expr.terms()) {
    // Negative terms become subtractions, unless they come first.
    bool subtract = sum && each.coefficient < 0;
    Value* value = term(subtract ? -each.coefficient : each.coefficient, each);
    sum = sum ? apply(subtract ? "Sub" : "Add", {sum, value}) : value;
  }
  return known_[expr.str()] = sum;
}

Value* ExpressionNodes::value_of(const std::string& name, const std::vector<Expr>& elements, bool scalar, DType dtype) {
  Dims dims = scalar ? Dims{} : Dims{static_cast<int64_t>(elements.size())};
  if (auto numbers = constants_of(elements)) return graph_.add_constant(name, tensor_of(*numbers, dims, dtype));
  std::string key = fmt::format("{}{} {}", scalar ? "scalar " : "", to_string(elements), name_of(dtype));
  Value*& known = known_[key];
  if (known) return known;
  std::vector<Value*> pieces;
  for (const Expr& each : elements) pieces.push_back(element(each));
  Value* result = pieces[0];
  if (pieces.size() > 1) {
    result = apply("Concat", pieces, name);
    result->producer->set("axis", int64_t{0});
    result->type.shape = Shape{static_cast<int64_t>(pieces.size())};
  }
  if (scalar) {
    result = apply("Squeeze", {result, number(0)}, name);
    result->type.shape = Shape{};
  }
  if (dtype != DType::int64) {
    Shape shape = result->shape();
    result = apply("Cast", {result}, name);
    result->producer->set("to", static_cast<int64_t>(dtype));
    result->type = {dtype, shape};
  }
  return known_[key] = result;
}

}  // namespace tessera::program_io
