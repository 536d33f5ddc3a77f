#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "api/small_model.h"
#include "io/temporary_folder.h"
#include "tessera/onnx.pb.h"

/// y = (x · w + b) · k, whose w [8, 8], b [8] and k [1] are initializers that the file lists as inputs, too.
namespace tessera::test {

/// Writes it as "model.onnx".
inline void write_default_inputs(const TemporaryFolder& folder, int64_t ir_version) {
  write_model(folder, R"(
<ir_version: 10, opset_import: ["" : 17]>
g (float[batch, 8] x) => (float[batch, 8] y) <float[8, 8] w, float[8] b, float[1] k = {2.0}> {
  p = MatMul (x, w)
  s = Add (p, b)
  y = Mul (s, k)
})");
  onnx::ModelProto model;
  model.ParseFromString(testing_io::contents(folder / "model.onnx"));
  model.set_ir_version(ir_version);
  for (const auto& tensor : model.graph().initializer()) {
    auto& input = *model.mutable_graph()->add_input();
    input.set_name(tensor.name());
    auto& type = *input.mutable_type()->mutable_tensor_type();
    type.set_elem_type(tensor.data_type());
    for (int64_t dim : tensor.dims()) type.mutable_shape()->add_dim()->set_dim_value(dim);
  }
  testing_io::put(folder / "model.onnx", model.SerializeAsString());
}

inline Tensor counted_from(float first, Dims dims) {
  Tensor tensor = Tensor::zeros(DType::float32, std::move(dims));
  auto* elements = reinterpret_cast<float*>(tensor.mutable_data());
  for (int64_t i = 0; i < tensor.count(); ++i) elements[i] = first + static_cast<float>(i % 5);
  return tensor;
}

/// x, and each set of the three others.
inline std::vector<Tensors> choices_of_default_inputs() {
  const Tensors others = {{"w", counted_from(-2, {8, 8})}, {"b", counted_from(1, {8})}, {"k", counted_from(5, {1})}};
  std::vector<Tensors> all;
  for (unsigned set = 0; set < 8; ++set) {
    Tensors given = {{"x", counted_from(-1, {4, 8})}};
    unsigned bit = 1;
    for (const auto& [name, value] : others) {
      if (set & bit) given.emplace(name, value);
      bit *= 2;
    }
    all.push_back(std::move(given));
  }
  return all;
}

/// y by the definition, the defaults taking the place of what is not given.
inline std::vector<float> answer_of_default_inputs(const Tensors& given) {
  Tensors all = given;
  all.emplace("w", ramp({8, 8}));
  all.emplace("b", ramp({8}));
  all.emplace("k", Tensor::of<float>(DType::float32, {1}, {2}));
  const auto x = all.at("x").as<float>(), w = all.at("w").as<float>(), b = all.at("b").as<float>();
  std::vector<float> y(x.size());
  for (size_t row = 0; row * 8 < x.size(); ++row)
    for (size_t c = 0; c < 8; ++c) {
      float sum = b[c];
      for (size_t i = 0; i < 8; ++i) sum += x[row * 8 + i] * w[i * 8 + c];
      y[row * 8 + c] = sum * all.at("k").as<float>()[0];
    }
  return y;
}

inline void expect_answer_of_default_inputs(const Tensor& y, const Tensors& given) {
  const std::vector<float> wanted = answer_of_default_inputs(given);
  ASSERT_EQ(y.as<float>().size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(y.as<float>()[i], wanted[i], 1e-4 * (1 + std::abs(wanted[i]))) << i;
}

}  // namespace tessera::test
