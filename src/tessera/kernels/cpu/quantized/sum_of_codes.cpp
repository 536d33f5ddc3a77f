#include "tessera/kernels/cpu/quantized/sum_of_codes.h"

#include <algorithm>
#include <numeric>

#include "tessera/base/multiversion.h"
#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/cpu/quantized/code_lanes.h"
#include "tessera/kernels/cpu/quantized/quantize_row.h"

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

bool is_float32(const Node& node) {
  return node.outputs[0]->dtype() == DType::float32;
}

bool is_one(const Value* value, DType dtype) {
  return value && value->dtype() == dtype && value->has_shape() && product(value->shape()).is(1);
}

/// One scale of float32, and perhaps one zero point.
bool has_one_scale(const Node& node, DType codes) {
  return is_one(node.input(1), DType::float32) && (!node.input(2) || is_one(node.input(2), codes));
}

bool dequantizes(const Node* node, DType codes) {
  return node && node->is("DequantizeLinear") && node->domain.empty() && node->inputs[0]->dtype() == codes &&
         is_float32(*node) && has_one_scale(*node, codes);
}

/// The one node that reads the value.
const Node* only_user(const Value& value) {
  return value.uses.size() == 1 ? value.uses[0].node : nullptr;
}

/// What follows the two that dequantize: Add, perhaps Relu, and QuantizeLinear. Empty if it is something else.
std::vector<const Node*> sum_and_codes(const Node* sum, DType codes) {
  if (!sum || !sum->is("Add") || !sum->domain.empty() || !is_float32(*sum)) return {};
  std::vector<const Node*> nodes = {sum};
  const Node* last = only_user(*sum->outputs[0]);
  if (last && last->is("Relu") && last->domain.empty()) {
    nodes.push_back(last);
    last = only_user(*last->outputs[0]);
  }
  if (!last || !last->is("QuantizeLinear") || !last->domain.empty() || last->get_int("precision", 0) != 0) return {};
  const bool reads_sum = last->inputs[0] == nodes.back()->outputs[0];
  if (!reads_sum || last->outputs[0]->dtype() != codes || !has_one_scale(*last, codes)) return {};
  nodes.push_back(last);
  return nodes;
}

}  // namespace

std::vector<const Node*> nodes_of_sum_of_codes(const Value& codes) {
  const DType dtype = codes.dtype();
  const Node* a = only_user(codes);
  if ((dtype != DType::uint8 && dtype != DType::int8) || !dequantizes(a, dtype)) return {};
  const Value& floats = *a->outputs[0];
  std::vector<const Node*> rest = sum_and_codes(only_user(floats), dtype);
  if (rest.empty()) return {};
  // Relu and a scale below zero do not change places.
  const Value& scale = *rest.back()->inputs[1];
  if (rest.size() == 3 && !(scale.kind == ValueKind::constant && scale.data.as<float>()[0] > 0)) return {};
  const Value* other = rest[0]->inputs[rest[0]->inputs[0] == &floats ? 1 : 0];
  const Node* b = other->producer;
  if (!dequantizes(b, dtype) || b == a || only_user(*other) != rest[0]) return {};
  rest.insert(rest.begin(), {a, b});
  return rest;
}

CodeSum::Places CodeSum::places_of(const PrepareContext& context, const std::vector<int>& operands) {
  const auto place = [&](size_t i) {
    const bool is_there = i < operands.size() && (operands[i] < 0 || context.has_input(operands[i]));
    return is_there ? operands[i] : Places::kNone;
  };
  return {place(0), place(1), place(2)};
}

