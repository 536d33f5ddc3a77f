#include "tessera/kernels/cpu/quantized/sums_epilogue.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/multiversion.h"
#include "tessera/kernels/cpu/elementwise/activations.h"
#include "tessera/kernels/cpu/quantized/code_lanes.h"
#include "tessera/kernels/cpu/quantized/integer_strip.h"
#include "tessera/kernels/cpu/quantized/quantize_row.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kPassColumns = 512;  // that go through all stages together, in the first cache

TESSERA_MULTIVERSION void sums_to_floats(const int32_t* sums, float* out, int64_t n) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) out[j] = static_cast<float>(sums[j]);
}
TESSERA_MULTIVERSION void add_to_sums(int32_t* sums, const int32_t* list, int64_t step, int64_t n) {
  for (int64_t j = 0; j < n; ++j)
    sums[j] = static_cast<int32_t>(static_cast<uint32_t>(sums[j]) + static_cast<uint32_t>(list[j * step]));
}
TESSERA_MULTIVERSION void add_list(float* x, const float* list, int64_t n) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) x[j] += list[j];
}
TESSERA_MULTIVERSION void add_number(float* x, float number, int64_t n) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) x[j] += number;
}
TESSERA_MULTIVERSION void multiply_by_list(float* x, const float* list, int64_t n) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) x[j] *= list[j];
}
TESSERA_MULTIVERSION void multiply_by_number(float* x, float number, int64_t n) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) x[j] *= number;
}
TESSERA_MULTIVERSION void cut_below_zero(float* x, int64_t n) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) x[j] = Relu()(x[j]);
}

template <typename To>
[[gnu::always_inline]] inline void finish(const SumsEpilogue::Columns& columns, const SumsEpilogue::Rows& rows,
                                          int64_t first, const int32_t* sums, To* out, int64_t n) {
  const Coder<To> coder(columns.least, columns.most, columns.zero);
  const int32_t* addends = columns.addend + first;
  const float *factors = columns.factor + first, *biases = columns.bias + first;
  const float scale = columns.scale;
  LaneWords sum, addend;  // which wrap around
  LaneFloats factor, bias;
  for (int64_t j = 0; j < n; j += kCodeLanes) {
    const int64_t count = std::min(kCodeLanes, n - j);
    load_lanes(reinterpret_cast<const uint32_t*>(addends + j), count, addend);
    load_lanes(factors + j, count, factor);
    load_lanes(biases + j, count, bias);
    for (int64_t i = 0; i < rows.count; ++i) {
      load_lanes(reinterpret_cast<const uint32_t*>(sums + i * rows.sums_stride + j), count, sum);
      coder.store(
          (__builtin_convertvector(reinterpret_cast<LaneInts>(sum + addend), LaneFloats) * factor + bias) / scale,
          count, out + i * rows.out_stride + j);
    }
  }
}
TESSERA_MULTIVERSION void finish_unsigned(const SumsEpilogue::Columns& columns, const SumsEpilogue::Rows& rows,
                                          int64_t first, const int32_t* sums, uint8_t* out, int64_t n) {
  finish(columns, rows, first, sums, out, n);
}
TESSERA_MULTIVERSION void finish_signed(const SumsEpilogue::Columns& columns, const SumsEpilogue::Rows& rows,
                                        int64_t first, const int32_t* sums, int8_t* out, int64_t n) {
  finish(columns, rows, first, sums, out, n);
}

template <bool cuts>
[[gnu::always_inline]] inline void finish_rows(const SumsEpilogue::Columns& columns, const SumsEpilogue::Rows& rows,
                                               int64_t first, const int32_t* sums, float* out, int64_t n) {
  const int32_t* addends = columns.addend + first;
  const float *factors = columns.factor + first, *biases = columns.bias + first;
  for (int64_t i = 0; i < rows.count; ++i, sums += rows.sums_stride, out += rows.out_stride)
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) {
      const auto sum = static_cast<int32_t>(static_cast<uint32_t>(sums[j]) + static_cast<uint32_t>(addends[j]));
      const float y = static_cast<float>(sum) * factors[j] + biases[j];
      out[j] = cuts ? Relu()(y) : y;
    }
}
TESSERA_MULTIVERSION void finish_floats(const SumsEpilogue::Columns& columns, const SumsEpilogue::Rows& rows,
                                        int64_t first, const int32_t* sums, float* out, int64_t n) {
  columns.cuts ? finish_rows<true>(columns, rows, first, sums, out, n)
               : finish_rows<false>(columns, rows, first, sums, out, n);
}

