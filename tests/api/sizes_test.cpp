#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "api/small_model.h"
#include "tessera/check.h"
#include "tessera/compare.h"
#include "tessera/inspect.h"

// Sizes that nobody gave, and sizes of 1 that broadcast.
namespace tessera {
namespace {

using test::TemporaryFolder;
using test::write_model;
using testing::HasSubstr;

void expect_same(const Tensors& expected, const Tensors& actual, const std::string& where) {
  for (const Difference& difference : compare(expected, actual))
    EXPECT_TRUE(difference.pass) << where << " " << difference.name << " " << difference.max_rel;
}

std::string complaint(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user) << error.what();
    return error.what();
  }
  return "";
}

constexpr std::string_view kPools = R"(
pools (float[n, 4, height, width] x) => (float[n, 6, a, b] y) <float[6, 4, 3, 3] w, float[6, 6, 3, 3] v> {
  first = Conv <strides = [2, 2]> (x, w)
  second = Conv <strides = [2, 2]> (first, v)
  third = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (second)
  y = AveragePool <kernel_shape = [2, 2]> (third)
})";

// Past and present keys under a mask over both.
constexpr std::string_view kDecoder = R"(
decoder (float[batch, sequence, 8] x, float[batch, past, 8] cache, float[batch, total] mask)
    => (float[batch, sequence, 8] y, float[batch, n, 8] keys) <float[8, 8] w> {
  k = MatMul (x, w)
  keys = Concat <axis = 1> (cache, k)
  turned = Transpose <perm = [0, 2, 1]> (keys)
  scores = MatMul (x, turned)
  middle = Constant <value_ints = [1]> ()
  wide = Unsqueeze (mask, middle)
  masked = Add (scores, wide)
  p = Softmax <axis = -1> (masked)
  y = MatMul (p, keys)
})";

// What is added or multiplied by broadcasts to the data: where they have an extent of 1, it has, too.
constexpr std::string_view kOnes = R"(
ones (float[batch, 4] x, float[scales] scale, float[biases] bias, float[addends] c) => (float[batch, 1] y) <float[4, 1] w> {
  thin = Gemm (x, w, c)
  y = LayerNormalization (thin, scale, bias)
})";

TEST(Sizes, that_nobody_gave_let_any_model_run) {
  for (std::string_view text : {kPools, kDecoder, kOnes}) {
    TemporaryFolder folder;
    const Model model = Model::load(write_model(folder, text));
    const Tensors inputs = random_inputs(model, {}, 3);
    const Tensors expected = Session(compile(model, Mesh())).run(inputs);
    for (const char* mesh : {"tp=1", "tp=2", "dp=3", "dp=2,tp=2"}) {
      const Program program = compile(model, Mesh::parse(mesh));
      EXPECT_TRUE(check_program(program).good()) << mesh;
      EXPECT_GT(program.peak_bytes(0, {}), 0) << mesh;
      expect_same(expected, Session(program).run(inputs), mesh);
    }
  }
}

TEST(Sizes, that_are_too_small_are_refused_with_the_operator) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, kPools));
  Plan plan;
  plan.shapes = {{"width", 20}};
  const Program program = compile(model, Mesh::parse("tp=2"), plan);
  EXPECT_THAT(program.summary().notes, testing::Contains(HasSubstr("no sizes were found at which the model runs")));
  EXPECT_TRUE(check_program(program).good()) << "the program itself is right";
}

constexpr std::string_view kMeeting = R"(
meeting (float[batch, s, 8] x, float[batch, t, 8] z) => (float[batch, n, 8] y) <float[8, 16] up, float[16, 8] down> {
  sum = Add (x, z)
  h = MatMul (sum, up)
  r = Relu (h)
  d = MatMul (r, down)
  y = Add (d, sum)
})";

Tensor filled(Dims dims, float scale) {
  Tensor tensor = Tensor::zeros(DType::float32, std::move(dims));
  auto* elements = reinterpret_cast<float*>(tensor.mutable_data());
  for (int64_t i = 0; i < tensor.count(); ++i) elements[i] = scale * static_cast<float>((i * 7) % 11 - 5) / 4;
  return tensor;
}

// The result of one rank with the smaller operand expanded.
Tensor repeated(const Tensor& row, int64_t times) {
  if (times == 1) return row;
  Tensor all = Tensor::zeros(DType::float32, {row.dims[0], times, row.dims[2]});
  const size_t bytes = row.bytes / static_cast<size_t>(row.dims[0]);
  for (int64_t b = 0; b < row.dims[0]; ++b)
    for (int64_t i = 0; i < times; ++i)
      std::memcpy(all.mutable_data() + (b * times + i) * static_cast<int64_t>(bytes),
                  row.data + b * static_cast<int64_t>(bytes), bytes);
  return all;
}

