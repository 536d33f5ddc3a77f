#pragma once

#include <vector>

#include "tessera/kernels/kernel.h"

/// What a product of integers does with its sums before it stores them: the nodes that follow it in its group.
namespace tessera::kernels {

/// Whether a node can follow such a product, or another of these nodes, whose result it reads as operand `index`: Cast
/// to float32; Add and Mul; Relu; QuantizeLinear with one scale. Its other operands must be one number each, or a list
/// along the product's columns or channels.
bool can_follow_sums(const Node& node, size_t index);

class SumsEpilogue {
 public:
  explicit SumsEpilogue(const PrepareContext& context);

  bool is_empty() const { return stages_.empty(); }
  /// Bytes of an element of the result.
  int64_t element_bytes() const { return element_bytes_; }

  /// Sums of columns first … first + count - 1, to results side by side from `out` on. The same bits as by the nodes'
  /// own kernels.
  void run(const KernelArgs& args, const int32_t* sums, int64_t first, int64_t count, std::byte* out) const;

 private:
  enum class Kind : uint8_t { to_float, add_integers, add, mul, relu, quantize };
  struct Stage {
    Kind kind;
    int operand = -1, zero = -1;  ///< of the kernel
    bool is_list = false;
  };

  std::vector<Stage> stages_;
  DType result_ = DType::int32;
  int64_t element_bytes_ = 4;
};

}  // namespace tessera::kernels
