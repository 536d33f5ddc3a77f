// Einsums against their definition, on one device and split. Elements are small integers, so that sums are exact.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <sstream>

#include "tessera/compiler/compile.h"
#include "tessera/ir/text.h"
#include "tessera/runtime/executor.h"

namespace tessera::compiler {
namespace {

constexpr int kSeed = 20;

struct Case {
  std::string equation;
  std::vector<Dims> shapes;
};

Tensor random_integers(const Dims& dims, std::mt19937& random) {
  Tensor tensor = Tensor::zeros(DType::float32, dims);
  auto* elements = reinterpret_cast<float*>(tensor.mutable_data());
  for (int64_t i = 0; i < tensor.count(); ++i) elements[i] = static_cast<float>(static_cast<int>(random() % 7) - 3);
  return tensor;
}

std::vector<std::string> terms_of(const std::string& equation) {
  std::string text = equation;
  text.replace(text.find("->"), 2, ",");
  std::vector<std::string> terms;
  std::stringstream stream(text);
  for (std::string term; std::getline(stream, term, ',');) terms.push_back(term);
  if (text.back() == ',') terms.emplace_back();
  return terms;
}

/// Every point of the iteration space, as written.
std::vector<float> by_definition(const Case& c, const std::vector<Tensor>& operands, Dims& dims) {
  std::vector<std::string> terms = terms_of(c.equation);
  std::map<char, int64_t> extents;
  for (size_t i = 0; i < operands.size(); ++i)
    for (size_t d = 0; d < terms[i].size(); ++d) extents[terms[i][d]] = operands[i].dims[d];
  for (char label : terms.back()) dims.push_back(extents[label]);
  std::vector<float> result(static_cast<size_t>(count_of(dims)), 0.0f);
  std::map<char, int64_t> at;
  int64_t points = 1;
  for (auto [label, extent] : extents) points *= extent;
  for (int64_t point = 0; point < points; ++point) {
    int64_t rest = point;
    for (auto [label, extent] : extents) {
      at[label] = rest % extent;
      rest /= extent;
    }
    auto place = [&](const std::string& labels) {
      int64_t index = 0;
      for (char label : labels) index = index * extents[label] + at[label];
      return static_cast<size_t>(index);
    };
    float product = 1;
    for (size_t i = 0; i < operands.size(); ++i) product *= operands[i].as<float>()[place(terms[i])];
    result[place(terms.back())] += product;
  }
  return result;
}

std::string declared(const Dims& dims, const std::string& name) {
  return fmt::format("float[{}] {}", fmt::join(dims, ", "), name);
}

/// The first operand is an input, the others are states if `states`, else inputs.
void expect_definition(const Case& c, bool states, const std::string& mesh) {
  std::mt19937 random(kSeed);
  std::vector<Tensor> operands;
  std::string inputs, parameters, names;
  for (size_t i = 0; i < c.shapes.size(); ++i) {
    operands.push_back(random_integers(c.shapes[i], random));
    std::string name(1, static_cast<char>('p' + i));
    std::string& list = i > 0 && states ? parameters : inputs;
    list += (list.empty() ? "" : ", ") + declared(c.shapes[i], name);
    names += (names.empty() ? "" : ", ") + name;
  }
  Dims dims;
  auto expected = by_definition(c, operands, dims);
  OnnxModel model = parse_text(fmt::format(
      "<ir_version: 10, opset_import: [\"\" : 24]> net ({}) => ({}) <{}> {{ y = Einsum <equation = \"{}\"> ({}) }}",
      inputs, declared(dims, "y"), parameters, c.equation, names));
  std::map<std::string, Tensor> given;
  for (size_t i = 0; i < operands.size(); ++i) {
    Value* value = model.graph->find(std::string(1, static_cast<char>('p' + i)));
    if (value->kind == ValueKind::state)
      value->data = operands[i];
    else
      given[value->name] = operands[i];
  }
  CompileOptions options;
  options.mesh = Mesh::parse(mesh);
  runtime::Executor executor(compile(model, options).program, {});
  Tensor actual = executor.run(given).at("y");
  ASSERT_EQ(actual.dims, dims) << c.equation;
  auto got = actual.as<float>();
  EXPECT_EQ(std::vector<float>(got.begin(), got.end()), expected)
      << c.equation << " on " << mesh << (states ? " with weights" : "") << ", seed " << kSeed;
}

TEST(Einsum, is_what_its_equation_says) {
  const std::vector<Case> cases = {
      {"bsd,edf->bsef", {{2, 3, 4}, {3, 4, 5}}},          // experts
      {"bsef,efd->bsed", {{2, 3, 4, 5}, {4, 5, 3}}},      // experts, second product
      {"bsef,efd->bsd", {{2, 3, 4, 5}, {4, 5, 3}}},       // the same, summed over experts
      {"nhct,nhcs->nhts", {{2, 3, 4, 5}, {2, 3, 4, 6}}},  // attention scores
      {"bqhd,bkhd->bhqk", {{2, 3, 4, 5}, {2, 6, 4, 5}}},
      {"bhqk,bkhd->bqhd", {{2, 4, 3, 6}, {2, 6, 4, 5}}},
      {"bsd,dhr->bshr", {{2, 3, 4}, {4, 5, 2}}},  // heads of a projection
      {"bshr,hrd->bsd", {{2, 3, 5, 2}, {5, 2, 4}}},
      {"bhwc,hkc->bhwk", {{2, 3, 4, 5}, {3, 6, 5}}},  // decomposed relative positions
      {"bsd,ed->bse", {{2, 3, 4}, {5, 4}}},
      {"ab,bc,cd->ad", {{3, 4}, {4, 5}, {5, 2}}},
      {"bi,bj,bk->bijk", {{2, 3}, {2, 4}, {2, 5}}},  // nothing contracted
      {"bij,bj->bij", {{2, 3, 4}, {2, 4}}},
      {"ij,kj->i", {{3, 4}, {5, 4}}},  // columns nobody needs
      {"i,i->", {{6}, {6}}},
      {"ij->ji", {{3, 4}}},
      {"ij->", {{3, 4}}},
  };
  for (const Case& c : cases)
    for (const char* mesh : {"x=1", "dp=2", "tp=2", "tp=3"})
      for (bool states : {false, true}) expect_definition(c, states, mesh);
}

}  // namespace
}  // namespace tessera::compiler
