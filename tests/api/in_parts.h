#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "api/small_model.h"
#include "tessera/base/error.h"

/// What tests of models that run in parts share.
namespace tessera::test::in_parts {

inline Tensor floats(Dims dims, const std::vector<float>& elements) {
  return Tensor::of(DType::float32, std::move(dims), elements);
}
inline Tensor ints(Dims dims, const std::vector<int64_t>& elements) {
  return Tensor::of(DType::int64, std::move(dims), elements);
}
inline std::vector<float> elements_of(const Tensor& tensor) {
  return {tensor.as<float>().begin(), tensor.as<float>().end()};
}

inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    return error.what();
  }
  return "";
}

inline Model model_of(const TemporaryFolder& folder, const std::string& text) {
  const std::filesystem::path path = folder / "model.onnx";
  export_model(parse_text(text), path);
  return Model::load(path);
}

}  // namespace tessera::test::in_parts
