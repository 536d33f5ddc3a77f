#include "tessera/kernels/cpu/quantized/integer_product.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "tessera/base/multiversion.h"
#include "tessera/kernels/cpu/library/onednn.h"
#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/cpu/library/scratch.h"
#include "tessera/kernels/cpu/quantized/integer_strip.h"

// The products themselves are of a as uint8 (int8 plus 128) by b as int8 (uint8 less 128), which is what instructions
// multiply. Zero points come in afterwards:
//
//     Σ (a - x)(b - y) = Σ a·b - x·Σ b - y·(Σ a - k·x)
//
// with the sums of b's columns from the packed form, and those of a's rows only if a y is not zero. All sums wrap
// around, so that these differences do, too.
namespace tessera::kernels {
namespace {

constexpr int64_t kIntegerStrip = 64;

/// A zero point as the shifted operands have it.
uint32_t shifted(DType dtype, const void* data, int64_t i, DType to) {
  const int value = data == nullptr         ? 0
                    : dtype == DType::uint8 ? static_cast<const uint8_t*>(data)[i]
                                            : static_cast<const int8_t*>(data)[i];
  const int shift = dtype == to ? 0 : to == DType::uint8 ? 128 : -128;
  return static_cast<uint32_t>(value + shift);
}

/// Takes zero · column_sums + row_sum · column_zeros from c, the last only where there are some.
TESSERA_MULTIVERSION void correct_row(int32_t* c, uint32_t zero, const uint32_t* column_sums, uint32_t row_sum,
                                      const uint32_t* column_zeros, int64_t n) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) c[j] = static_cast<int32_t>(static_cast<uint32_t>(c[j]) - zero * column_sums[j]);
  if (!column_zeros) return;
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) c[j] = static_cast<int32_t>(static_cast<uint32_t>(c[j]) - column_zeros[j] * row_sum);
}

TESSERA_MULTIVERSION void multiply_row(const uint32_t* row, uint32_t by, int32_t* out, int64_t n) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) out[j] = static_cast<int32_t>(row[j] * by);
}

TESSERA_MULTIVERSION uint32_t sum_of_row(const uint8_t* row, int64_t n) {
  uint32_t sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t l = 0; l < n; ++l) sum += row[l];
  return sum;
}

TESSERA_MULTIVERSION bool any_differs(const uint8_t* bytes, uint8_t from, int64_t n) {
  uint8_t bits = 0;
#pragma omp simd reduction(| : bits)
  for (int64_t j = 0; j < n; ++j) bits |= bytes[j] ^ from;
  return bits != 0;
}

/// Whether zero points are all what the packed form takes for zero.
bool are_packed_zeros(DType type, ZeroPoints zeros) {
  const uint8_t zero = type == DType::uint8 ? 0x80 : 0;
  return zeros.data ? !any_differs(static_cast<const uint8_t*>(zeros.data), zero, zeros.count) : zero == 0;
}

TESSERA_MULTIVERSION void flip_row(const uint8_t* from, uint8_t flip, uint8_t* to, int64_t n) {
#pragma omp simd
  for (int64_t l = 0; l < n; ++l) to[l] = from[l] ^ flip;
}

/// Large products by oneDNN, where it has instructions for dot products of bytes; elsewhere its sums would saturate.
std::unique_ptr<onednn::Primitive> library_product(int64_t m, int64_t a_stride, const IntegerWeight& weight,
                                                   int threads) {
  if (m <= most_integer_rows || weight.n == 0 || weight.k == 0) return nullptr;
  onednn::TeamScope team(threads);
  const onednn::Md a = onednn::strided(DType::uint8, {m, weight.k}, {a_stride, 1});
  const onednn::Md b({weight.k, weight.n}, onednn::type_of(DType::int8), dnnl::memory::format_tag::BA16a64b4a);
  const onednn::Md c = onednn::dense(DType::int32, {m, weight.n});
  const auto desc = onednn::matmul(a, b, {}, c);
  if (!desc) return nullptr;
  const std::string_view name = desc->impl_info_str();
  if (name.find("vnni") == std::string_view::npos && name.find("amx") == std::string_view::npos) return nullptr;
  return std::make_unique<onednn::Primitive>(
      dnnl::matmul(*desc), desc->scratchpad_desc(),
      std::vector<onednn::Primitive::Argument>{{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}}, threads);
}

