// Products beside rings (passes/collective_products.h): random extents, ring sizes, shards and forms give the bits of
// the program without rings, and sums are taken in the documented order.
#include "passes/product_rings.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "spmd/compiled.h"
#include "tessera/proof/prove.h"
#include "tessera/runtime/executor.h"

namespace tessera::property {
namespace {

using Tensors = runtime::Executor::Tensors;
using Orders = spmd::Compiled::Orders;
using passes::RingForm;

Tensors run_products(std::shared_ptr<const spmd::Program> program, const Tensors& inputs) {
  runtime::ExecutorOptions options;
  options.threads_per_rank = 1;
  options.world.timeout = std::chrono::seconds(30);
  const proof::Report proof = proof::prove(*runtime::RankPrograms::same(program));
  EXPECT_TRUE(proof.good()) << proof.findings.front().message;
  return runtime::Executor(std::move(program), options).run(inputs);
}

Tensor drawn(std::mt19937& random, const Dims& dims, const std::function<float(std::mt19937&)>& element) {
  std::vector<float> elements;
  for (int64_t e = 0; e < count_of(dims); ++e) elements.push_back(element(random));
  return Tensor::of(dims, elements);
}

// Small integers, whose sums are exact in any order.
float small_integer(std::mt19937& random) {
  return static_cast<float>(std::uniform_int_distribution<int>(-4, 4)(random));
}

bool have_same_bits(const Tensor& a, const Tensor& b) {
  return a.dims == b.dims && (a.bytes == 0 || std::memcmp(a.data, b.data, a.bytes) == 0);
}

struct SplitProduct {
  const char* what;
  Orders orders;
};

// x [b, m, k] by w [k, n].
const std::vector<SplitProduct>& split_products() {
  static const std::vector<SplitProduct> all = {
      {"gathers rows", {{"x", "[-, t, -]"}, {"w", "[-, t]"}, {"y", "[-, -, t]"}}},
      {"gathers batches", {{"x", "[t, -, -]"}, {"w", "[-, t]"}, {"y", "[-, -, t]"}}},
      {"gathers columns of a weight", {{"x", "[-, t, -]"}, {"w", "[-, t]"}, {"y", "[-, t, -]"}}},
      {"gathers the terms of a sum", {{"x", "[-, t, -]"}, {"w", "[t, -]"}, {"y", "[-, t, -]"}}},
      {"scatters rows", {{"x", "[-, -, t]"}, {"w", "[t, -]"}, {"y", "[-, t, -]"}}},
      {"scatters columns", {{"x", "[-, -, t]"}, {"w", "[t, -]"}, {"y", "[-, -, t]"}}},
      {"scatters batches", {{"x", "[-, -, t]"}, {"w", "[t, -]"}, {"y", "[t, -, -]"}}},
      {"sums", {{"x", "[-, -, t]"}, {"w", "[t, -]"}, {"y", "[-, -, -]"}}},
  };
  return all;
}

TEST(ProductRings, GiveTheBitsOfProductsWithoutThem) {
  std::mt19937 random(7);
  const auto between = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  size_t rings = 0, empty_shards = 0;
  for (int i = 0; i < 96; ++i) {
    const SplitProduct& split = split_products()[static_cast<size_t>(i) % split_products().size()];
    const int members = between(2, 7), b = between(1, 4), m = between(1, 20), k = between(1, 20), n = between(1, 20);
    const RingForm form{between(0, 1) == 1, between(1, 4), between(0, 1) == 1};
    const std::string text =
        fmt::format("m (float[{0}, {1}, {2}] x, float[{2}, {3}] w) => (float[{0}, {1}, {3}] y) {{ y = MatMul (x, w) }}",
                    b, m, k, n);
    const spmd::Compiled compiled(text, fmt::format("t={}", members), split.orders);
    const auto plain = std::make_shared<spmd::Program>(compiled.program());
    const auto ringed = std::make_shared<spmd::Program>(compiled.program());
    if (passes::put_products_in_rings(*ringed, form).empty()) continue;
    ++rings;
    empty_shards += members > std::min({m, k, n});
    const Tensors inputs = {{"x", drawn(random, {b, m, k}, small_integer)},
                            {"w", drawn(random, {k, n}, small_integer)}};
    EXPECT_TRUE(have_same_bits(run_products(ringed, inputs).at("y"), run_products(plain, inputs).at("y")))
        << split.what << ", " << members << " members, " << str(form) << ": " << text;
  }
  EXPECT_GE(rings, 60U);
  EXPECT_GE(empty_shards, 10U);
}

// The ring goes around two or three units, over axes of their own or digits of one.
TEST(ProductRings, GiveTheSameBitsAroundUnits) {
  std::mt19937 random(5);
  size_t rings = 0;
  for (const SplitProduct& split : split_products())
    for (const auto& [mesh, group, units] : std::vector<std::tuple<std::string, std::string, int64_t>>{
             {"u=2,t=3", "{u,t}", 2}, {"u=3,t=2", "{u,t}", 3}, {"t=6", "t", 2}, {"t=6", "t", 3}})
      for (const bool both_ways : {false, true})
        for (const int64_t extent : {12, 7}) {  // 7 elements are not cut within an axis
          Orders orders = split.orders;
          for (auto& [value, sharding] : orders)
            if (const size_t at = sharding.find('t'); at != std::string::npos) sharding.replace(at, 1, group);
          const std::string text = fmt::format(
              "m (float[{0}, {0}, {0}] x, float[{0}, {0}] w) => (float[{0}, {0}, {0}] y) {{ y = MatMul (x, w) }}",
              extent);
          const spmd::Compiled compiled(text, mesh, orders);
          const auto plain = std::make_shared<spmd::Program>(compiled.program());
          const auto ringed = std::make_shared<spmd::Program>(compiled.program());
          const RingForm form{.both_ways = both_ways, .units = units};
          if (passes::put_products_in_rings(*ringed, form).empty()) continue;
          ++rings;
          const Tensors inputs = {{"x", drawn(random, {extent, extent, extent}, small_integer)},
                                  {"w", drawn(random, {extent, extent}, small_integer)}};
          EXPECT_TRUE(have_same_bits(run_products(ringed, inputs).at("y"), run_products(plain, inputs).at("y")))
              << split.what << ", " << mesh << ", " << str(form) << ", extent " << extent;
        }
  EXPECT_GE(rings, 100U);
}

// Sums that round differently in another order.
float wide_number(std::mt19937& random) {
  return std::ldexp(std::uniform_real_distribution<float>(-1, 1)(random),
                    std::uniform_int_distribution<int>(-12, 12)(random));
}

// Columns [begin, begin + count) of a matrix.
Tensor columns_of(const Tensor& whole, int64_t begin, int64_t count) {
  std::vector<float> part;
  for (int64_t row = 0; row < whole.dims[0]; ++row)
    for (int64_t c = begin; c < begin + count; ++c)
      part.push_back(whole.as<float>()[static_cast<size_t>(row * whole.dims[1] + c)]);
  return Tensor::of({whole.dims[0], count}, part);
}

// The sum of an element that is in this block, from what the members' products have there. Block j is summed from
// member j + 1 on, around the ring to j; both ways, the members before j add up to j, to which the sum of those behind
// it is added.
float documented_sum(const std::vector<float>& terms, int block, bool both_ways) {
  const int members = static_cast<int>(terms.size()), before = both_ways ? members / 2 : members - 1;
  const auto chain = [&](int first, int last, int step) {
    const auto term = [&](int distance) { return terms[static_cast<size_t>((block + distance + members) % members)]; };
    float sum = term(first);
    for (int distance = first; distance != last; distance += step) sum += term(distance + step);
    return sum;
  };
  const float own = chain(-before, 0, 1);
  return before < members - 1 ? own + chain(members - 1 - before, 1, -1) : own;
}

TEST(ProductRings, AddInTheDocumentedOrder) {
  constexpr int kMembers = 4, kRows = 128, kDepth = 64, kColumns = 16;
  std::mt19937 random(3);
  const Tensor x = drawn(random, {kRows, kDepth}, wide_number), w = drawn(random, {kDepth, kColumns}, wide_number);
  std::vector<Tensor> terms;  // of each member
  constexpr int kOwn = kDepth / kMembers;
  for (int r = 0; r < kMembers; ++r) {
    const float* first = w.as<float>().data() + r * kOwn * kColumns;
    const Tensor rows = Tensor::of({kOwn, kColumns}, std::vector<float>(first, first + kOwn * kColumns));
    const std::string text =
        fmt::format("m (float[{}, {}] x, float[{}, {}] w) => (float[{}, {}] y) {{ y = MatMul (x, w) }}", kRows, kOwn,
                    kOwn, kColumns, kRows, kColumns);
    terms.push_back(run_products(std::make_shared<spmd::Program>(spmd::Compiled(text, "").program()),
                                 {{"x", columns_of(x, r * kOwn, kOwn)}, {"w", rows}})
                        .at("y"));
  }
  const std::string text =
      fmt::format("m (float[{0}, {1}] x, float[{1}, {2}] w) => (float[{0}, {2}] y) {{ y = MatMul (x, w) }}", kRows,
                  kDepth, kColumns);
  for (const char* result : {"[t, -]", "[-, -]"})
    for (const bool both_ways : {false, true}) {
      auto program = std::make_shared<spmd::Program>(
          spmd::Compiled(text, "t=4", {{"x", "[-, t]"}, {"w", "[t, -]"}, {"y", result}}).program());
      ASSERT_FALSE(passes::put_products_in_rings(*program, {both_ways, 1}).empty());
      const Tensor made = run_products(program, {{"x", x}, {"w", w}}).at("y");
      int unequal = 0;
      for (size_t e = 0; e < made.as<float>().size(); ++e) {
        const int block = static_cast<int>(e) / (kRows / kMembers * kColumns);
        std::vector<float> own;
        for (const Tensor& term : terms) own.push_back(term.as<float>()[e]);
        const float sum = documented_sum(own, block, both_ways);
        unequal += std::memcmp(&sum, &made.as<float>()[e], sizeof sum) != 0;
      }
      EXPECT_EQ(unequal, 0) << result << (both_ways ? ", both ways" : ", one way");
    }
}

}  // namespace
}  // namespace tessera::property
