#include "tessera/kernels/cpu/sum_of_codes.h"

#include <algorithm>
#include <limits>
#include <numeric>

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
[[gnu::always_inline]] inline void add(const Codes<Code> a, const Codes<Code> b, const Coder<Code> coder,
                                       const float scale, Code* out, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i)
    out[i] = coder.code(
        (static_cast<float>(a.at[i] - a.zero) * a.scale + static_cast<float>(b.at[i] - b.zero) * b.scale) / scale);
}
TESSERA_MULTIVERSION void add_unsigned(const Codes<uint8_t>& a, const Codes<uint8_t>& b, const Coder<uint8_t>& coder,
                                       float scale, uint8_t* out, int64_t n) {
  add(a, b, coder, scale, out, n);
}
TESSERA_MULTIVERSION void add_signed(const Codes<int8_t>& a, const Codes<int8_t>& b, const Coder<int8_t>& coder,
                                     float scale, int8_t* out, int64_t n) {
  add(a, b, coder, scale, out, n);
}

/// Where a node's operands are, as Follower::operands says.
struct Places {
  static constexpr int kNone = std::numeric_limits<int>::min();
  int data = kNone, scale = kNone, zero = kNone;
};

Places places_of(const PrepareContext& context, const std::vector<int>& operands) {
  const auto place = [&](size_t i) {
    const bool is_there = i < operands.size() && (operands[i] < 0 || context.has_input(operands[i]));
    return is_there ? operands[i] : Places::kNone;
  };
  return {place(0), place(1), place(2)};
}

/// The node's scale is one float32, and its zero point, if it has one, one code of that type.
bool has_one_scale(const PrepareContext& context, const Places& of, DType codes) {
  const auto is_one = [&](int operand, DType dtype) {
    return operand >= 0 && context.inputs[operand].dtype == dtype && context.inputs[operand].count() == 1;
  };
  return is_one(of.scale, DType::float32) && (of.zero == Places::kNone || is_one(of.zero, codes));
}

bool is_float32(const Node& node) {
  return node.outputs[0]->dtype() == DType::float32;
}

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
      return Codes<Code>{args.in<Code>(of.data) + first, *args.in<float>(of.scale), zero(args, of)};
    };
    const Coder<Code> coder(zero(args, y_), cuts_);
    constexpr int64_t kWork = 8;  // operations for each element
    for_ranges(count_, count_ * kWork, threads_, [&](int64_t begin, int64_t end) {
      add(codes(a_, begin), codes(b_, begin), coder, *args.in<float>(y_.scale), args.out<Code>() + begin, end - begin);
    });
  }

  int zero(const KernelArgs& args, const Places& of) const {
    return of.zero == Places::kNone ? 0 : byte_at(dtype_, args.inputs[of.zero], 0);
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
  // What lies between is float32, and not stored.
  if (!is_float32(context.node) || followers.back().node->get_int("precision", 0) != 0 ||
      !std::all_of(followers.begin(), followers.end() - 1, [](const Follower& each) { return is_float32(*each.node); }))
    return nullptr;
  for (size_t r = 1; r < context.outputs.size(); ++r)
    if (context.has_output(r)) return nullptr;
  const TensorDesc& result = context.outputs[0];
  if ((result.dtype != DType::uint8 && result.dtype != DType::int8) || !result.strides.empty() ||
      result.bytes() != static_cast<size_t>(result.count()))
    return nullptr;
  std::vector<int> root(context.node.inputs.size());
  std::iota(root.begin(), root.end(), 0);
  const Places a = places_of(context, root), b = places_of(context, followers[0].operands),
               y = places_of(context, followers.back().operands);
  // Add reads what the first two nodes make, and each node after it what the one before makes.
  std::vector<int> added = followers[1].operands;
  std::sort(added.begin(), added.end());
  if (added != std::vector<int>{~1, ~0} || (cuts && followers[2].operands != std::vector<int>{~2}) ||
      y.data != ~static_cast<int>(followers.size() - 1))
    return nullptr;
  for (const Places& of : {a, b}) {
    if (of.data < 0 || !has_one_scale(context, of, result.dtype)) return nullptr;
    const TensorDesc& codes = context.inputs[of.data];
    if (codes.dtype != result.dtype || codes.dims != result.dims || codes.block != result.block ||
        !codes.strides.empty())
      return nullptr;
  }
  if (!has_one_scale(context, y, result.dtype)) return nullptr;
  // Relu and a scale below zero do not change places.
  const auto* scale = static_cast<const float*>(context.known[y.scale]);
  if (cuts && !(scale && *scale > 0)) return nullptr;
  return std::make_unique<SumOfCodes>(context, a, b, y, cuts);
}

}  // namespace tessera::kernels