class StripProduct : public IntegerProduct {
 public:
  StripProduct(const IntegerRows& a, const IntegerWeight& weight, DType b_type, int threads)
      : m_(a.m),
        weight_(weight),
        a_type_(a.type),
        b_type_(b_type),
        threads_(threads),
        strip_sum_(integer_strip_sums().front()),
        tile_(a.m > most_integer_rows ? integer_tile() : nullptr) {
    const int64_t m = a.m, k = weight.k, groups = (k + 3) / 4 * 4;
    copies_ = a.ready_stride == 0 && (a.type != DType::uint8 || k != groups);
    a_stride_ = copies_ ? groups : a.ready_stride != 0 ? a.ready_stride : k;
    copy_at_ = plan_.add(copies_ ? static_cast<size_t>(m * groups) : 0);
    sums_at_ = plan_.add(static_cast<size_t>(m + weight.n) * sizeof(uint32_t));
    library_ = library_product(m, a_stride_, weight, threads);
    library_at_ = plan_.add(library_ ? library_->scratch_bytes() : 0);
  }

  size_t scratch_bytes() const override { return plan_.bytes(); }

  void run(const void* a, ZeroPoints a_zero, PackedColumns b, ZeroPoints b_zero, int32_t* c, void* scratch) override {
    run_plain(a, b, c, scratch);
    if (m_ == 0 || weight_.n == 0 || weight_.k == 0) return;
    const Corrections corrections(*this, ready_rows(a, scratch), a_zero, b.sums, b_zero,
                                  scratch_at<uint32_t>(scratch, sums_at_));
    for_ranges(m_, m_ * weight_.n, threads_, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) corrections.add_to(c + i * weight_.n, i);
    });
  }

  void run_plain(const void* a, PackedColumns b, int32_t* c, void* scratch) override {
    if (m_ == 0 || weight_.n == 0) return;
    if (weight_.k == 0) {
      std::fill_n(c, m_ * weight_.n, 0);
      return;
    }
    const uint8_t* rows = ready_rows(a, scratch);
    if (copies_) copy_rows(static_cast<const uint8_t*>(a), scratch_at<uint8_t>(scratch, copy_at_));
    if (library_)
      library_->run(std::array<const void*, 3>{rows, b.strips, c}, scratch_at(scratch, library_at_));
    else
      run_strips(rows, b, c);
  }

 private:
  /// What zero points change about the sums.
  struct Corrections {
    const StripProduct& product;
    ZeroPoints a_zero;
    const uint32_t* column_sums;
    const uint32_t* column_zeros = nullptr;  ///< null: all are zero
    const uint32_t* row_sums = nullptr;      ///< less k times the row's zero point; only beside column_zeros

    Corrections(const StripProduct& of, const uint8_t* rows, ZeroPoints a, const std::byte* b_sums, ZeroPoints b,
                uint32_t* sums)
        : product(of), a_zero(a), column_sums(reinterpret_cast<const uint32_t*>(b_sums)) {
      if (are_packed_zeros(of.b_type_, b)) return;
      const auto zero_of = [&](int64_t j) { return shifted(of.b_type_, b.data, j, DType::int8); };
      const int64_t k = of.weight_.k;
      for_ranges(of.m_, of.m_ * k, of.threads_, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          sums[i] = sum_of_row(rows + i * of.a_stride_, k) - static_cast<uint32_t>(k) * row_zero(i);
      });
      uint32_t* zeros = sums + of.m_;
      for (int64_t j = 0; j < of.weight_.n; ++j) zeros[j] = zero_of(b.count == 1 ? 0 : j);
      row_sums = sums;
      column_zeros = zeros;
    }

    uint32_t row_zero(int64_t i) const {
      return shifted(product.a_type_, a_zero.data, (i + a_zero.first) % a_zero.count, DType::uint8);
    }

    void add_to(int32_t* row, int64_t i) const {
      correct_row(row, row_zero(i), column_sums, row_sums ? row_sums[i] : 0, column_zeros, product.weight_.n);
    }
  };

  /// Where rows are that a product reads: those of `a`, or their copies.
  const uint8_t* ready_rows(const void* a, void* scratch) const {
    return copies_ ? scratch_at<uint8_t>(scratch, copy_at_) : static_cast<const uint8_t*>(a);
  }

  void run_strips(const uint8_t* rows, PackedColumns b, int32_t* c) const {
    for_stream(weight_.strips(), m_ * weight_.n * weight_.k, threads_, [&](int64_t strip, int64_t) {
      const int64_t first = strip * kIntegerStrip, columns = std::min(kIntegerStrip, weight_.n - first);
      const IntegerStrip codes = weight_.strip(b, strip);
      const int64_t most = tile_ ? tile_->rows : most_integer_rows;
      for (int64_t row = 0; row < m_; row += most) {
        const int64_t count = std::min(most, m_ - row);
        const uint8_t* these = rows + row * a_stride_;
        int32_t* to = c + row * weight_.n + first;
        if (tile_ && columns == kIntegerStrip) {
          sum_tile(count, these, codes, to, weight_.n);
          continue;
        }
        alignas(64) int32_t sums[most_tile_rows * kIntegerStrip];
        if (tile_)
          sum_tile(count, these, codes, sums, kIntegerStrip);
        else
          strip_sum_(count, these, a_stride_, codes, weight_.k, sums);
        for (int64_t i = 0; i < count; ++i) std::copy_n(sums + i * kIntegerStrip, columns, to + i * weight_.n);
      }
    });
  }

  void sum_tile(int64_t count, const uint8_t* rows, const IntegerStrip& codes, int32_t* sums, int64_t stride) const {
    std::array<const uint8_t*, most_tile_rows> at{};
    for (int64_t i = 0; i < count; ++i) at[static_cast<size_t>(i)] = rows + i * a_stride_;
    tile_->sums(count, {at.data(), tile_->rows, 1, (weight_.k + 3) / 4 * 4}, codes, sums, stride);
  }

  void copy_rows(const uint8_t* a, uint8_t* copy) const {
    const uint8_t flip = a_type_ == DType::uint8 ? 0 : 0x80;
    for_ranges(m_, m_ * weight_.k, threads_, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        flip_row(a + i * weight_.k, flip, copy + i * a_stride_, weight_.k);
        std::fill(copy + i * a_stride_ + weight_.k, copy + (i + 1) * a_stride_, uint8_t{0});
      }
    });
  }

  int64_t m_;
  IntegerWeight weight_;
  DType a_type_, b_type_;
  int threads_;
  IntegerStripSum strip_sum_;
  const IntegerTile* tile_;  ///< for many rows; null: there is none
  bool copies_ = false;
  int64_t a_stride_ = 0;
  std::unique_ptr<onednn::Primitive> library_;
  ScratchPlan plan_;
  size_t copy_at_ = 0, sums_at_ = 0, library_at_ = 0;
};

}  // namespace

