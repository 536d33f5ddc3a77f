// Buffers of a loop that change places from iteration to iteration.
#include <gtest/gtest.h>

#include <cstring>

#include "tessera/compiler/compile.h"
#include "tessera/ir/text.h"
#include "tessera/runtime/executor.h"

namespace tessera::compiler {
namespace {

// Clip works in the memory of what the loop carried, which after an odd number of iterations is that of its other
// buffer. What is made after the loop must not lie there.
constexpr std::string_view kSource = R"(
<ir_version: 10, opset_import: ["" : 24]>
m (float[3, 6, 2, 8] a, float[3, 4, 6] items, float[4, 6] start) => (float[1, 3, 6, 2, 8] same, float[24] few, float[4, 6] y) <
  float[6, 6] w, int64 times = {3}, float five = {5.0}, int64[1] all = {-1}, int64[1] zero = {0}, int64[1] end = {24},
  int64[5] more = {1, 3, 6, -1, 8}, float least = {-3.0}
> {
  i = tessera.flow.Loop (times)
  c = tessera.flow.Carry (start, i)
  item = tessera.flow.Item <reverse = 1> (items, i)
  p = MatMul (c, w)
  q = Mod <fmod = 1> (p, five)
  r = Add (q, item)
  n, go = tessera.flow.Next (r, i, c)
  done = tessera.flow.Again (i, "", go)
  last = tessera.flow.Last (c, done)
  same = Reshape (a, more)
  flat = Reshape (same, all)
  few = Slice (flat, zero, end)
  y = Clip (last, least, "")
})";

TEST(ExchangedBuffers, AreBothKeptForWhatTakesOneOver) {
  const auto numbers = [](Dims dims, int seed) {
    Tensor tensor = Tensor::zeros(DType::float32, std::move(dims));
    auto* at = reinterpret_cast<float*>(tensor.mutable_data());
    for (int64_t i = 0; i < tensor.count(); ++i) at[i] = static_cast<float>((i * 7 + seed) % 11 - 5);
    return tensor;
  };
  const runtime::Executor::Tensors inputs = {
      {"a", numbers({3, 6, 2, 8}, 1)}, {"items", numbers({3, 4, 6}, 2)}, {"start", numbers({4, 6}, 3)}};
  const auto run = [&](const std::string& mesh) {
    CompileOptions options;
    options.mesh = Mesh::parse(mesh);
    options.presets = "none";
    if (mesh == "x=2") options.annotations = {{"a", "[-, 6{x}, -, -]"}, {"y", "[-, 6{x}]"}};
    return runtime::Executor(compile(parse_text(kSource), options).program, {}).run(inputs);
  };
  const auto one = run("x=1"), two = run("x=2");
  for (const char* name : {"few", "y"})
    EXPECT_EQ(std::memcmp(one.at(name).data, two.at(name).data, one.at(name).bytes), 0) << name;
}

}  // namespace
}  // namespace tessera::compiler
