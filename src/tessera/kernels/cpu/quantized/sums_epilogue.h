#pragma once

#include <optional>
#include <vector>

#include "tessera/kernels/cpu/quantized/sum_of_codes.h"
#include "tessera/kernels/kernel.h"

/// What a product of integers does with its sums before it stores them: the nodes that follow it in its group.
namespace tessera::kernels {

/// Whether a node can follow such a product, or another of these nodes, whose result it reads as operand `index`: Cast
/// to float32; Add and Mul; Relu; QuantizeLinear with one scale. Its other operands must be one number each, or a list
/// along the product's columns or channels. Behind the codes of a convolution, nodes_of_sum_of_codes() can follow.
bool can_follow_sums(const Node& node, size_t index);

class SumsEpilogue {
 public:
  explicit SumsEpilogue(const PrepareContext& context);

  bool is_empty() const { return stages_.empty(); }
  /// The sum of codes by which it ends, if there is one. It is not among what run() does.
  const std::optional<CodeSum>& sum_of_codes() const { return sum_; }
  /// Whether what it does is of the form that columns() describes: from sums to floats or to codes, each stage once at
  /// most.
  bool has_columns() const { return in_one_loop_; }
  /// Whether it ends in codes.
  bool gives_codes() const { return stage(Kind::quantize) != nullptr; }
  /// Bytes of scratch memory that columns() needs for a result of so many columns.
  size_t scratch_bytes(int64_t columns) const;
  /// Bytes of an element of the result.
  int64_t element_bytes() const { return element_bytes_; }

  /// The function of the sums in one run: (sum + addend) · factor + bias, perhaps cut below zero; or the codes of that
  /// over a scale, with numbers as moderate as CodesOfSums wants them. Without lists: it is of another form.
  struct Columns {
    const int32_t* addend = nullptr;
    const float *factor = nullptr, *bias = nullptr;
    bool cuts = false;  ///< of floats
    float scale = 1;    ///< of codes, as what follows
    int zero = 0;
    float least = 0, most = 0;  ///< to which ratios are cut before they are codes
  };
  /// `corrections`: added to the sums of each column before; null: nothing.
  Columns columns(const KernelArgs& args, int64_t count, const int32_t* corrections, std::byte* scratch) const;

  /// Rows of sums, and of results, so many elements apart.
  struct Rows {
    int64_t count = 1, sums_stride = 0, out_stride = 0;
  };
  /// Sums of columns first … first + count - 1 of some rows, to results from `out` on. The same bits as by the nodes'
  /// own kernels.
  void run(const KernelArgs& args, const Columns& columns, const Rows& rows, const int32_t* sums, int64_t first,
           int64_t count, std::byte* out) const;

 private:
  enum class Kind : uint8_t { add_integers, to_float, mul, add, relu, quantize };  // as has_columns() has their order
  struct Stage {
    Kind kind;
    int operand = -1, zero = -1;  ///< of the kernel
    bool is_list = false;
  };

  const Stage* stage(Kind kind) const;
  void run_stages(const KernelArgs& args, const int32_t* sums, int64_t first, int64_t count, std::byte* out) const;

  std::vector<Stage> stages_;
  std::optional<CodeSum> sum_;
  bool in_one_loop_ = false;
  DType result_ = DType::int32;
  int64_t element_bytes_ = 4;
};

}  // namespace tessera::kernels