std::optional<CodeSum> CodeSum::of(const PrepareContext& context, size_t first) {
  const std::vector<Follower>& followers = context.followers;
  const auto node = [&](size_t member) { return member == 0 ? &context.node : followers[member - 1].node; };
  if (followers.size() < first + 3) return std::nullopt;
  const DType dtype = node(followers.size())->outputs[0]->dtype();
  std::vector<const Node*> after;
  for (size_t member = first + 2; member <= followers.size(); ++member) after.push_back(node(member));
  if ((dtype != DType::uint8 && dtype != DType::int8) || !dequantizes(node(first), dtype) ||
      !dequantizes(node(first + 1), dtype) || sum_and_codes(after[0], dtype) != after)
    return std::nullopt;
  // Add reads what the two make, in any order.
  const int a = ~static_cast<int>(first), b = a - 1;
  std::vector<int> added = followers[first + 1].operands;
  std::sort(added.begin(), added.end());
  if (added != std::vector<int>{b, a}) return std::nullopt;
  std::vector<int> root(context.node.inputs.size());
  std::iota(root.begin(), root.end(), 0);
  CodeSum sum;
  sum.dtype_ = dtype;
  sum.a_ = places_of(context, first == 0 ? root : followers[first - 1].operands);
  sum.b_ = places_of(context, followers[first].operands);
  sum.y_ = places_of(context, followers.back().operands);
  sum.cuts_ = after.size() == 3;
  if (sum.cuts_) {  // Relu and a scale below zero do not change places
    const auto* scale = sum.y_.scale < 0 ? nullptr : static_cast<const float*>(context.known[sum.y_.scale]);
    if (!scale || !(*scale > 0)) return std::nullopt;
  }
  for (const Places& of : {sum.a_, sum.b_, sum.y_})
    if (of.scale < 0 || (of.zero != Places::kNone && of.zero < 0)) return std::nullopt;
  return sum;
}

int CodeSum::zero(const KernelArgs& args, const Places& of) const {
  return of.zero == Places::kNone ? 0 : byte_at(dtype_, args.inputs[of.zero], 0);
}

CodeSum::Numbers CodeSum::numbers(const KernelArgs& args) const {
  Numbers numbers{.a_scale = *args.in<float>(a_.scale),
                  .b_scale = *args.in<float>(b_.scale),
                  .scale = *args.in<float>(y_.scale),
                  .a_zero = zero(args, a_),
                  .b_zero = zero(args, b_),
                  .zero = zero(args, y_)};
  const auto cut_by = [&](const auto& coder) { numbers.least = coder.least(), numbers.most = coder.most(); };
  if (dtype_ == DType::uint8)
    cut_by(Coder<uint8_t>(numbers.zero, cuts_));
  else
    cut_by(Coder<int8_t>(numbers.zero, cuts_));
  return numbers;
}

void CodeSum::run(const Numbers& numbers, const std::byte* a, const std::byte* b, std::byte* out, int64_t count) const {
  const auto add_by = [&]<typename Code>(auto add, Code* codes) {
    add(Codes<Code>{reinterpret_cast<const Code*>(a), numbers.a_scale, numbers.a_zero},
        Codes<Code>{reinterpret_cast<const Code*>(b), numbers.b_scale, numbers.b_zero},
        Coder<Code>(numbers.least, numbers.most, numbers.zero), numbers.scale, codes, count);
  };
  if (dtype_ == DType::uint8)
    add_by(add_unsigned, reinterpret_cast<uint8_t*>(out));
  else
    add_by(add_signed, reinterpret_cast<int8_t*>(out));
}

std::unique_ptr<Kernel> sum_of_codes(const PrepareContext& context) {
  const std::optional<CodeSum> sum = CodeSum::of(context, 0);
  if (!sum || sum->b() < 0) return nullptr;
  for (size_t r = 1; r < context.outputs.size(); ++r)
    if (context.has_output(r)) return nullptr;
  const TensorDesc& result = context.outputs[0];
  if (!result.strides.empty() || result.bytes() != static_cast<size_t>(result.count())) return nullptr;
  for (const int operand : {sum->a(), sum->b()}) {
    const TensorDesc& codes = context.inputs[operand];
    if (codes.dims != result.dims || codes.block != result.block || !codes.strides.empty()) return nullptr;
  }
  return make_kernel([sum = *sum, count = result.count(), threads = context.threads](const KernelArgs& args) {
    constexpr int64_t kWork = 8;  // operations for each element
    const CodeSum::Numbers numbers = sum.numbers(args);
    for_ranges(count, count * kWork, threads, [&](int64_t begin, int64_t end) {
      sum.run(numbers, args.in<std::byte>(sum.a()) + begin, args.in<std::byte>(sum.b()) + begin,
              args.out<std::byte>() + begin, end - begin);
    });
  });
}

}  // namespace tessera::kernels
