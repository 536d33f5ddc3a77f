#pragma once

#include <string>

#include "io/temporary_folder.h"
#include "tessera/ir/text.h"
#include "tessera/onnx/export.h"
#include "tessera/tessera.h"

/// Models written to files for tests of the public API.
namespace tessera::test {

using testing_io::TemporaryFolder;

inline Tensor ramp(Dims dims, int64_t first = 0) {
  Tensor tensor = Tensor::zeros(DType::float32, std::move(dims));
  auto* elements = reinterpret_cast<float*>(tensor.mutable_data());
  for (int64_t i = 0; i < tensor.count(); ++i) elements[i] = static_cast<float>((first + i) % 7 - 3) / 4;
  return tensor;
}

/// Writes the model of a text, its states filled with values that are not all alike; with a `step`, each state's begin
/// so much further on than the one's before.
inline std::filesystem::path write_model(const TemporaryFolder& folder, std::string_view text, int64_t step = 0) {
  OnnxModel model = parse_text(text);
  int64_t first = 0;
  for (Value* state : model.graph->values_of(ValueKind::state)) {
    state->data = ramp(state->data.dims, first);
    first += step;
  }
  std::filesystem::path path = folder / "model.onnx";
  export_model(model, path);
  return path;
}

/// Whether a process' resident memory shows what it holds: sanitizers keep freed memory for a while.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kCountsMemory = false;
#else
inline constexpr bool kCountsMemory = true;
#endif

/// Two matmuls with a Relu between: what megatron splits.
inline constexpr std::string_view kPair = R"(
pair (float[batch, 8] x) => (float[batch, 8] y) <float[8, 32] up, float[32, 8] down> {
  hidden = MatMul (x, up)
  active = Relu (hidden)
  y = MatMul (active, down)
})";

// A loop that stays one, with a branch in it that the run decides: its node up to its operands, for a weight [8, 8]
// 'w'.
inline const std::string kBranchInALoop =
    R"(y = Loop <body = often (int64 i, bool c, float[4, 8] v) => (bool c2, float[4, 8] v2) {
        p = MatMul (v, w)
        size = ReduceSum <keepdims = 0> (p)
        limit = Constant <value = float {1}> ()
        large = Greater (size, limit)
        r = If (large) <then_branch = t () => (float[4, 8] a) { a = Sign (p) },
                        else_branch = e () => (float[4, 8] b) { b = Neg (v) }>
        v2 = Identity (r)
        c2 = Identity (c)
      }>)";

}  // namespace tessera::test
