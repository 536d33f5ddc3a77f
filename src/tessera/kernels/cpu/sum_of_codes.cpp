#include "tessera/kernels/cpu/sum_of_codes.h"

#include <algorithm>
#include <array>

#include "tessera/base/multiversion.h"
#include "tessera/kernels/cpu/code_lanes.h"
#include "tessera/kernels/cpu/parallel.h"
#include "tessera/kernels/cpu/quantize_row.h"

namespace tessera::kernels {
namespace {

/// Codes, and what they stand for: (code - zero) · scale.
template <typename Code>
struct Codes {
  const Code* at;
  float scale;
  int zero;
};

template <typename Code>
[[gnu::always_inline]] inline void add(const Codes<Code>& a, const Codes<Code>& b, const Coder<Code>& coder,
                                       float scale, Code* out, int64_t n) {
  const Code *first = a.at, *second = b.at;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i)
    out[i] = coder.code(
        (static_cast<float>(first[i] - a.zero) * a.scale + static_cast<float>(second[i] - b.zero) * b.scale) / scale);
}
TESSERA_MULTIVERSION void add_unsigned(const Codes<uint8_t>& a, const Codes<uint8_t>& b, const Coder<uint8_t>& coder,
                                       float scale, uint8_t* out, int64_t n) {
  add(a, b, coder, scale, out, n);
}
TESSERA_MULTIVERSION void add_signed(const Codes<int8_t>& a, const Codes<int8_t>& b, const Coder<int8_t>& coder,
                                     float scale, int8_t* out, int64_t n) {
  add(a, b, coder, scale, out, n);
}

/// Operands of the kernel: codes or none (the result), scale, and zero point; -1: none.
using Places = std::array<int, 3>;

class SumOfCodes : public Kernel {
 public:
  SumOfCodes(const PrepareContext& context, Places a, Places b, Places y, bool cuts)
      : dtype_(context.outputs[0].dtype),
        count_(context.outputs[0].count()),
        a_(a),
        b_(b),
        y_(y),
        cuts_(cuts),
        threads_(context.threads) {}

  void run(const KernelArgs& args) override {
    if (dtype_ == DType::uint8)
      run<uint8_t>(args, add_unsigned);
    else
      run<int8_t>(args, add_signed);
  }

 private:
  template <typename Code, typename Add>
  void run(const KernelArgs& args, Add add) const {
    const auto codes = [&](const Places& of, int64_t first) {
      return Codes<Code>{args.in<Code>(of[0]) + first, *args.in<float>(of[1]), zero(args, of)};
    };
    const Coder<Code> coder(zero(args, y_), cuts_);
    constexpr int64_t kWork = 8;  // operations for each element
    for_ranges(count_, count_ * kWork, threads_, [&](int64_t begin, int64_t end) {
      add(codes(a_, begin), codes(b_, begin), coder, *args.in<float>(y_[1]), args.out<Code>() + begin, end - begin);
    });
  }

  int zero(const KernelArgs& args, const Places& of) const {
    return of[2] < 0 ? 0 : byte_at(dtype_, args.inputs[of[2]], 0);
  }

  DType dtype_;
  int64_t count_;
  Places a_, b_, y_;
  bool cuts_;
  int threads_;
};

}  // namespace

std::unique_ptr<Kernel> sum_of_codes(const PrepareContext& context) {
  const std::vector<Follower>& followers = context.followers;
  const bool cuts = followers.size() == 4;
  if ((followers.size() != 3 && !cuts) || !context.node.is("DequantizeLinear") ||
      !followers[0].node->is("DequantizeLinear") || !followers[1].node->is("Add") ||
      (cuts && !followers[2].node->is("Relu")) || !followers.back().node->is("QuantizeLinear"))
    return nullptr;
  for (size_t r = 1; r < context.outputs.size(); ++r)
    if (context.has_output(r)) return nullptr;  // what lies between is stored, too
  const TensorDesc& result = context.outputs[0];
  const auto place = [](const std::vector<int>& operands, size_t i) { return i < operands.size() ? operands[i] : -1; };
  const auto places = [&](const std::vector<int>& operands) {
    return Places{place(operands, 0), place(operands, 1), place(operands, 2)};
  };
  std::vector<int> root(context.node.inputs.size());
  for (size_t i = 0; i < root.size(); ++i) root[i] = static_cast<int>(i);
  const Places a = places(root), b = places(followers[0].operands), y = places(followers.back().operands);
  // The second and third node make what Add reads, and the last reads what is before it.
  std::vector<int> added = followers[1].operands;
  std::sort(added.begin(), added.end());
  if (added != std::vector<int>{~1, ~0} || (cuts && followers[2].operands != std::vector<int>{~2}) ||
      y[0] != ~static_cast<int>(followers.size() - 1) || b[0] < 0)
    return nullptr;
  const auto is_one = [&](int operand, DType dtype) {
    const TensorDesc& desc = context.inputs[operand];
    return !desc.present() || (desc.dtype == dtype && desc.count() == 1);
  };
  for (const Places& of : {a, b, y})
    if (of[1] < 0 || !is_one(of[1], DType::float32) || (of[2] >= 0 && !is_one(of[2], result.dtype))) return nullptr;
  for (const Places& of : {a, b}) {
    const TensorDesc& codes = context.inputs[of[0]];
    if (codes.dtype != result.dtype || codes.dims != result.dims || codes.block != result.block ||
        !codes.strides.empty())
      return nullptr;
  }
  if ((result.dtype != DType::uint8 && result.dtype != DType::int8) || !result.strides.empty() ||
      result.bytes() != static_cast<size_t>(result.count()))
    return nullptr;
  // Relu and a scale below zero do not change places.
  if (cuts && !(context.known[y[1]] && *static_cast<const float*>(context.known[y[1]]) > 0)) return nullptr;
  return std::make_unique<SumOfCodes>(context, a, b, y, cuts);
}

}  // namespace tessera::kernels
