#include "tessera/kernels/cpu/move/strided_copy.h"

#include <fmt/ranges.h>

#include <cstring>

#include "tessera/kernels/cpu/library/parallel.h"

namespace tessera::kernels {
namespace {

template <typename T>
void copy_row(const T* in, int64_t stride, T* out, int64_t n) {
  if (stride == 1)
    std::memcpy(out, in, static_cast<size_t>(n) * sizeof(T));
  else if (stride == 0)
    std::fill(out, out + n, *in);
  else
    for (int64_t i = 0; i < n; ++i) out[i] = in[i * stride];
}

/// out[r, c] = in[r + c·column_stride] in square blocks, so that both sides stay in cache.
template <typename T>
void transpose_block(const T* in, int64_t column_stride, T* out, int64_t row_stride, int64_t rows, int64_t columns) {
  constexpr int64_t block = 32;
  for (int64_t r0 = 0; r0 < rows; r0 += block)
    for (int64_t c0 = 0; c0 < columns; c0 += block)
      for (int64_t r = r0; r < std::min(rows, r0 + block); ++r)
        for (int64_t c = c0; c < std::min(columns, c0 + block); ++c)
          out[r * row_stride + c] = in[r + c * column_stride];
}

}  // namespace

StridedCopy::StridedCopy(const View& view) : offset_(view.offset), count_(count_of(view.dims)) {
  const Dims &dims = view.dims, &strides = view.strides;
  for (size_t d = dims.size(); d-- > 0;) {
    if (dims[d] == 1) continue;
    if (!dims_.empty() && strides[d] == strides_.front() * dims_.front()) {
      dims_.front() *= dims[d];
    } else {
      dims_.insert(dims_.begin(), dims[d]);
      strides_.insert(strides_.begin(), strides[d]);
    }
  }
  if (dims_.empty()) dims_ = strides_ = {1};
  result_strides_ = dense_strides(dims_);
  // Brings the dimension that is contiguous in the operand next to the columns.
  const size_t last = dims_.size() - 1;
  for (size_t d = 0; d < last && std::abs(strides_[last]) > 1; ++d) {
    if (strides_[d] != 1) continue;
    transposes_ = true;
    for (Dims* list : {&dims_, &strides_, &result_strides_})
      std::rotate(list->begin() + d, list->begin() + d + 1, list->begin() + last);
    break;
  }
}

template <typename T>
void StridedCopy::run(const T* operand, T* result, int threads) const {
  if (count_ == 0) return;
  const int last = static_cast<int>(dims_.size()) - 1;
  const int inner = transposes_ ? 2 : 1;
  const int64_t columns = dims_[last], stride = strides_[last];
  // Threads share the rows of a single matrix, too.
  const int64_t tall = transposes_ ? dims_[last - 1] : 1;
  const int64_t slices = transposes_ ? (tall + 63) / 64 : 1;
  const int64_t outer = count_ / (columns * tall) * slices;
  if (outer == 1 && !transposes_) {
    for_ranges(columns, columns, threads, [&](int64_t begin, int64_t end) {
      copy_row(operand + offset_ + begin * stride, stride, result + begin, end - begin);
    });
    return;
  }
  for_ranges(outer, count_, threads, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      int64_t from = offset_, to = 0, rest = at / slices;
      for (int d = last - inner; d >= 0; --d) {
        const int64_t index = rest % dims_[d];
        rest /= dims_[d];
        from += index * strides_[d];
        to += index * result_strides_[d];
      }
      if (!transposes_) {
        copy_row(operand + from, stride, result + to, columns);
        continue;
      }
      const int64_t row = at % slices * 64, row_stride = result_strides_[last - 1];
      transpose_block(operand + from + row, stride, result + to + row * row_stride, row_stride,
                      std::min<int64_t>(64, tall - row), columns);
    }
  });
}

template void StridedCopy::run(const uint8_t*, uint8_t*, int) const;
template void StridedCopy::run(const uint16_t*, uint16_t*, int) const;
template void StridedCopy::run(const uint32_t*, uint32_t*, int) const;
template void StridedCopy::run(const uint64_t*, uint64_t*, int) const;

std::unique_ptr<Kernel> strided_kernel(const PrepareContext& context, StridedCopy copy) {
  return dispatch_size(context.node, context.outputs[0].dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    return make_kernel([copy = std::move(copy), threads = context.threads](const KernelArgs& args) {
      copy.run(args.in<T>(0), args.out<T>(), threads);
    });
  });
}

void check_extents(const PrepareContext& context, const Dims& expected) {
  if (context.outputs[0].dims != expected)
    fail("kernel", "{}: the declared result is [{}], but the operands give [{}]", context.node.label(),
         fmt::join(context.outputs[0].dims, ", "), fmt::join(expected, ", "));
}

// The view of elements of less than a byte as one of bytes, where what lies side by side fills them.
static std::optional<View> in_bytes(const View& view, int64_t bits) {
  if (view.dims.empty() || view.strides.back() != 1) return std::nullopt;
  View bytes = view;
  for (size_t d = bytes.dims.size() - 1; d > 0 && bytes.strides[d - 1] == bytes.dims[d]; --d) {
    bytes.dims[d - 1] *= bytes.dims[d];
    bytes.strides[d - 1] = 1;
    bytes.dims.pop_back();
    bytes.strides.pop_back();
  }
  bytes.dims.back() *= bits;
  bytes.offset *= bits;
  for (size_t d = 0; d + 1 < bytes.strides.size(); ++d) bytes.strides[d] *= bits;
  const auto to_bytes = [](int64_t& count) {
    const bool whole = count % 8 == 0;
    count /= 8;
    return whole;
  };
  bool whole = to_bytes(bytes.dims.back()) && to_bytes(bytes.offset);
  for (size_t d = 0; d + 1 < bytes.strides.size(); ++d) whole = to_bytes(bytes.strides[d]) && whole;
  return whole ? std::optional(bytes) : std::nullopt;
}

int64_t line_bytes(const Node& node, DType dtype, int64_t elements) {
  const int64_t bits = bits_of(dtype);
  if (bits % 8 == 0)
    return elements * dispatch_size(node, dtype, []<typename T>() { return static_cast<int64_t>(sizeof(T)); });
  if (elements * bits % 8 != 0)
    fail("kernel", "{}: it copies lines of {} elements of {} bits, which are not whole bytes; put a Cast before it",
         node.label(), elements, bits);
  return elements * bits / 8;
}

std::unique_ptr<Kernel> written_out(const PrepareContext& context, const View& view) {
  check_extents(context, view.dims);
  const DType dtype = context.outputs[0].dtype;
  if (const int64_t bits = bits_of(dtype); bits < 8 && dtype != DType::string)
    if (const auto bytes = in_bytes(view, bits))
      return make_kernel([copy = StridedCopy(*bytes), threads = context.threads](const KernelArgs& args) {
        copy.run(args.in<uint8_t>(0), args.out<uint8_t>(), threads);
      });
  return strided_kernel(context, StridedCopy(view));
}

}  // namespace tessera::kernels