TESSERA_MULTIVERSION void add_sums(const int32_t* a, const int32_t* b, int32_t* out, int64_t n) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j)
    out[j] = static_cast<int32_t>(static_cast<uint32_t>(a[j]) + static_cast<uint32_t>(b[j]));
}

/// An operand for each column: the list itself, or the number again and again.
template <typename T>
const T* for_columns(const void* operand, bool is_list, T otherwise, int64_t count, T* scratch) {
  const auto* list = static_cast<const T*>(operand);
  if (list && is_list) return list;
  std::fill_n(scratch, count, list ? *list : otherwise);
  return scratch;
}

/// Whether all numbers are within the bounds of tiles. NaN is not.
bool are_moderate(const SumsEpilogue::Columns& columns, int64_t count) {
  bool moderate = columns.scale > 1 / most_factor && columns.scale < most_factor;
  for (int64_t j = 0; j < count; ++j)
    moderate &= std::abs(columns.factor[j]) < most_factor && std::abs(columns.bias[j]) < most_bias;
  return moderate;
}

bool is_one(const Value* value) {
  return value && value->has_shape() && value->rank() <= 1 && product(value->shape()).is(1);
}

}  // namespace

bool can_follow_sums(const Node& node, size_t index) {
  if (!node.domain.empty() || node.outputs.size() != 1) return false;
  const DType from = node.inputs[index]->dtype(), to = node.outputs[0]->dtype();
  if (node.is("Cast")) return from == DType::int32 && to == DType::float32;
  if (node.is("Add")) return from == DType::int32 || from == DType::float32;
  if (from != DType::float32) return false;
  if (node.is("Mul") || node.is("Relu")) return true;
  if (!node.is("QuantizeLinear") || index != 0 || node.get_int("precision", 0) != 0) return false;
  if (to != DType::uint8 && to != DType::int8) return false;
  return node.inputs[1]->dtype() == DType::float32 && is_one(node.inputs[1]) &&
         (!node.input(2) || is_one(node.input(2)));
}

SumsEpilogue::SumsEpilogue(const PrepareContext& context) : result_(context.outputs.at(0).dtype) {
  element_bytes_ = static_cast<int64_t>(bytes_of(result_, 1));
  bool integers = true;
  for (const Follower& follower : context.followers) {
    const Node& node = *follower.node;
    if (node.is("DequantizeLinear")) {
      sum_ = CodeSum::of(context, stages_.size() + 1);
      check(sum_ && sum_->a() == ~static_cast<int>(stages_.size()), "sums of integers end in a sum of codes");
      break;
    }
    Stage stage{Kind::relu};
    if (node.is("Cast")) stage.kind = Kind::to_float;
    if (node.is("Add")) stage.kind = integers ? Kind::add_integers : Kind::add;
    if (node.is("Mul")) stage.kind = Kind::mul;
    if (node.is("QuantizeLinear")) stage.kind = Kind::quantize;
    stage.operand = follower.other();
    if (stage.operand >= 0) stage.is_list = context.inputs.at(stage.operand).count() > 1;
    if (stage.kind == Kind::quantize && follower.operands.size() > 2 && context.has_input(follower.operands[2]))
      stage.zero = follower.operands[2];
    integers = integers && stage.kind != Kind::to_float;
    stages_.push_back(stage);
  }
  const auto is_late = [](const Stage& a, const Stage& b) { return a.kind >= b.kind; };
  in_one_loop_ = stage(Kind::to_float) && !stages_.empty() &&
                 std::adjacent_find(stages_.begin(), stages_.end(), is_late) == stages_.end();
}

const SumsEpilogue::Stage* SumsEpilogue::stage(Kind kind) const {
  const auto found = std::find_if(stages_.begin(), stages_.end(), [&](const Stage& s) { return s.kind == kind; });
  return found == stages_.end() ? nullptr : &*found;
}

size_t SumsEpilogue::scratch_bytes(int64_t columns) const {
  return in_one_loop_ ? 3 * bytes_of(DType::float32, columns) : 0;
}

