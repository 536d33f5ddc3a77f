#include "tessera/bind/row_pieces.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace tessera::bind {
namespace {

using kernels::PrepareContext;
using kernels::TensorDesc;

/// A node of such operands, bound to them.
struct Subject {
  Graph graph;
  Node* node = nullptr;
  std::vector<TensorDesc> inputs;
  TensorDesc output;
  int threads = 1;

  Subject(const char* op_type, const std::vector<Dims>& operands, Dims result) {
    std::vector<Value*> values;
    for (const Dims& dims : operands) {
      const Shape shape(dims.begin(), dims.end());
      values.push_back(graph.add_input("x" + std::to_string(values.size()), {DType::float32, shape}));
      inputs.push_back({DType::float32, dims});
    }
    node = graph.add_node(op_type, values, {"y"});
    output = {DType::float32, std::move(result)};
  }

  PrepareContext context() const { return {*node, inputs, {output}, std::vector<const void*>(inputs.size()), threads}; }
  std::unique_ptr<kernels::Kernel> whole() const { return kernels::prepare_kernel(entry(), context()); }
  std::unique_ptr<kernels::Kernel> pieces(const std::function<void()>& between) const {
    return in_row_pieces(kernels::cpu_library(), entry(), context(), between);
  }
  std::vector<float> run(kernels::Kernel& kernel) const {
    std::vector<std::vector<float>> data;
    std::vector<const void*> in;
    std::mt19937 random(1);
    for (const TensorDesc& desc : inputs) {
      std::vector<float>& elements = data.emplace_back(desc.count());
      for (float& element : elements) element = static_cast<float>(random() % 2001) / 1000 - 1;
      in.push_back(elements.data());
    }
    std::vector<float> y(output.count(), -1);
    void* out = y.data();
    std::vector<std::byte> scratch(kernel.scratch_bytes() + 64);
    const auto address = (reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64;
    kernel.run({in, {&out, 1}, reinterpret_cast<void*>(address)});
    return y;
  }

 private:
  const kernels::KernelEntry& entry() const { return *kernels::find_kernel(node->op_type, ""); }
};

void expect_same(const Subject& subject, int pieces) {
  int between = 0;
  const auto kernel = subject.pieces([&] { ++between; });
  ASSERT_NE(kernel, nullptr);
  const std::vector<float> expected = subject.run(*subject.whole()), actual = subject.run(*kernel);
  EXPECT_EQ(between, pieces - 1);
  EXPECT_EQ(std::memcmp(expected.data(), actual.data(), expected.size() * sizeof(float)), 0);
}

// 2·512·768 FLOP a row: 256 rows a piece.
TEST(RowPieces, give_the_bits_of_the_whole_product) {
  expect_same(Subject("MatMul", {{1024, 512}, {512, 768}}, {1024, 768}), 4);
}

TEST(RowPieces, take_rows_over_leading_dimensions_and_a_rest) {
  expect_same(Subject("MatMul", {{3, 200, 512}, {512, 768}}, {3, 200, 768}), 3);
}

TEST(RowPieces, repeat_a_row_of_biases_and_cut_a_matrix_that_is_added) {
  for (const Dims& c : {Dims{768}, Dims{1, 768}, Dims{600, 768}, Dims{1}})
    expect_same(Subject("Gemm", {{600, 512}, {512, 768}, c}, {600, 768}), 3);
}

TEST(RowPieces, are_for_long_products_of_rows_only) {
  const auto none = [](const Subject& subject) { return subject.pieces([] {}) == nullptr; };
  EXPECT_TRUE(none(Subject("MatMul", {{256, 512}, {512, 768}}, {256, 768}))) << "one piece";
  EXPECT_TRUE(none(Subject("MatMul", {{8, 512, 512}, {8, 512, 512}}, {8, 512, 512}))) << "many matrices";
  EXPECT_TRUE(none(Subject("Gemm", {{512, 512}, {512, 768}, {512, 1}}, {512, 768}))) << "a column of biases";
  EXPECT_TRUE(none(Subject("Relu", {{4096, 4096}}, {4096, 4096}))) << "no product";
  Subject transposed("Gemm", {{512, 512}, {512, 768}}, {512, 768});
  transposed.node->set("transA", int64_t{1});
  EXPECT_TRUE(none(transposed));
  Subject wide("MatMul", {{512, 512}, {512, 768}}, {512, 768});
  wide.threads = 4;
  EXPECT_TRUE(none(wide)) << "four threads do it four times as fast";
}

}  // namespace
}  // namespace tessera::bind
