#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>

#include "tessera/compiler/compile.h"
#include "tessera/io/npz.h"
#include "tessera/ir/tolerance.h"
#include "tessera/onnx/import.h"
#include "tessera/runtime/executor.h"

/// Models of tests/models against the answers that came with them.
namespace tessera::compiler {

/// Where a model lies with its inputs and outputs.
inline std::filesystem::path folder_of(const std::string& model) {
  if (model == "tiny") return std::filesystem::path(TESSERA_EXAMPLES) / "tiny";
  return std::filesystem::path(TESSERA_TEST_DATA) / "models" / model;
}

/// As a preset lays it out; "" for what the mesh implies.
inline Compiled compile_on(const std::string& model, const std::string& mesh, const std::string& preset,
                           DType compute = DType::float32) {
  CompileOptions options;
  options.mesh = Mesh::parse(mesh);
  options.presets = preset;
  options.compute = compute;
  return compile(import_model(folder_of(model) / "model.onnx"), options);
}

/// Compares the outputs with those that came with the model, for all of its inputs.
inline void expect_answers(const std::string& model, const Compiled& compiled, const std::string& mesh,
                           DType compute = DType::float32) {
  const double bound = tolerance_of(compute).relative;
  runtime::Executor executor(compiled.program, {});
  int cases = 0;
  for (;; ++cases) {
    std::filesystem::path inputs = folder_of(model) / ("inputs_" + std::to_string(cases) + ".npz");
    if (!std::filesystem::exists(inputs)) break;
    auto actual = executor.run(read_npz(inputs));
    for (const auto& [name, expected] : read_npz(folder_of(model) / ("outputs_" + std::to_string(cases) + ".npz"))) {
      ASSERT_TRUE(actual.contains(name)) << name;
      ASSERT_EQ(actual.at(name).dims, expected.dims) << name;
      auto want = expected.as<float>(), got = actual.at(name).as<float>();
      double largest = 0, worst = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_TRUE(std::isfinite(got[i])) << name << " element " << i;
        largest = std::max(largest, std::abs(static_cast<double>(want[i])));
        worst = std::max(worst, std::abs(static_cast<double>(want[i]) - got[i]));
      }
      EXPECT_LE(worst, bound * largest) << model << " on " << mesh << " case " << cases << ": " << name;
    }
  }
  EXPECT_GT(cases, 0) << "no inputs in " << folder_of(model);
}

inline void expect_answers(const std::string& model, const std::string& mesh, const std::string& preset,
                           DType compute = DType::float32) {
  expect_answers(model, compile_on(model, mesh, preset, compute), mesh, compute);
}

}  // namespace tessera::compiler
