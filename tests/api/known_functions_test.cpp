// Functions that the build holds as ONNX text give what the same nodes give.
#include <gtest/gtest.h>

#include "api/small_model.h"
#include "tessera/compare.h"

namespace tessera {
namespace {

using test::TemporaryFolder;
using test::write_model;

// Pairs of outputs "r.NAME", of a function, and "w.NAME", of plain nodes.
void expect_equal_pairs(std::string_view text, const Tensors& inputs) {
  TemporaryFolder folder;
  for (const char* mesh : {"tp=1", "tp=2"}) {
    const Tensors all =
        Session(compile(Model::load(write_model(folder, std::string(text))), Mesh::parse(mesh))).run(inputs);
    for (const auto& [name, value] : all) {
      if (!name.starts_with("r.")) continue;
      EXPECT_TRUE(compare(name, all.at("w." + name.substr(2)), value).pass) << name << " on " << mesh;
    }
  }
}

TEST(KnownFunctions, SkipLayerNormalizationGivesItsStatistics) {
  expect_equal_pairs(R"(<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
g (float[2, 3, 8] x, float[2, 3, 8] s, float[8] gamma)
    => (float[2, 3, 1] "r.mean", float[2, 3, 1] "w.mean", float[2, 3, 1] "r.inverse", float[2, 3, 1] "w.inverse",
        float[2, 3, 8] "r.sum", float[2, 3, 8] "w.sum") <float least = {0.001}, int64[1] last = {-1}> {
  y, "r.mean", "r.inverse", "r.sum" = com.microsoft.SkipLayerNormalization <epsilon = 0.001> (x, s, gamma)
  "w.sum" = Add (x, s)
  "w.mean" = ReduceMean ("w.sum", last)
  centered = Sub ("w.sum", "w.mean")
  square = Mul (centered, centered)
  variance = ReduceMean (square, last)
  stable = Add (variance, least)
  deviation = Sqrt (stable)
  "w.inverse" = Reciprocal (deviation)
})",
                     {{"x", test::ramp({2, 3, 8})}, {"s", test::ramp({2, 3, 8})}, {"gamma", test::ramp({8})}});
}

TEST(KnownFunctions, SkipSimplifiedLayerNormalizationGivesItsStatistics) {
  expect_equal_pairs(R"(<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
g (float[2, 3, 8] x, float[2, 3, 8] s, float[8] gamma)
    => (float[2, 3, 1] "r.mean", float[2, 3, 1] "w.mean", float[2, 3, 1] "r.inverse", float[2, 3, 1] "w.inverse")
    <float least = {0.001}, int64[1] last = {-1}> {
  y, "r.mean", "r.inverse" = com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 0.001> (x, s, gamma)
  sum = Add (x, s)
  "w.mean" = ReduceMean (sum, last)
  square = Mul (sum, sum)
  mean_square = ReduceMean (square, last)
  stable = Add (mean_square, least)
  deviation = Sqrt (stable)
  "w.inverse" = Reciprocal (deviation)
})",
                     {{"x", test::ramp({2, 3, 8})}, {"s", test::ramp({2, 3, 8})}, {"gamma", test::ramp({8})}});
}

}  // namespace
}  // namespace tessera
