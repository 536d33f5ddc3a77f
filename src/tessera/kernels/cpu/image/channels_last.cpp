#include "tessera/kernels/cpu/image/channels_last.h"

#include <algorithm>

#include "tessera/base/multiversion.h"
#include "tessera/kernels/cpu/image/windows.h"
#include "tessera/kernels/cpu/library/dispatch.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kTile = 16;  // rows and columns that are turned together

TESSERA_MULTIVERSION void turn_tile(const uint8_t* from, int64_t from_stride, uint8_t* to, int64_t to_stride) {
  uint8_t tile[kTile][kTile];
  for (int64_t i = 0; i < kTile; ++i)
    for (int64_t j = 0; j < kTile; ++j) tile[j][i] = from[i * from_stride + j];
  for (int64_t j = 0; j < kTile; ++j)
    for (int64_t i = 0; i < kTile; ++i) to[j * to_stride + i] = tile[j][i];
}

template <typename T>
[[gnu::always_inline]] inline void keep_most(const T* x, T* most, int64_t n) {
#pragma omp simd
  for (int64_t c = 0; c < n; ++c) most[c] = x[c] > most[c] ? x[c] : most[c];
}
TESSERA_MULTIVERSION void keep_most_unsigned(const uint8_t* x, uint8_t* most, int64_t n) {
  keep_most(x, most, n);
}
TESSERA_MULTIVERSION void keep_most_signed(const int8_t* x, int8_t* most, int64_t n) {
  keep_most(x, most, n);
}

void keep_most_bytes(DType dtype, const std::byte* x, std::byte* most, int64_t n) {
  if (dtype == DType::uint8)
    keep_most_unsigned(reinterpret_cast<const uint8_t*>(x), reinterpret_cast<uint8_t*>(most), n);
  else
    keep_most_signed(reinterpret_cast<const int8_t*>(x), reinterpret_cast<int8_t*>(most), n);
}

}  // namespace

void turn_bytes(const std::byte* from, int64_t rows, int64_t columns, std::byte* to, int threads) {
  const auto* in = reinterpret_cast<const uint8_t*>(from);
  auto* out = reinterpret_cast<uint8_t*>(to);
  const int64_t strips = (columns + kTile - 1) / kTile;
#pragma omp parallel for num_threads(team_for(rows* columns, threads)) schedule(static)
  for (int64_t strip = 0; strip < strips; ++strip) {
    const int64_t first = strip * kTile, last = std::min(columns, first + kTile);
    int64_t row = 0;
    if (last - first == kTile)
      for (; row + kTile <= rows; row += kTile)
        turn_tile(in + row * columns + first, columns, out + first * rows + row, rows);
    for (; row < rows; ++row)
      for (int64_t j = first; j < last; ++j) out[j * rows + row] = in[row * columns + j];
  }
}

std::unique_ptr<Kernel> max_pool_channels_last(const PrepareContext& context) {
  const TensorDesc &x = context.inputs.at(0), &y = context.outputs.at(0);
  const bool in_bytes = x.dtype == DType::uint8 || x.dtype == DType::int8;
  if (!in_bytes || x.block == 0 || x.block != x.dims[1] || y.block != x.block) return nullptr;
  const Dims spatial(x.dims.begin() + 2, x.dims.end());
  const SpatialLoop loop =
      spatial_loop(context.node, window_geometry(context.node, spatial, context.node.get_ints("kernel_shape")),
                   std::span(x.dims).subspan(2), std::span(y.dims).subspan(2));
  const std::byte lowest = x.dtype == DType::uint8 ? std::byte{0} : std::byte{0x80};
  return make_kernel([=, dtype = x.dtype, images = x.dims[0], channels = x.dims[1],
                      threads = context.threads](const KernelArgs& args) {
    const int64_t lines = images * loop.out[0] * loop.out[1];
#pragma omp parallel for num_threads(team_for(images* channels* loop.in_count(), threads)) schedule(static)
    for (int64_t line = 0; line < lines; ++line) {
      const int64_t image = line / (loop.out[0] * loop.out[1]);
      const WindowRange r0 = loop.range(0, line / loop.out[1] % loop.out[0]), r1 = loop.range(1, line % loop.out[1]);
      const std::byte* from = args.in<std::byte>(0) + image * loop.in_count() * channels;
      std::byte* to = args.out<std::byte>() + line * loop.out[2] * channels;
      std::fill_n(to, loop.out[2] * channels, lowest);
      for (int64_t at = 0; at < loop.out[2]; ++at, to += channels) {
        loop.for_taps(r0, r1, loop.range(2, at), [&](int64_t, int64_t element) {
          keep_most_bytes(dtype, from + element * channels, to, channels);
        });
      }
    }
  });
}

}  // namespace tessera::kernels
