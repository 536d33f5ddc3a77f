// Fourier transforms along a dimension whose length is known at the run only.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "tessera/compiler/compile.h"
#include "tessera/ir/text.h"
#include "tessera/ir/tolerance.h"
#include "tessera/runtime/executor.h"

namespace tessera::compiler {
namespace {

// The same as along a dimension of known length, on any mesh.
TEST(Fourier, TakesSymbolicLengths) {
  constexpr unsigned kSeed = 5;
  std::mt19937 random(kSeed);
  std::uniform_real_distribution<float> number(-1, 1);
  for (const int64_t length : {1, 2, 7, 12})
    for (const int parts : {1, 2})
      for (const auto& [inverse, onesided] : {std::pair(0, 0), {1, 0}, {0, 1}}) {
        if (onesided == 1 && parts == 2) continue;
        SCOPED_TRACE(fmt::format("length {}, parts {}, inverse {}, onesided {}, seed {}", length, parts, inverse,
                                 onesided, kSeed));
        Tensor x = Tensor::zeros(DType::float32, {4, length, 3, parts});
        auto* elements = reinterpret_cast<float*>(x.mutable_data());
        for (int64_t i = 0; i < x.count(); ++i) elements[i] = number(random);
        const auto made = [&](const std::string& extent, const std::string& mesh) {
          const OnnxModel model = parse_text(fmt::format(
              "<ir_version: 10, opset_import: [\"\" : 24]> m (float[4, {0}, 3, {1}] x) => (float[4, bins, 3, 2] y) "
              "<int64 axis = {{1}}> {{ y = DFT <inverse = {2}, onesided = {3}> (x, \"\", axis) }}",
              extent, parts, inverse, onesided));
          CompileOptions options;
          options.mesh = Mesh::parse(mesh);
          if (mesh != "x=1") options.presets = "none";
          if (mesh != "x=1") options.annotations = {{"x", mesh == "b=2" ? "[b, -, -, -]" : "[-, s, -, -]"}};
          return runtime::Executor(compile(model, options).program, {}).run({{"x", x}}).at("y");
        };
        const Tensor want = made(std::to_string(length), "x=1");
        for (const char* mesh : {"x=1", "b=2", "s=2"}) {
          const Tensor got = made("n", mesh);
          ASSERT_EQ(got.dims, want.dims) << mesh;
          for (int64_t i = 0; i < want.count(); ++i)
            EXPECT_NEAR(got.as<float>()[i], want.as<float>()[i],
                        tolerance_of(DType::float32).relative * static_cast<double>(length))
                << mesh << " element " << i;
        }
      }
}

}  // namespace
}  // namespace tessera::compiler