SumsEpilogue::Columns SumsEpilogue::columns(const KernelArgs& args, int64_t count, const int32_t* corrections,
                                            std::byte* scratch) const {
  if (!in_one_loop_) return {};
  Columns columns{.cuts = stage(Kind::relu) != nullptr};
  if (const Stage* quantize = stage(Kind::quantize)) {
    columns.scale = *args.in<float>(quantize->operand);
    columns.zero = quantize->zero < 0 ? 0 : byte_at(result_, args.inputs[quantize->zero], 0);
    if (!(columns.scale > 0)) return {};  // Relu and a scale below zero do not change places
    const auto cut_by = [&](const auto& coder) { columns.least = coder.least(), columns.most = coder.most(); };
    if (result_ == DType::uint8)
      cut_by(Coder<uint8_t>(columns.zero, columns.cuts));
    else
      cut_by(Coder<int8_t>(columns.zero, columns.cuts));
  }
  const auto list_of = [&]<typename T>(Kind kind, T otherwise, int64_t place) {
    const Stage* found = stage(kind);
    return for_columns<T>(found ? args.inputs[found->operand] : nullptr, found && found->is_list, otherwise, count,
                          reinterpret_cast<T*>(scratch) + place * count);
  };
  columns.addend = list_of(Kind::add_integers, int32_t{0}, 0);
  columns.factor = list_of(Kind::mul, 1.0F, 1);
  columns.bias = list_of(Kind::add, -0.0F, 2);  // which keeps the sign of zero
  if (gives_codes() && !are_moderate(columns, count)) return {};
  if (!corrections) return columns;
  auto* own = reinterpret_cast<int32_t*>(scratch);
  add_sums(columns.addend, corrections, own, count);
  columns.addend = own;
  return columns;
}

void SumsEpilogue::run(const KernelArgs& args, const Columns& columns, const Rows& rows, const int32_t* sums,
                       int64_t first, int64_t count, std::byte* out) const {
  if (!columns.addend)
    for (int64_t i = 0; i < rows.count; ++i)
      run_stages(args, sums + i * rows.sums_stride, first, count, out + i * rows.out_stride * element_bytes_);
  else if (!gives_codes())
    finish_floats(columns, rows, first, sums, reinterpret_cast<float*>(out), count);
  else if (result_ == DType::uint8)
    finish_unsigned(columns, rows, first, sums, reinterpret_cast<uint8_t*>(out), count);
  else
    finish_signed(columns, rows, first, sums, reinterpret_cast<int8_t*>(out), count);
}

void SumsEpilogue::run_stages(const KernelArgs& args, const int32_t* sums, int64_t first, int64_t count,
                              std::byte* out) const {
  alignas(64) int32_t integers[kPassColumns];
  alignas(64) float floats[kPassColumns];
  for (int64_t from = 0; from < count; from += kPassColumns) {
    const int64_t n = std::min(kPassColumns, count - from);
    const int32_t* whole = sums + from;
    std::byte* to = out + from * element_bytes_;
    for (const Stage& stage : stages_) {
      const auto* list =
          stage.operand < 0 ? nullptr : args.in<float>(stage.operand) + (stage.is_list ? first + from : 0);
      switch (stage.kind) {
        case Kind::add_integers:
          if (whole != integers) std::copy_n(whole, n, integers);
          whole = integers;
          add_to_sums(integers, reinterpret_cast<const int32_t*>(list), stage.is_list ? 1 : 0, n);
          break;
        case Kind::to_float:
          sums_to_floats(whole, floats, n);
          break;
        case Kind::add:
          stage.is_list ? add_list(floats, list, n) : add_number(floats, *list, n);
          break;
        case Kind::mul:
          stage.is_list ? multiply_by_list(floats, list, n) : multiply_by_number(floats, *list, n);
          break;
        case Kind::relu:
          cut_below_zero(floats, n);
          break;
        case Kind::quantize:
          quantize_row(result_, floats, *list, stage.zero < 0 ? 0 : byte_at(result_, args.inputs[stage.zero], 0), to,
                       n);
          break;
      }
    }
    if (result_ == DType::int32) std::memcpy(to, whole, static_cast<size_t>(n) * sizeof(int32_t));
    if (result_ == DType::float32) std::memcpy(to, floats, static_cast<size_t>(n) * sizeof(float));
  }
}

}  // namespace tessera::kernels
