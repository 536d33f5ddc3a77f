#include "property/cases.h"
#include "tessera/ir/experts.h"

namespace tessera::property {
namespace {

using Operands = std::vector<Value*>;

struct Form {
  std::string_view what;
  std::string activation = "relu", gated = "no";
  bool biases = false;
  int64_t tokens = 5, choices = 2, experts = 4;
  DType dtype = DType::float32;
  Fill fill = Fill::small;
  std::vector<Attribute> more = {};
};

std::string extents(std::initializer_list<int64_t> dims) {
  std::string text;
  for (const int64_t extent : dims) text += (text.empty() ? "" : " ") + std::to_string(extent);
  return text;
}

CaseList::Make operands(const Form& form) {
  return [form](Builder& b) -> Operands {
    constexpr int64_t kIn = 6, kHidden = 4, kOut = 3;
    const int64_t columns = form.gated == "halves" || form.gated == "interleaved" ? 2 * kHidden : kHidden;
    const auto weight = [&](std::initializer_list<int64_t> dims) {
      return b.weight(extents(dims), form.fill, form.dtype);
    };
    Operands all(ExpertsOperand::offset);
    all[ExpertsOperand::tokens] = b.input(extents({form.tokens, kIn}), form.fill, form.dtype);
    all[ExpertsOperand::choices] = b.indices(extents({form.tokens, form.choices}), -1, form.experts);
    all[ExpertsOperand::weights] = b.input(extents({form.tokens, form.choices}), form.fill, form.dtype);
    all[ExpertsOperand::gate] = weight({form.experts, kIn, columns});
    all[ExpertsOperand::down] = weight({form.experts, kHidden, kOut});
    if (form.gated == "apart") all[ExpertsOperand::up] = weight({form.experts, kIn, kHidden});
    if (form.biases) {
      all[ExpertsOperand::gate_bias] = weight({form.experts, columns});
      all[ExpertsOperand::down_bias] = weight({form.experts, kOut});
      if (form.gated == "apart") all[ExpertsOperand::up_bias] = weight({form.experts, kHidden});
    }
    while (!all.back()) all.pop_back();
    return all;
  };
}

// Matrices of codes: of a gate by columns of 32 rows in two blocks, and of four blocks of hidden elements.
struct CodedForm {
  std::string_view what;
  std::string gated = "interleaved";
  int64_t bits = 4;
  bool zeros = false, whole_columns = false;
};

CaseList::Make coded_operands(const CodedForm& form) {
  return [form](Builder& b) -> Operands {
    constexpr int64_t kExperts = 3, kIn = 32, kHidden = 64, kOut = 3;
    const bool fused = form.gated == "halves" || form.gated == "interleaved";
    Operands all(ExpertsOperand::count);
    all[ExpertsOperand::tokens] = b.input(extents({2, kIn}), Fill::small);
    all[ExpertsOperand::choices] = b.indices("2 2", -1, kExperts);
    all[ExpertsOperand::weights] = b.input("2 2", Fill::small);
    const auto set = [&](const ExpertsCodes& place, int64_t rows, int64_t columns) {
      const std::string beside = extents({kExperts, columns, form.whole_columns ? 1 : rows / 16});
      all[place.codes] = b.weight(extents({kExperts, columns, rows * form.bits / 8}), Fill::small, DType::uint8);
      all[place.scales] = b.weight(beside, Fill::positive);
      if (form.zeros) all[place.zeros] = b.weight(beside, Fill::small, DType::uint8);
    };
    set(kGateCodes, kIn, fused ? 2 * kHidden : kHidden);
    set(kDownCodes, kHidden, kOut);
    if (form.gated == "apart") set(kUpCodes, kIn, kHidden);
    all[ExpertsOperand::down_bias] = b.weight(extents({kExperts, kOut}));
    while (!all.back()) all.pop_back();
    return all;
  };
}

void add_coded_cases(CaseList& list) {
  for (const CodedForm& form : std::vector<CodedForm>{
           {.what = "codes of 4 bits"},
           {.what = "codes of 8 bits, in halves, with zero points", .gated = "halves", .bits = 8, .zeros = true},
           {.what = "codes of 4 bits, apart, with zero points", .gated = "apart", .zeros = true},
           {.what = "codes of 4 bits, scales of whole columns", .gated = "no", .zeros = true, .whole_columns = true},
       })
    list.add("Experts", form.what, coded_operands(form),
             {{"activation", std::string("relu")},
              {"gated", form.gated},
              {"limit", 2.0F},  // so that sums are exact
              {"block_size", int64_t{form.whole_columns ? 2 : 16}},
              {"gate_bits", form.bits},
              {"down_bits", form.bits},
              {"up_bits", form.bits}},
             kExact, 1, kExpertsDomain);
}

}  // namespace

std::vector<Subject> experts_cases() {
  CaseList list;
  const std::vector<Attribute> bounded = {{"limit", 7.0F}, {"beta", 1.0F}};
  for (const Form& form : std::vector<Form>{
           {.what = "one matrix after the other"},
           {.what = "with biases", .biases = true},
           {.what = "one choice", .choices = 1},
           {.what = "gated, apart", .gated = "apart", .biases = true},
           {.what = "gated, in halves", .activation = "identity", .gated = "halves", .biases = true},
           {.what = "gated, interleaved, bounded", .gated = "interleaved", .biases = true, .more = bounded},
           {.what = "more experts than choices", .tokens = 2, .experts = 7},
           {.what = "no tokens", .tokens = 0},
           {.what = "float64", .biases = true, .dtype = DType::float64},
       }) {
    std::vector<Attribute> attributes = {{"activation", form.activation}, {"gated", form.gated}};
    attributes.insert(attributes.end(), form.more.begin(), form.more.end());
    list.add("Experts", form.what, operands(form), attributes, kExact, 1, kExpertsDomain);
  }
  for (const std::string activation : {"swish", "gelu", "gelu_tanh"}) {
    const Form form{.what = activation, .activation = activation, .gated = "halves", .fill = Fill::unit};
    list.add("Experts", form.what, operands(form), {{"activation", activation}, {"gated", form.gated}, {"alpha", 1.5F}},
             kChain, 1, kExpertsDomain);
  }
  const Form half{.what = "bfloat16", .biases = true, .dtype = DType::bfloat16};
  list.add("Experts", half.what, operands(half), {{"activation", half.activation}}, kExact, 1, kExpertsDomain);
  list.add(
      "ExpertsShard", "the last three of seven",
      [](Builder& b) {
        Operands all = operands({.what = "", .biases = true, .experts = 3})(b);
        all[ExpertsOperand::choices] = b.indices("5 2", 0, 7);
        all.resize(ExpertsOperand::offset);
        all.push_back(b.integer(4));
        all.push_back(b.integer(7));
        return all;
      },
      {{"activation", std::string("relu")}}, kExact, 1, kExpertsDomain);
  add_coded_cases(list);
  return list.take();
}

}  // namespace tessera::property
