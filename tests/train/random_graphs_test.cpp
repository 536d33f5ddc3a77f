// Operators after one another by chance: values with several uses, gradients that add up, broadcasts between shapes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "sample.h"
#include "train/closeness.h"

namespace tessera::train {
namespace {

using property::Builder;
using property::Fill;

// A graph of smooth operators on matrices [3, 4], rows [4] and columns [3, 1], whose values stay near 0.
property::Subject random_graph(std::mt19937_64& engine, std::string name) {
  Builder b(std::move(name));
  const auto any = [&](size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(engine); };
  std::vector<Value*> matrices = {b.input("3 4", Fill::reals), b.weight("3 4", Fill::reals)};
  std::vector<Value*> broadcast = {b.weight("4", Fill::reals), b.weight("3 1", Fill::reals), b.weight("", Fill::reals)};
  const auto matrix = [&] { return matrices[any(matrices.size())]; };
  const auto operand = [&] { return any(3) == 0 ? broadcast[any(broadcast.size())] : matrix(); };
  constexpr std::string_view kUnary[] = {"Tanh", "Sigmoid",  "Sin",  "Erf", "Softplus",
                                         "Gelu", "Softsign", "Mish", "Neg"};
  constexpr std::string_view kBinary[] = {"Add", "Sub", "Mul", "Max", "Min"};
  constexpr std::string_view kReduce[] = {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceLogSumExp"};
  for (size_t i = 0; i < 8; ++i) {
    Value* made = nullptr;
    switch (any(9)) {
      case 0:
      case 1:
        made = b.node(kUnary[any(std::size(kUnary))], {matrix()});
        break;
      case 2:
      case 3:
        made = b.node(kBinary[any(std::size(kBinary))], {matrix(), operand()});
        break;
      case 4:
        made = b.node("MatMul", {b.node("Tanh", {matrix()}), b.weight("4 4", Fill::unit)});
        break;
      case 5: {
        const auto rows = static_cast<int64_t>(any(2));
        Value* reduced = b.node(kReduce[any(std::size(kReduce))], {matrix(), b.ints({rows})});
        made = b.node("Mul", {matrix(), b.node("Tanh", {reduced})});
        break;
      }
      case 6:
        made = b.node("Softmax", {matrix()}, {{"axis", static_cast<int64_t>(any(2))}});
        break;
      case 7:
        made = b.node("LayerNormalization", {matrix(), broadcast[0]}, {{"epsilon", 0.5f}});
        break;
      case 8: {
        const auto kept = static_cast<int64_t>(any(4));
        Node* parts = b.node_of(2, "Split", {matrix(), b.ints({kept, 4 - kept})}, {{"axis", int64_t{1}}});
        made = b.node("Concat", {parts->outputs[1], parts->outputs[0]}, {{"axis", int64_t{-1}}});
        break;
      }
    }
    matrices.push_back(made);
  }
  return b.output(matrices.back()).output(matrices[matrices.size() - 2]).done();
}

TEST(RandomGraphs, have_the_gradients_of_their_difference_quotients) {
  const int count = test::sample(60, 1000);
  for (int i = 0; i < count && !testing::Test::HasFailure(); ++i) {
    std::mt19937_64 engine(property::seed_of(fmt::format("random graph {}", i)));
    const property::Subject subject = random_graph(engine, fmt::format("random graph {}", i));
    SCOPED_TRACE(fmt::format("{}, TESSERA_TEST_SEED={}", subject.name, property::base_seed()));
    expect_close(differentiate(subject, {0, 1}, DType::float64, Elements::smooth), kFloat64);
  }
}

}  // namespace
}  // namespace tessera::train
