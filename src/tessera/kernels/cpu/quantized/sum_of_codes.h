#pragma once

#include <limits>
#include <optional>

#include "tessera/kernels/kernel.h"

/// The residual of a quantized network in one loop: y = QuantizeLinear (Add (DequantizeLinear (a), DequantizeLinear
/// (b))), perhaps with Relu before the last, of codes of one byte with one scale each. The bits are those of the single
/// nodes.
namespace tessera::kernels {

/// The same as a kernel of its own, of codes with the same strides. Null: the group is another one.
std::unique_ptr<Kernel> sum_of_codes(const PrepareContext& context);

/// The nodes of the sum whose first operand is `codes`: both that dequantize, and those that follow. Empty if these are
/// others, or do not fit.
std::vector<const Node*> nodes_of_sum_of_codes(const Value& codes);

/// The sum of codes by which a group ends.
class CodeSum {
 public:
  /// With the group's node `first` as the one that dequantizes a (0: the root). Nullopt: the group is another one.
  static std::optional<CodeSum> of(const PrepareContext& context, size_t first);

  /// The kernel's operands of codes; a negative number: what the group has made of it.
  int a() const { return a_.data; }
  int b() const { return b_.data; }

  /// The numbers of a run: y = round(((a - a_zero) · a_scale + (b - b_zero) · b_scale) / scale), cut to least … most,
  /// plus zero; 0 for NaN.
  struct Numbers {
    float a_scale = 1, b_scale = 1, scale = 1, least = 0, most = 0;
    int a_zero = 0, b_zero = 0, zero = 0;
  };
  Numbers numbers(const KernelArgs& args) const;
  /// `count` codes; `out` may be `a`.
  void run(const Numbers& numbers, const std::byte* a, const std::byte* b, std::byte* out, int64_t count) const;

 private:
  /// Where a node's operands are, as Follower::operands says.
  struct Places {
    static constexpr int kNone = std::numeric_limits<int>::min();
    int data = kNone, scale = kNone, zero = kNone;
  };
  static Places places_of(const PrepareContext& context, const std::vector<int>& operands);
  int zero(const KernelArgs& args, const Places& of) const;

  DType dtype_ = DType::uint8;
  Places a_, b_, y_;
  bool cuts_ = false;
};

}  // namespace tessera::kernels
