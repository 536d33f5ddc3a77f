#include "tessera/kernels/cpu/recurrent/recurrence_form.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "tessera/base/error.h"
#include "tessera/kernels/cpu/library/dispatch.h"
#include "tessera/kernels/cpu/library/scratch.h"

namespace tessera::kernels {
namespace {

TurnedMatrix matrix_of(DType dtype, int64_t rows, int64_t columns) {
  TurnedMatrix matrix{rows, columns};
  if (matrix.count() == 0) return matrix;
  matrix.layout = matmul_weight_layout(dtype, {rows, columns}, true);
  constexpr size_t kLine = 64;
  const size_t bytes = matrix.layout ? matrix.layout->bytes() : bytes_of(dtype, matrix.count());
  matrix.bytes = (bytes + kLine - 1) / kLine * kLine;
  return matrix;
}

/// Copies a matrix into its packed form.
struct Packer {
  Packer(const TurnedMatrix& matrix, int threads) : plain_bytes(bytes_of(DType::float32, matrix.count())) {
    if (matrix.layout) reorder = onednn::reorder(matrix.layout->plain, matrix.layout->packed, threads);
  }
  void run(const float* plain, std::byte* packed, void* scratch) const {
    if (reorder)
      reorder->run(std::array<const void*, 2>{plain, packed}, scratch);
    else if (plain_bytes > 0)
      std::memcpy(packed, plain, plain_bytes);
  }
  size_t scratch_bytes() const { return reorder ? reorder->scratch_bytes() : 0; }

  size_t plain_bytes;
  std::shared_ptr<onednn::Primitive> reorder;
};

}  // namespace

std::optional<RecurrenceForm> recurrence_form(const Node& node, std::string_view op_type, const TensorDesc& weight,
                                              DType recurrence) {
  const int64_t gates = op_type == "LSTM" ? 4 : op_type == "GRU" ? 3 : op_type == "RNN" ? 1 : 0;
  if (gates == 0 || weight.dtype != DType::float32 || recurrence != DType::float32) return std::nullopt;
  if (weight.dims.size() != 3 || weight.dims[1] % gates != 0) return std::nullopt;
  const int64_t h = weight.dims[1] / gates;
  const bool resets_before = op_type == "GRU" && node.get_int("linear_before_reset", 0) == 0;
  const auto matrix = [&](int64_t rows, int64_t columns) { return matrix_of(weight.dtype, rows, columns); };
  return RecurrenceForm{weight.dims[0], matrix(gates * h, weight.dims[2]), matrix((resets_before ? 2 : gates) * h, h),
                        matrix(resets_before ? h : 0, h)};
}

namespace {

std::unique_ptr<Kernel> prepare_pack(const RecurrenceForm& form, int threads) {
  const Packer input(form.input, threads), state(form.state, threads), last(form.last, threads);
  const size_t scratch_bytes = std::max({input.scratch_bytes(), state.scratch_bytes(), last.scratch_bytes()});
  return make_kernel(
      [=](const KernelArgs& args) {
        const auto *weights = args.in<float>(0), *recurrence = args.in<float>(1);
        auto* packed = static_cast<std::byte*>(args.outputs[0]);
        for (int64_t d = 0; d < form.directions; ++d, packed += form.direction_bytes()) {
          input.run(weights, packed, args.scratch);
          state.run(recurrence, packed + form.state_at(), args.scratch);
          last.run(recurrence + form.state.count(), packed + form.last_at(), args.scratch);
          weights += form.input.count();
          recurrence += form.state.count() + form.last.count();
        }
      },
      scratch_bytes);
}

}  // namespace

std::optional<PackedLayout> pack_recurrence(const Node& node, const TensorDesc& weight) {
  const Value* of_state = node.input(2);
  if (!of_state || !of_state->is_fixed()) return std::nullopt;
  const auto form = recurrence_form(node, node.op_type, weight, of_state->dtype());
  if (!form) return std::nullopt;
  const size_t bytes = static_cast<size_t>(form->directions) * form->direction_bytes();
  if (bytes == 0) return std::nullopt;
  PackedLayout packed = new_packed_layout(node, weight, bytes, {"linear_before_reset"});
  packed.beside = packed.spared = {2};
  packed.prepare = [form = *form, label = node.label()](const std::vector<TensorDesc>& operands, int threads) {
    if (operands.at(1).count() != form.directions * (form.state.count() + form.last.count()))
      fail("kernel", "{}: the weights and the recurrence do not fit together", label);
    return prepare_pack(form, threads);
  };
  return packed;
}

}  // namespace tessera::kernels
