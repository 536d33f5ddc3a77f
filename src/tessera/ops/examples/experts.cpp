#include "tessera/ir/experts.h"

#include "tessera/ops/examples/examples.h"

namespace tessera::ops {
namespace {

using namespace example;

const Attribute kRelu{"activation", std::string("relu")};

struct Form {
  std::string what = "";
  std::string activation = "relu", gated = "no";
  bool biases = false;
  int64_t tokens = 5, choices = 2, experts = 4;
  DType dtype = DType::float32;
  Fill fill = small;
  std::vector<Attribute> more = {};
};

bool is_fused(std::string_view gated) {
  return gated == "halves" || gated == "interleaved";
}

std::string extents(std::initializer_list<int64_t> dims) {
  std::string text;
  for (const int64_t extent : dims) text += (text.empty() ? "" : " ") + std::to_string(extent);
  return text;
}

std::vector<ExampleOperand> operands_of(const Form& form) {
  constexpr int64_t kIn = 6, kHidden = 4, kOut = 3;
  const int64_t columns = is_fused(form.gated) ? 2 * kHidden : kHidden;
  const auto matrix = [&](std::initializer_list<int64_t> dims) { return weight(extents(dims), form.fill, form.dtype); };
  std::vector<ExampleOperand> all(ExpertsOperand::offset);
  all[ExpertsOperand::tokens] = input(extents({form.tokens, kIn}), form.fill, form.dtype);
  all[ExpertsOperand::choices] = indices(extents({form.tokens, form.choices}), -1, form.experts);
  all[ExpertsOperand::weights] = input(extents({form.tokens, form.choices}), form.fill, form.dtype);
  all[ExpertsOperand::gate] = matrix({form.experts, kIn, columns});
  all[ExpertsOperand::down] = matrix({form.experts, kHidden, kOut});
  if (form.gated == "apart") all[ExpertsOperand::up] = matrix({form.experts, kIn, kHidden});
  if (!form.biases) return all;
  all[ExpertsOperand::gate_bias] = matrix({form.experts, columns});
  all[ExpertsOperand::down_bias] = matrix({form.experts, kOut});
  if (form.gated == "apart") all[ExpertsOperand::up_bias] = matrix({form.experts, kHidden});
  return all;
}

std::vector<ExampleOperand> without_trailing(std::vector<ExampleOperand> operands) {
  while (operands.back().kind == ExampleOperand::Kind::left_out) operands.pop_back();
  return operands;
}

Example example_of(const Form& form, Rounding rounding) {
  Example example{form.what,
                  without_trailing(operands_of(form)),
                  {{"activation", form.activation}, {"gated", form.gated}},
                  rounding};
  example.attributes.insert(example.attributes.end(), form.more.begin(), form.more.end());
  return example;
}

// Matrices of codes: of a gate by columns of 32 rows in two blocks, and of four blocks of hidden elements.
struct CodedForm {
  std::string what;
  std::string gated = "interleaved";
  int64_t bits = 4;
  bool zeros = false, whole_columns = false;
};

std::vector<ExampleOperand> operands_of(const CodedForm& form) {
  constexpr int64_t kExperts = 3, kIn = 32, kHidden = 64, kOut = 3;
  std::vector<ExampleOperand> all(ExpertsOperand::count);
  all[ExpertsOperand::tokens] = input(extents({2, kIn}), small);
  all[ExpertsOperand::choices] = indices("2 2", -1, kExperts);
  all[ExpertsOperand::weights] = input("2 2", small);
  const auto set = [&](const ExpertsCodes& place, int64_t rows, int64_t columns) {
    const std::string beside = extents({kExperts, columns, form.whole_columns ? 1 : rows / 16});
    all[place.codes] = weight(extents({kExperts, columns, rows * form.bits / 8}), small, DType::uint8);
    all[place.scales] = weight(beside, positive);
    if (form.zeros) all[place.zeros] = weight(beside, small, DType::uint8);
  };
  set(kGateCodes, kIn, is_fused(form.gated) ? 2 * kHidden : kHidden);
  set(kDownCodes, kHidden, kOut);
  if (form.gated == "apart") set(kUpCodes, kIn, kHidden);
  all[ExpertsOperand::down_bias] = weight(extents({kExperts, kOut}));
  return all;
}

Example example_of(const CodedForm& form) {
  return {form.what,
          without_trailing(operands_of(form)),
          {kRelu,
           {"gated", form.gated},
           {"limit", 2.0F},  // so that sums are exact
           {"block_size", int64_t{form.whole_columns ? 2 : 16}},
           {"gate_bits", form.bits},
           {"down_bits", form.bits},
           {"up_bits", form.bits}}};
}

}  // namespace

std::vector<Example> experts_examples(std::string_view) {
  std::vector<Example> all;
  for (const Form& form : std::initializer_list<Form>{
           {.what = "one matrix after the other"},
           {.what = "with biases", .biases = true},
           {.what = "one choice", .choices = 1},
           {.what = "gated, apart", .gated = "apart", .biases = true},
           {.what = "gated, in halves", .activation = "identity", .gated = "halves", .biases = true},
           {.what = "gated, interleaved, bounded",
           .gated = "interleaved",
           .biases = true,
           .more = {{"limit", 7.0F}, {"beta", 1.0F}}},
           {.what = "more experts than choices", .tokens = 2, .experts = 7},
           {.what = "no tokens", .tokens = 0},
           {.what = "float64", .biases = true, .dtype = DType::float64},
       })
    all.push_back(example_of(form, none));
  for (const std::string activation : {"swish", "gelu", "gelu_tanh"})
    all.push_back(example_of(
        Form{.what = activation, .activation = activation, .gated = "halves", .fill = unit, .more = {{"alpha", 1.5F}}},
        chained));
  all.push_back({"bfloat16", without_trailing(operands_of(Form{.biases = true, .dtype = DType::bfloat16})), {kRelu}});
  for (const CodedForm& form : std::initializer_list<CodedForm>{
           {.what = "codes of 4 bits"},
           {.what = "codes of 8 bits, in halves, with zero points", .gated = "halves", .bits = 8, .zeros = true},
           {.what = "codes of 4 bits, apart, with zero points", .gated = "apart", .zeros = true},
           {.what = "codes of 4 bits, scales of whole columns", .gated = "no", .zeros = true, .whole_columns = true},
       })
    all.push_back(example_of(form));
  return all;
}

std::vector<Example> experts_shard_examples(std::string_view) {
  std::vector<ExampleOperand> operands = operands_of(Form{.biases = true, .experts = 3});
  operands[ExpertsOperand::choices] = indices("5 2", 0, 7);
  operands.push_back(integer(4));
  operands.push_back(integer(7));
  return {{"the last three of seven", operands, {kRelu}}};
}

}  // namespace tessera::ops
