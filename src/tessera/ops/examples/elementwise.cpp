#include <cmath>

#include "tessera/ops/examples/examples.h"

namespace tessera::ops {
namespace {

using namespace example;

/// Real numbers by default: an element has the same bits at any position.
struct UnaryExample {
  std::string_view type;
  Fill fill = reals;
  DType dtype = DType::float32;
  float alpha = 0;
};

/// Operators that are not among them have one example, of real numbers.
constexpr UnaryExample kUnaryExamples[] = {
    {"Identity"},
    {"Identity", special},
    {"Identity", integers, DType::boolean},
    {"Identity", integers, DType::int64},
    {"Abs"},
    {"Abs", integers, DType::int8},
    {"Neg"},
    {"Neg", integers, DType::int32},
    {"Relu"},
    {"Relu", special},
    {"Exp"},
    {"Exp", reals, DType::bfloat16},
    {"Log", above_one},
    {"Sqrt", above_one},
    {"Reciprocal", nonzero},
    {"Tanh"},
    {"Tanh", reals, DType::float64},
    {"Asin", unit},
    {"Acos", unit},
    {"Acosh", above_one},
    {"Atanh", unit},
    {"LeakyRelu", reals, DType::float32, 0.1F},
    {"ThresholdedRelu", reals, DType::float32, 0.5F},
    {"Celu", reals, DType::float32, 2.0F},
    {"Swish", reals, DType::float32, 1.5F},
    {"Gelu"},
    {"Gelu", reals, DType::float16},
    {"Not", integers, DType::boolean},
    {"BitwiseNot", integers, DType::int32},
    {"IsNaN", special},
    {"IsInf", special},
};

struct BinaryExample {
  std::string_view type;
  Fill left = integers, right = integers;
  DType dtype = DType::float32;
};

/// Operators that are not among them have the examples of integers in float32.
constexpr BinaryExample kBinaryExamples[] = {
    {"Add"},
    {"Add", integers, integers, DType::int32},
    {"Add", reals, reals, DType::bfloat16},
    {"Mul"},
    {"Mul", reals, reals, DType::float64},
    {"Div", reals, nonzero},
    {"Div", integers, nonzero, DType::int64},
    {"Mod", integers, nonzero, DType::int64},
    {"Mod", reals, nonzero},
    {"Pow", positive, small},
    {"PRelu", reals, reals},
    {"And", integers, integers, DType::boolean},
    {"Or", integers, integers, DType::boolean},
    {"Xor", integers, integers, DType::boolean},
    {"BitwiseAnd", integers, integers, DType::int32},
    {"BitwiseOr", integers, integers, DType::int64},
    {"BitwiseXor", integers, integers, DType::uint8},
    {"BitShift", positive, small, DType::uint32},
    {"Equal", small, small},
    {"Equal", small, small, DType::int64},
    {"Less", small, small},
    {"Greater", small, small},
    {"LessOrEqual", small, small},
    {"GreaterOrEqual", small, small},
    {"Max"},
    {"Max", special, special},
};

Example binary_example(const BinaryExample& of, const std::string& what, const char* a, const char* b) {
  Example made{what + " of " + std::string(name_of(of.dtype)),
               {input(a, of.left, of.dtype), input(b, of.right, of.dtype)}};
  if (of.type == "BitShift") made.attributes = {{"direction", std::string("LEFT")}};
  if (of.type == "Mod" && is_float(of.dtype)) made.attributes = {{"fmod", int64_t{1}}};
  return made;
}

void add_broadcasts(std::vector<Example>& all) {
  constexpr const char* kOperands[][3] = {{"a column", "3 4", "3 1"},
                                          {"both ways", "3 1", "1 4"},
                                          {"a lower rank on the left", "4", "5 4"},
                                          {"symbolic", "b=3 4", "b=3 4"},
                                          {"symbolic and whole", "b=3 4", "1 4"},
                                          {"nothing", "0 4", "4"},
                                          {"a scalar", "3 4", ""},
                                          {"a composite row", "2 12", "12"}};
  for (const auto& [what, a, b] : kOperands) all.push_back(binary_example({"Add"}, what, a, b));
}

Attribute to(DType dtype) {
  return {"to", static_cast<int64_t>(dtype)};
}

}  // namespace

std::vector<Example> unary_examples(std::string_view type) {
  std::vector<Example> all;
  const auto add = [&](const UnaryExample& of, std::vector<Attribute> attributes = {}) {
    if (of.alpha != 0) attributes = {{"alpha", of.alpha}};
    if (type == "Shrink") attributes = {{"lambd", 0.5F}, {"bias", 0.25F}};
    all.push_back(
        {"a matrix of " + std::string(name_of(of.dtype)), {input("6 4", of.fill, of.dtype)}, std::move(attributes)});
  };
  for (const UnaryExample& of : kUnaryExamples)
    if (of.type == type) add(of);
  if (all.empty()) add({type});
  if (type == "Gelu") add({type}, {{"approximate", std::string("tanh")}});
  if (type == "IsInf") add({type, special}, {{"detect_negative", int64_t{0}}});
  if (type == "Relu") all.push_back({"symbolic", {input("b=3 4")}});
  if (type == "Exp") all.push_back({"nothing", {input("0 4", reals)}});
  if (type == "Tanh") all.push_back({"more than one vector", {input("3 35", reals)}});
  if (type == "Neg") all.push_back({"a scalar", {input("")}});
  return all;
}

std::vector<Example> binary_examples(std::string_view type) {
  std::vector<Example> all;
  const auto add = [&](const BinaryExample& of) {
    all.push_back(binary_example(of, "equal shapes", "6 4", "6 4"));
    all.push_back(binary_example(of, "a row", "2 3 4", "4"));
  };
  for (const BinaryExample& of : kBinaryExamples)
    if (of.type == type) add(of);
  if (all.empty()) add({type});
  if (type == "Add") add_broadcasts(all);
  // Sums pass a product with some numbers and not with others.
  if (type == "Mul" || type == "Div")
    for (const auto& [name, factor] : std::initializer_list<std::pair<const char*, float>>{
             {"0.25", 0.25F}, {"-2", -2.0F}, {"0", 0.0F}, {"1e-40", 1e-40F}, {"inf", INFINITY}})
      all.push_back({std::string("by ") + name, {input("4 6"), number(factor)}});
  return all;
}

std::vector<Example> variadic_examples(std::string_view type) {
  std::vector<Example> all = binary_examples(type);
  all.push_back({"three operands", {input("4 3"), input("3"), input("4 1")}});
  all.push_back({"one operand", {input("4 3")}});
  return all;
}

std::vector<Example> clip_examples(std::string_view) {
  return {
      {"both ends", {input("6 4"), number(-2), number(3)}},
      {"the upper end", {input("6 4"), left_out(), number(3)}},
      {"ends from inputs", {input("6 4"), input("", small), input("", positive)}},
  };
}

std::vector<Example> where_examples(std::string_view) {
  const auto flag = [](const char* extents) { return input(extents, integers, DType::boolean); };
  return {
      {"equal shapes", {flag("4 6"), input("4 6"), input("4 6")}},
      {"all broadcast", {flag("4 1"), input("2 4 6", special), input("")}},
      {"booleans", {flag("4 3"), flag("4 3"), flag("3")}},
  };
}

std::vector<Example> cast_examples(std::string_view) {
  std::vector<Example> all;
  const auto add = [&](DType from, DType target, Fill fill = integers) {
    all.push_back(
        {std::string(name_of(from)) + " to " + std::string(name_of(target)), {input("6 4", fill, from)}, {to(target)}});
  };
  add(DType::float32, DType::int64);
  add(DType::int64, DType::float32);
  add(DType::int32, DType::boolean);
  add(DType::boolean, DType::float32);
  add(DType::float32, DType::bfloat16, reals);
  add(DType::bfloat16, DType::float32, reals);
  add(DType::float32, DType::float8e4m3fn, reals);
  add(DType::float32, DType::float8e5m2, reals);
  add(DType::float32, DType::int4);
  add(DType::float32, DType::uint2, small);
  return all;
}

std::vector<Example> bit_cast_examples(std::string_view) {
  return {{"float32 to int32", {input("6 4", reals)}, {to(DType::int32)}}};
}

std::vector<Example> cast_like_examples(std::string_view) {
  return {{"the type of another", {input("6 4"), input("3", integers, DType::int32)}}};
}

std::vector<Example> inference_dropout_examples(std::string_view) {
  return {{"of inference", {input("6 4")}}, {"with its mask", {input("6 4"), number(0.3F)}, {}, none, 2}};
}

}  // namespace tessera::ops