TEST(SizesOfOne, broadcast_on_any_mesh_and_in_any_order) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, kMeeting));
  struct Case {
    const char* mesh;
    const char* annotation;
  };
  for (const Case& given : {Case{"", ""}, Case{"tp=2", ""}, Case{"dp=2", ""}, Case{"dp=2,tp=2", ""},
                            Case{"x=2", "x=[-, x, -]"}, Case{"x=3", "y=[-, x, -]"}}) {
    Plan plan;
    if (*given.annotation) plan.annotations = {{given.annotation}};
    Session session(compile(model, *given.mesh ? Mesh::parse(given.mesh) : Mesh(), plan));
    for (auto [s, t] :
         std::vector<std::pair<int64_t, int64_t>>{{5, 5}, {1, 5}, {5, 1}, {1, 1}, {1, 7}, {5, 5}, {1, 5}}) {
      const std::string where = fmt::format("{} {} s={} t={}", given.mesh, given.annotation, s, t);
      const Tensor x = filled({2, s, 8}, 1), z = filled({2, t, 8}, 0.5F);
      const int64_t n = std::max(s, t);
      const Tensors expected =
          Session(compile(model, Mesh())).run({{"x", repeated(x, n / s)}, {"z", repeated(z, n / t)}});
      const Tensors actual = session.run({{"x", x}, {"z", z}});
      EXPECT_EQ(actual.at("y").dims, (Dims{2, n, 8})) << where;
      expect_same(expected, actual, where);
    }
    const std::string refused = complaint([&] {
      session.run({{"x", filled({2, 4, 8}, 1)}, {"z", filled({2, 3, 8}, 1)}});
    });
    EXPECT_THAT(refused, HasSubstr("they must be equal")) << given.mesh;
  }
}

TEST(SizesOfOne, decode_one_token_after_many) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, kDecoder));
  for (const char* mesh : {"tp=2", "dp=2", "dp=2,tp=2"}) {
    Session one(compile(model, Mesh())), many(compile(model, Mesh::parse(mesh)));
    for (auto [sequence, past] : std::vector<std::pair<int64_t, int64_t>>{{4, 0}, {1, 4}, {1, 5}, {3, 6}, {1, 0}}) {
      const Tensors inputs = {{"x", filled({2, sequence, 8}, 1)},
                              {"cache", filled({2, past, 8}, 0.25F)},
                              {"mask", filled({2, past + sequence}, 0.5F)}};
      expect_same(one.run(inputs), many.run(inputs), fmt::format("{} {}+{}", mesh, past, sequence));
    }
    // A mask of one column is for all keys.
    const Tensors narrow = {{"x", filled({2, 3, 8}, 1)}, {"cache", filled({2, 2, 8}, 1)}, {"mask", filled({2, 1}, 1)}};
    expect_same(one.run(narrow), many.run(narrow), mesh);
  }
}

// A class of sizes has a program of its own, but not weights.
TEST(SizesOfOne, keep_the_weights_once) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, R"(
large (float[s, 256] x, float[t, 256] z) => (float[n, 256] y) <float[256, 1024] up, float[1024, 256] down> {
  sum = Add (x, z)
  h = MatMul (sum, up)
  y = MatMul (h, down)
})"));
  for (std::optional<DType> dtype : {std::optional<DType>(), std::optional(DType::bfloat16)}) {
    Plan plan;
    plan.dtype = dtype;
    Session session(compile(model, Mesh::parse("tp=2"), plan));
    auto inputs = [](int64_t s, int64_t t) { return Tensors{{"x", filled({s, 256}, 1)}, {"z", filled({t, 256}, 1)}}; };
    const int64_t before = session.peak_bytes(inputs(8, 8))[0];
    EXPECT_LT(session.peak_bytes(inputs(1, 8))[0], before + (64 << 10));
  }
}

TEST(SizesOfOne, are_another_written_program) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, kMeeting));
  const Mesh mesh = Mesh::parse("tp=2");
  const Tensors inputs = {{"x", filled({2, 1, 8}, 1)}, {"z", filled({2, 5, 8}, 0.5F)}};
  compile(model, mesh).write(folder / "equal");
  Session equal(Program::read(folder / "equal"));
  EXPECT_THAT(complaint([&] { equal.run(inputs); }), HasSubstr("write one for the others with `with_sizes` s=1"));
  compile(model.with_sizes({{"s", 1}}), mesh).write(folder / "one");
  expect_same(Session(compile(model, Mesh())).run(inputs), Session(Program::read(folder / "one")).run(inputs),
              "written");
}

}  // namespace
}  // namespace tessera