void pack_integers(const IntegerWeight& weight, DType dtype, const void* b, std::byte* packed, int threads) {
  const uint8_t flip = dtype == DType::uint8 ? 0x80 : 0;
  const auto* elements = static_cast<const uint8_t*>(b);
  auto* sums = reinterpret_cast<int32_t*>(packed + weight.packed_bytes());
  const int64_t depth = weight.depth();
#pragma omp parallel for num_threads(team_for(weight.packed_bytes(), threads)) schedule(static)
  for (int64_t strip = 0; strip < weight.strips(); ++strip) {
    const int64_t first = strip * kIntegerStrip, columns = std::min(kIntegerStrip, weight.n - first);
    auto* out = reinterpret_cast<int8_t*>(packed) + first * depth;
    std::memset(out, 0, static_cast<size_t>(depth * kIntegerStrip));
    std::fill_n(sums + first, kIntegerStrip, 0);
    for (int64_t l = 0; l < weight.k; ++l) {
      const uint8_t* row = elements + l * weight.n + first;
      int8_t* to = out + l / 4 * 4 * kIntegerStrip + l % 4;
      for (int64_t j = 0; j < columns; ++j) {
        const auto element = static_cast<int8_t>(row[j] ^ flip);
        to[j * 4] = element;
        sums[first + j] += element;
      }
    }
    list_wide(out, depth / 4, weight.most_wide(),
              reinterpret_cast<int32_t*>(packed + weight.packed_bytes() + weight.strips() * kIntegerStrip * 4 +
                                         strip * weight.wide_bytes()));
  }
}

bool plain_correction(DType a_type, ZeroPoints a_zero, DType b_type, ZeroPoints b_zero, PackedColumns b,
                      int64_t columns, int32_t* addend) {
  if (a_zero.count != 1 || !are_packed_zeros(b_type, b_zero)) return false;
  const uint32_t zero = shifted(a_type, a_zero.data, 0, DType::uint8);
  multiply_row(reinterpret_cast<const uint32_t*>(b.sums), 0U - zero, addend, columns);
  return true;
}

std::unique_ptr<IntegerProduct> make_integer_product(const IntegerRows& a, const IntegerWeight& weight, DType b_type,
                                                     int threads) {
  return std::make_unique<StripProduct>(a, weight, b_type, threads);
}

}  // namespace tessera::kernels
