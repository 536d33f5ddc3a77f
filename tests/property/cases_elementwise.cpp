#include <fmt/format.h>

#include <cmath>

#include "property/cases.h"

namespace tessera::property {
namespace {

using Operands = std::vector<Value*>;

struct Unary {
  std::string_view type;
  Fill fill = Fill::reals;
  DType dtype = DType::float32;
  std::vector<Attribute> attributes = {};
};

// Real numbers: an element has the same bits wherever it lies.
std::vector<Unary> unary_operators() {
  return {
      {"Identity"},
      {"Abs"},
      {"Neg"},
      {"Sign"},
      {"Relu"},
      {"Shrink", Fill::reals, DType::float32, {{"lambd", 0.5f}, {"bias", 0.25f}}},
      {"Exp"},
      {"Log", Fill::above_one},
      {"Sqrt", Fill::above_one},
      {"Reciprocal", Fill::nonzero},
      {"Sin"},
      {"Cos"},
      {"Tan"},
      {"Sinh"},
      {"Cosh"},
      {"Tanh"},
      {"Asin", Fill::unit},
      {"Acos", Fill::unit},
      {"Atan"},
      {"Asinh"},
      {"Acosh", Fill::above_one},
      {"Atanh", Fill::unit},
      {"Sigmoid"},
      {"Erf"},
      {"LeakyRelu", Fill::reals, DType::float32, {{"alpha", 0.1f}}},
      {"ThresholdedRelu", Fill::reals, DType::float32, {{"alpha", 0.5f}}},
      {"Elu"},
      {"Selu"},
      {"Celu", Fill::reals, DType::float32, {{"alpha", 2.0f}}},
      {"HardSigmoid"},
      {"HardSwish"},
      {"Mish"},
      {"Softplus"},
      {"Softsign"},
      {"Gelu"},
      {"Gelu", Fill::reals, DType::float32, {{"approximate", std::string("tanh")}}},
      {"Swish", Fill::reals, DType::float32, {{"alpha", 1.5f}}},
      {"Floor"},
      {"Ceil"},
      {"Round"},
      {"Not", Fill::integers, DType::boolean},
      {"BitwiseNot", Fill::integers, DType::int32},
      {"IsNaN", Fill::special},
      {"IsInf", Fill::special},
      {"IsInf", Fill::special, DType::float32, {{"detect_negative", int64_t{0}}}},
      // Other types, where a kernel of its own computes them.
      {"Identity", Fill::special},
      {"Identity", Fill::integers, DType::boolean},
      {"Identity", Fill::integers, DType::int64},
      {"Neg", Fill::integers, DType::int32},
      {"Abs", Fill::integers, DType::int8},
      {"Relu", Fill::special},
      {"Exp", Fill::reals, DType::bfloat16},
      {"Tanh", Fill::reals, DType::float64},
      {"Gelu", Fill::reals, DType::float16},
  };
}

void add_unary(CaseList& list) {
  for (const Unary& op : unary_operators()) {
    list.add(
        op.type, "a matrix of " + std::string(name_of(op.dtype)),
        [&](Builder& b) -> Operands { return {b.input("6 4", op.fill, op.dtype)}; }, op.attributes);
  }
  list.add("Relu", "symbolic", [](Builder& b) -> Operands { return {b.bind("b", 3).input("b 4")}; });
  list.add("Exp", "nothing", [](Builder& b) -> Operands { return {b.input("0 4", Fill::reals)}; });
  list.add("Tanh", "more than one vector", [](Builder& b) -> Operands { return {b.input("3 35", Fill::reals)}; });
  list.add("Neg", "a scalar", [](Builder& b) -> Operands { return {b.input("")}; });
}

struct Binary {
  std::string_view type;
  Fill left = Fill::integers, right = Fill::integers;
  DType dtype = DType::float32;
  std::vector<Attribute> attributes = {};
};

std::vector<Binary> binary_operators() {
  Attribute left{"direction", std::string("LEFT")};
  return {
      {"Add"},
      {"Sub"},
      {"Mul"},
      {"Div", Fill::reals, Fill::nonzero},
      {"Mod", Fill::integers, Fill::nonzero, DType::int64},
      {"Mod", Fill::reals, Fill::nonzero, DType::float32, {{"fmod", int64_t{1}}}},
      {"Pow", Fill::positive, Fill::small},
      {"PRelu", Fill::reals, Fill::reals},
      {"And", Fill::integers, Fill::integers, DType::boolean},
      {"Or", Fill::integers, Fill::integers, DType::boolean},
      {"Xor", Fill::integers, Fill::integers, DType::boolean},
      {"BitwiseAnd", Fill::integers, Fill::integers, DType::int32},
      {"BitwiseOr", Fill::integers, Fill::integers, DType::int64},
      {"BitwiseXor", Fill::integers, Fill::integers, DType::uint8},
      {"BitShift", Fill::positive, Fill::small, DType::uint32, {left}},
      {"Equal", Fill::small, Fill::small},
      {"Less", Fill::small, Fill::small},
      {"Greater", Fill::small, Fill::small},
      {"LessOrEqual", Fill::small, Fill::small},
      {"GreaterOrEqual", Fill::small, Fill::small},
      {"Max"},
      {"Min"},
      {"Sum"},
      {"Mean"},
      {"Add", Fill::integers, Fill::integers, DType::int32},
      {"Add", Fill::reals, Fill::reals, DType::bfloat16},
      {"Div", Fill::integers, Fill::nonzero, DType::int64},
      {"Mul", Fill::reals, Fill::reals, DType::float64},
      {"Equal", Fill::small, Fill::small, DType::int64},
      {"Max", Fill::special, Fill::special},
  };
}

void add_binary(CaseList& list) {
  auto add = [&](const Binary& op, std::string_view what, std::string_view a, std::string_view b) {
    list.add(
        op.type, std::string(what) + " of " + std::string(name_of(op.dtype)),
        [&](Builder& builder) -> Operands {
          builder.bind("b", 3);
          return {builder.input(a, op.left, op.dtype), builder.input(b, op.right, op.dtype)};
        },
        op.attributes);
  };
  for (const Binary& op : binary_operators()) {
    add(op, "equal shapes", "6 4", "6 4");
    add(op, "a row", "2 3 4", "4");
  }
  Binary sum{"Add"};
  add(sum, "a column", "3 4", "3 1");
  add(sum, "both ways", "3 1", "1 4");
  add(sum, "a lower rank on the left", "4", "5 4");
  add(sum, "symbolic", "b 4", "b 4");
  add(sum, "symbolic and whole", "b 4", "1 4");
  add(sum, "nothing", "0 4", "4");
  add(sum, "a scalar", "3 4", "");
  add(sum, "a composite row", "2 12", "12");
}

// Sums pass a product with some numbers and not with others.
void add_scales(CaseList& list) {
  for (double number : std::vector<double>{0.25, -2.0, 0.0, 1e-40, INFINITY})
    for (std::string_view type : {"Mul", "Div"})
      list.add(type, fmt::format("by {}", number), [number](Builder& b) -> Operands {
        return {b.input("4 6"), b.number(number)};
      });
}

void add_others(CaseList& list) {
  auto inputs = [](Builder& b) -> Operands { return {b.input("4 3"), b.input("3"), b.input("4 1")}; };
  for (std::string_view type : {"Max", "Min", "Sum", "Mean"}) {
    list.add(type, "three operands", inputs);
    list.add(type, "one operand", [](Builder& b) -> Operands { return {b.input("4 3")}; });
  }
  list.add("Clip", "both ends", [](Builder& b) -> Operands { return {b.input("6 4"), b.number(-2), b.number(3)}; });
  list.add("Clip", "the upper end", [](Builder& b) -> Operands { return {b.input("6 4"), nullptr, b.number(3)}; });
  list.add("Clip", "ends from inputs", [](Builder& b) -> Operands {
    return {b.input("6 4"), b.input("", Fill::small), b.input("", Fill::positive)};
  });
  list.add("Where", "equal shapes", [](Builder& b) -> Operands {
    return {b.input("4 6", Fill::integers, DType::boolean), b.input("4 6"), b.input("4 6")};
  });
  list.add("Where", "all broadcast", [](Builder& b) -> Operands {
    return {b.input("4 1", Fill::integers, DType::boolean), b.input("2 4 6", Fill::special), b.input("")};
  });
  list.add("Where", "booleans", [](Builder& b) -> Operands {
    auto flag = [&](std::string_view extents) { return b.input(extents, Fill::integers, DType::boolean); };
    return {flag("4 3"), flag("4 3"), flag("3")};
  });
  auto to = [](DType dtype) { return Attribute{"to", static_cast<int64_t>(dtype)}; };
  auto cast = [&](DType from, DType target, Fill fill = Fill::integers) {
    list.add("Cast", std::string(name_of(from)) + " to " + std::string(name_of(target)),
             [&](Builder& b) -> Operands { return {b.input("6 4", fill, from)}; }, {to(target)});
  };
  cast(DType::float32, DType::float8e4m3fn, Fill::reals);
  cast(DType::float32, DType::float8e5m2, Fill::reals);
  cast(DType::float32, DType::int4);
  cast(DType::float32, DType::uint2, Fill::small);
  list.add("BitCast", "float32 to int32", [](Builder& b) -> Operands { return {b.input("6 4", Fill::reals)}; },
           {to(DType::int32)});
  cast(DType::float32, DType::int64);
  cast(DType::int64, DType::float32);
  cast(DType::int32, DType::boolean);
  cast(DType::boolean, DType::float32);
  cast(DType::float32, DType::bfloat16, Fill::reals);
  cast(DType::bfloat16, DType::float32, Fill::reals);
  list.add("CastLike", "the type of another", [](Builder& b) -> Operands {
    return {b.input("6 4"), b.input("3", Fill::integers, DType::int32)};
  });
  list.add("Dropout", "of inference", [](Builder& b) -> Operands { return {b.input("6 4")}; });
  list.add(
      "Dropout", "with its mask",
      [](Builder& b) -> Operands {
        return {b.input("6 4"), b.number(0.3)};
      },
      {}, kExact, 2);
}

}  // namespace

std::vector<Subject> elementwise_cases() {
  CaseList list;
  add_unary(list);
  add_binary(list);
  add_scales(list);
  add_others(list);
  return list.take();
}

}  // namespace tessera::property
