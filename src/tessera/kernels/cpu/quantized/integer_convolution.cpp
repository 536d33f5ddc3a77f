#include <omp.h>

#include <algorithm>
#include <array>
#include <map>

#include "tessera/base/error.h"
#include "tessera/base/multiversion.h"
#include "tessera/kernels/cpu/image/channels_last.h"
#include "tessera/kernels/cpu/image/convolution_layout.h"
#include "tessera/kernels/cpu/image/window_rows.h"
#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/cpu/library/scratch.h"
#include "tessera/kernels/cpu/quantized/integer_form.h"
#include "tessera/kernels/cpu/quantized/integer_strip.h"
#include "tessera/kernels/cpu/quantized/quantize_row.h"
#include "tessera/kernels/cpu/quantized/sums_epilogue.h"
#include "tessera/kernels/registry.h"

// A convolution of 8-bit integers is a product of its windows, as rows, by its weight. The zero point stands where
// windows reach beyond the image, so zero points come in as for any product. Images have their channels last;
// others are turned first.
//
// Where vectors have dot products, and sums become codes, a thread takes some windows and 64 channels at a time, keeps
// the sums in registers or close to them, and stores their codes (IntegerTile). Matrix registers take windows that are
// gathered as rows, or lie so; vectors take them where they lie, if images are uint8, and channels come in fours, or
// lines of the kernel are filled up to fours. Elsewhere a thread gathers the windows of a tile of the result, and the
// library multiplies them.
namespace tessera::kernels {
namespace {

constexpr int64_t kTileBytes = 192 * 1024;  // of gathered windows
constexpr int64_t kMostTileRows = 256, kFewestTileRows = 16;
constexpr int64_t kRowsOfMatrix = 16;
constexpr int64_t kRowsOfTile = 32;  // tiles are whole multiples of so many rows
constexpr int64_t kStripColumns = 64;

/// The extents of a ConvInteger, or of its form with a packed weight or with the number of groups as operand 4.
struct IntegerConvolution {
  Node node;  // of domain "", with the number of groups as an attribute
  TensorDesc x, weight, y;
  int64_t images, channels, results, groups;
  SpatialLoop loop;

  explicit IntegerConvolution(const PrepareContext& context)
      : node(context.node), x(context.inputs.at(0)), weight(context.inputs.at(1)), y(context.outputs.at(0)) {
    constexpr size_t kGroups = 4;
    if (node.domain == "tessera.cpu") weight = packed_weight_desc(node);
    if (node.domain == "tessera" && context.has_input(kGroups)) node.set("group", context.known_ints(kGroups).at(0));
    node.domain = "";
    for (const TensorDesc* operand : {&x, &weight})
      if (operand->dtype != DType::uint8 && operand->dtype != DType::int8) fail_dtype(node, operand->dtype);
    groups = node.get_int("group", 1);
    images = x.dims[0];
    channels = x.dims[1];
    results = y.dims[1];
    if (y.count() == 0) return;
    const ConvolutionShape shape = convolution_shape(node, x.dims, weight.dims, y.dims);
    loop = spatial_loop(node, shape.windows, std::span(x.dims).subspan(2), std::span(y.dims).subspan(2));
  }

  bool x_last() const { return x.block != 0 || channels == 1; }
  bool y_last() const { return y.block != 0 || results == 1; }
};

/// The zero points of a convolution's operands, as operands 2 and 3 hold them.
struct OperandZeros {
  DType x, weight;
  bool has_x, has_weight;
  int64_t weight_count;

  OperandZeros(const PrepareContext& context, const IntegerConvolution& shape)
      : x(shape.x.dtype),
        weight(shape.weight.dtype),
        has_x(context.has_input(2)),
        has_weight(context.has_input(3)),
        weight_count(has_weight ? context.inputs[3].count() : 1) {
    if ((has_x && context.inputs[2].count() != 1) || (weight_count != 1 && weight_count != shape.results))
      fail("kernel", "{}: its zero points do not fit {} channels", context.node.label(), shape.results);
  }
  const void* of_x(const KernelArgs& args) const { return has_x ? args.inputs[2] : nullptr; }
  int x_value(const KernelArgs& args) const { return has_x ? byte_at(x, args.inputs[2], 0) : 0; }
  /// Those of channel `first` and the following.
  ZeroPoints of_weight(const KernelArgs& args, int64_t first) const {
    if (!has_weight) return {};
    return {args.in<std::byte>(3) + (weight_count == 1 ? 0 : first), weight_count == 1 ? 1 : weight_count - first};
  }
};

/// What both kernels share: turned images, and results that are finished and stored in the result's layout.
class ImageKernel : public Kernel {
 public:
  ImageKernel(const PrepareContext& context, IntegerConvolution shape)
      : shape_(std::move(shape)), zeros_(context, shape_), epilogue_(context), threads_(context.threads) {
    turned_at_ = plan_.add(shape_.x_last() ? 0 : shape_.x.bytes());
    columns_at_ = plan_.add(epilogue_.scratch_bytes(shape_.results));
  }
  size_t scratch_bytes() const override { return plan_.bytes(); }

 protected:
  /// The images with their channels last.
  const uint8_t* images(const KernelArgs& args) const {
    if (shape_.x_last()) return args.in<uint8_t>(0);
    auto* turned = scratch_at(args.scratch, turned_at_);
    const int64_t bytes = shape_.channels * shape_.loop.in_count();
    for (int64_t i = 0; i < shape_.images; ++i)
      turn_bytes(args.in<std::byte>(0) + i * bytes, shape_.channels, shape_.loop.in_count(), turned + i * bytes,
                 threads_);
    return reinterpret_cast<const uint8_t*>(turned);
  }

  /// Adds codes, which have the layout of results, to results.
  void add_codes(const KernelArgs& args, const CodeSum::Numbers& numbers, std::byte* results, int64_t count) const {
    const CodeSum& sum = *epilogue_.sum_of_codes();
    sum.run(numbers, results, args.in<std::byte>(sum.b()) + (results - args.out<std::byte>()), results, count);
  }

  /// The last step of a run: adds codes to results that store() has not added them to.
  void finish(const KernelArgs& args) const {
    if (!epilogue_.sum_of_codes() || shape_.y_last()) return;
    constexpr int64_t kWork = 8;  // operations for each element
    const CodeSum::Numbers numbers = epilogue_.sum_of_codes()->numbers(args);
    for_ranges(shape_.y.count(), shape_.y.count() * kWork, threads_, [&](int64_t begin, int64_t end) {
      add_codes(args, numbers, args.out<std::byte>() + begin, end - begin);
    });
  }

  SumsEpilogue::Columns columns_of_results(const KernelArgs& args, const int32_t* corrections) const {
    return epilogue_.columns(args, shape_.results, corrections, scratch_at(args.scratch, columns_at_));
  }

  /// Stores sums of `columns` channels from `first` on, `stride` apart for each of some places from `place` on. `row`:
  /// room for a row.
  void store(const KernelArgs& args, const SumsEpilogue::Columns& of_results, const int32_t* sums, int64_t stride,
             int64_t image, int64_t place, int64_t rows, int64_t first, int64_t columns, std::byte* row) const {
    const int64_t element = epilogue_.element_bytes(), places = shape_.loop.out_count();
    std::byte* y = args.out<std::byte>() + image * places * shape_.results * element;
    if (shape_.y_last()) {
      epilogue_.run(args, of_results, {rows, stride, shape_.results}, sums, first, columns,
                    results_at(args, image, place, first));
      if (!epilogue_.sum_of_codes()) return;
      const CodeSum::Numbers numbers = epilogue_.sum_of_codes()->numbers(args);
      for (int64_t i = 0; i < rows; ++i) add_codes(args, numbers, results_at(args, image, place + i, first), columns);
      return;
    }
    for (int64_t i = 0; i < rows; ++i) {
      epilogue_.run(args, of_results, {}, sums + i * stride, first, columns, row);
      for (int64_t j = 0; j < columns; ++j)
        std::copy_n(row + j * element, element, y + ((first + j) * places + place + i) * element);
    }
  }

  /// Stores codes of a byte, `stride` apart for each of some places, if channels are not last.
  void turn(const KernelArgs& args, const std::byte* codes, int64_t stride, int64_t image, int64_t place, int64_t rows,
            int64_t first, int64_t columns) const {
    const int64_t places = shape_.loop.out_count();
    std::byte* y = args.out<std::byte>() + (image * shape_.results + first) * places + place;
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t i = 0; i < rows; ++i) y[j * places + i] = codes[i * stride + j];
  }

  /// The results of a place from channel `first` on, if channels are last. Places may go on into the next image.
  std::byte* results_at(const KernelArgs& args, int64_t image, int64_t place, int64_t first) const {
    const int64_t at = (image * shape_.loop.out_count() + place) * shape_.results + first;
    return args.out<std::byte>() + at * epilogue_.element_bytes();
  }

  IntegerConvolution shape_;
  OperandZeros zeros_;
  SumsEpilogue epilogue_;
  int threads_;
  ScratchPlan plan_;

 private:
  size_t turned_at_ = 0, columns_at_ = 0;
};

class WindowProducts : public ImageKernel {
 public:
  WindowProducts(const PrepareContext& context, IntegerConvolution shape, const IntegerForm& form)
      : ImageKernel(context, std::move(shape)), form_(form), is_packed_(context.node.domain == "tessera.cpu") {
    if (is_packed_ && form.bytes() != context.inputs[1].bytes())
      fail("kernel", "{}: its packed weight has {} bytes instead of {}; rewrite the program", context.node.label(),
           context.inputs[1].bytes(), form.bytes());
    windows_ = {.loop = shape_.loop, .channels = shape_.channels, .count = shape_.channels / form.groups};
    windows_.flip = shape_.x.dtype == DType::int8 ? 0x80 : 0;
    windows_.filling = form.filling;
    stride_ = (form.weight.k + 3) / 4 * 4;
    lies_ready_ = windows_.lies_ready() && form.filling == 0 && stride_ == form.weight.k;
    // A few rows leave most of a matrix register empty, and to gather lines takes longer than to multiply them.
    const bool for_vectors = places() < kRowsOfMatrix || (form.filling != 0 && windows_.lies_in_lines());
    tile_sums_ = integer_tile(for_vectors);
    const bool in_pieces = !tile_sums_ || tile_sums_->in_pieces;
    lie_in_pieces_ = in_pieces && windows_.flip == 0 && windows_.count % 4 == 0;
    lie_in_lines_ = in_pieces && form.filling != 0 && windows_.lies_in_lines();
    divide();
    corrections_at_ = plan_.add(epilogue_.has_columns() ? shape_.results * sizeof(int32_t) : 0);
    packed_at_ = plan_.add(is_packed_ ? 0 : form.bytes());
    pack_at_ = plan_.add(is_packed_ ? 0 : integer_form_scratch(form));
    size_t inner = 0;
    products_.resize(threads_);
    for (auto& products : products_)
      for (const int64_t rows : {tile_, places() % tile_})
        for (const int64_t columns : {columns_, form.weight.n % columns_})
          if (rows > 0 && columns > 0) {
            const IntegerRows a{rows, shape_.x.dtype, stride_};
            auto& product = products[{rows, columns}];
            if (!product) product = make_integer_product(a, {form.weight.k, columns}, shape_.weight.dtype, 1);
            inner = std::max(inner, product->scratch_bytes());
          }
    zeros_at_ = plan_.add(windows_.count);
    for (int t = 0; t < threads_; ++t)
      own_at_.push_back({plan_.add(lies_ready_ ? 0 : tile_ * stride_), plan_.add(tile_ * columns_ * sizeof(int32_t)),
                         plan_.add(columns_ * sizeof(int32_t)), plan_.add(inner),
                         plan_.add(tile_sums_ ? pieces_of_window() * tile_ * sizeof(const uint8_t*) : 0)});
  }

  void run(const KernelArgs& args) override {
    const uint8_t* x = images(args);
    const std::byte* packed = args.in<std::byte>(1);
    if (!is_packed_) {
      auto* target = scratch_at(args.scratch, packed_at_);
      pack_integer_form(form_, shape_.weight.dtype, packed, target, scratch_at(args.scratch, pack_at_), threads_);
      packed = target;
    }
    const Run run = begun(args, x, packed);
    const int64_t tiles = (places() + tile_ - 1) / tile_, chunks = (form_.weight.n + columns_ - 1) / columns_;
    const int64_t tasks = rounds() * tiles * form_.groups * chunks;
    const int team = team_for(tasks * tile_ * columns_ * form_.weight.k, threads_);
#pragma omp parallel for num_threads(team) schedule(dynamic, 1)
    for (int64_t task = 0; task < tasks; ++task) {
      const int64_t chunk = task % chunks, group = task / chunks % form_.groups;
      const int64_t tile = task / chunks / form_.groups % tiles, image = task / chunks / form_.groups / tiles;
      run_tile(args, run, {image, tile * tile_, group, chunk});
    }
    finish(args);
  }

 private:
  struct Task {
    int64_t image, place, group, chunk;
  };
  struct OwnScratch {
    size_t rows, sums, row, inner, pieces;
  };

  /// What all tiles of a run share.
  struct Run {
    const uint8_t* x;
    const std::byte* packed;
    bool plain;  ///< what zero points change about sums is in the columns
    SumsEpilogue::Columns columns;
    bool in_tiles;                      ///< tiles give the codes
    std::optional<CodesAdded> added{};  ///< that tiles add; without their place
  };

  Run begun(const KernelArgs& args, const uint8_t* x, const std::byte* packed) const {
    const int64_t n = form_.weight.n;
    auto* corrections = scratch_at<int32_t>(args.scratch, corrections_at_);
    bool plain = epilogue_.has_columns();
    for (int64_t group = 0; plain && group < form_.groups; ++group) {
      ZeroPoints weight_zeros = zeros_.of_weight(args, group * n);
      if (weight_zeros.count != 1) weight_zeros.count = n;
      const PackedColumns columns = form_.weight.columns(packed + group * form_.weight.bytes());
      plain = plain_correction(shape_.x.dtype, {zeros_.of_x(args), 1}, shape_.weight.dtype, weight_zeros, columns, n,
                               corrections + group * n);
    }
    Run run{x, packed, plain, columns_of_results(args, plain ? corrections : nullptr), false};
    run.plain = plain && run.columns.addend;
    run.in_tiles = run.plain && epilogue_.gives_codes() && tile_sums_;
    if (const auto& sum = epilogue_.sum_of_codes(); sum && shape_.y_last()) {
      run.added = {nullptr, shape_.results, sum->numbers(args)};
      run.in_tiles = run.in_tiles && are_moderate(run.added->numbers);
    }
    std::fill_n(scratch_at<uint8_t>(args.scratch, zeros_at_), windows_.count,
                static_cast<uint8_t>(zeros_.x_value(args)));
    return run;
  }

  // If results have their channels last, those of an image follow those of another, and tiles may go on.
  int64_t places() const {
    return shape_.loop.out_count() * (shape_.y_last() ? shape_.images : 1);
  }
  int64_t rounds() const {
    return shape_.y_last() ? 1 : shape_.images;
  }

  // Calls visit(image, its first place, the end of its places, the row of the first) for each image of a tile's rows.
  template <typename Visit>
  void for_images(const Run& run, const Task& at, int64_t rows, const Visit& visit) const {
    const int64_t each = shape_.loop.out_count();
    for (int64_t row = 0; row < rows;) {
      const int64_t image = at.image + (at.place + row) / each, place = (at.place + row) % each;
      const int64_t count = std::min(rows - row, each - place);
      visit(run.x + image * shape_.loop.in_count() * shape_.channels, place, place + count, row);
      row += count;
    }
  }

  // Tiles of a size that fits the cache, as many as keep all threads busy; few places share out columns, too.
  void divide() {
    const int64_t n = form_.weight.n, strips = form_.weight.strips(), wanted = 2 * static_cast<int64_t>(threads_);
    const int64_t fit = std::clamp(kTileBytes / std::max<int64_t>(stride_, 1), kFewestTileRows, kMostTileRows);
    const int64_t tiles = (places() + fit - 1) / fit;
    tile_ = std::min(places(), ((places() + tiles - 1) / tiles + kRowsOfTile - 1) / kRowsOfTile * kRowsOfTile);
    const int64_t tasks = std::max<int64_t>(1, rounds() * form_.groups * ((places() + tile_ - 1) / tile_));
    const int64_t chunks = threads_ == 1 ? 1 : std::clamp<int64_t>((wanted + tasks - 1) / tasks, 1, strips);
    columns_ = std::min(n, (strips + chunks - 1) / chunks * kStripColumns);
  }

  int64_t pieces_of_window() const {
    return lie_in_pieces_ ? form_.taps : lie_in_lines_ ? windows_.lines() : 1;
  }
  int64_t bytes_of_piece() const {
    return lie_in_pieces_ ? windows_.count : lie_in_lines_ ? windows_.line() : stride_;
  }

  CodesOfSums codes_of(const KernelArgs& args, const SumsEpilogue::Columns& of, int64_t image, int64_t place,
                       int64_t first) const {
    return {of.addend + first,
            of.factor + first,
            of.bias + first,
            of.scale,
            of.least,
            of.most,
            of.zero,
            shape_.y.dtype == DType::int8,
            results_at(args, image, place, first),
            shape_.results};
  }

  // Sums, finished and stored, of so many windows and channels.
  void store_tiles(const KernelArgs& args, const Run& run, const Task& at, IntegerPieces pieces, PackedColumns weight,
                   int64_t rows, int64_t channel, int64_t columns) const {
    const OwnScratch& own = own_at_[static_cast<size_t>(omp_get_thread_num())];
    alignas(64) int32_t sums[most_tile_rows * kStripColumns];
    std::array<std::byte, most_tile_rows * kStripColumns> turned;
    for (int64_t first = 0; first < columns; first += kStripColumns) {
      const IntegerStrip strip = form_.weight.strip(weight, first / kStripColumns);
      for (int64_t row = 0; row < rows; row += tile_sums_->rows) {
        const int64_t count = std::min(tile_sums_->rows, rows - row);
        IntegerPieces these = pieces;
        these.at += row;
        if (columns - first >= kStripColumns) {
          CodesOfSums codes = codes_of(args, run.columns, at.image, at.place + row, channel + first);
          CodesAdded added;
          if (run.added) {
            added = *run.added;
            added.codes = args.in<std::byte>(epilogue_.sum_of_codes()->b()) + (codes.out - args.out<std::byte>());
            codes.added = &added;
          }
          if (!shape_.y_last()) codes.out = turned.data(), codes.stride = kStripColumns;
          tile_sums_->codes(count, these, strip, codes);
          if (!shape_.y_last())
            turn(args, codes.out, codes.stride, at.image, at.place + row, count, channel + first, kStripColumns);
          continue;
        }
        tile_sums_->sums(count, these, strip, sums, kStripColumns);
        store(args, run.columns, sums, kStripColumns, at.image, at.place + row, count, channel + first, columns - first,
              scratch_at(args.scratch, own.row));
      }
    }
  }

  void run_tile(const KernelArgs& args, const Run& run, const Task& at) {
    const auto thread = static_cast<size_t>(omp_get_thread_num());
    const OwnScratch& own = own_at_[thread];
    const int64_t rows = std::min(tile_, places() - at.place), first = at.chunk * columns_;
    const int64_t columns = std::min(columns_, form_.weight.n - first), channel = at.group * form_.weight.n + first;
    WindowRows windows = windows_;
    windows.first = at.group * windows.count;
    const auto zero = static_cast<uint8_t>(zeros_.x_value(args));
    auto* room = scratch_at<uint8_t>(args.scratch, own.rows);
    const auto whole_rows = [&]() -> const uint8_t* {
      if (lies_ready_) return run.x + (at.image * shape_.loop.in_count() + at.place) * stride_;
      for_images(run, at, rows, [&](const uint8_t* image, int64_t begin, int64_t end, int64_t row) {
        windows.gather(image, begin, end, zero, room + row * stride_, stride_);
      });
      return room;
    };
    const PackedColumns weight =
        form_.weight.columns(run.packed + at.group * form_.weight.bytes(), first / kStripColumns);
    if (run.in_tiles) {
      auto** pieces = scratch_at<const uint8_t*>(args.scratch, own.pieces);
      if (lie_in_pieces_ || lie_in_lines_) {
        for_images(run, at, rows, [&](const uint8_t* image, int64_t begin, int64_t end, int64_t row) {
          if (lie_in_pieces_)
            windows.point(image, begin, end, scratch_at<uint8_t>(args.scratch, zeros_at_), pieces + row, tile_);
          else
            windows.point_lines(image, begin, end, zero, room + row * stride_, stride_, pieces + row, tile_);
        });
      } else {
        const uint8_t* row = whole_rows();
        for (int64_t i = 0; i < rows; ++i) pieces[i] = row + i * stride_;
      }
      store_tiles(args, run, at, {pieces, tile_, pieces_of_window(), bytes_of_piece()}, weight, rows, channel, columns);
      return;
    }
    const uint8_t* a = whole_rows();
    auto* sums = scratch_at<int32_t>(args.scratch, own.sums);
    void* inner = scratch_at(args.scratch, own.inner);
    IntegerProduct& product = *products_[thread].at({rows, columns});
    ZeroPoints weight_zeros = zeros_.of_weight(args, channel);
    if (weight_zeros.count != 1) weight_zeros.count = columns;
    if (run.plain)
      product.run_plain(a, weight, sums, inner);
    else
      product.run(a, {zeros_.of_x(args), 1}, weight, weight_zeros, sums, inner);
    store(args, run.columns, sums, columns, at.image, at.place, rows, channel, columns,
          scratch_at(args.scratch, own.row));
  }

  IntegerForm form_;
  bool is_packed_, lies_ready_ = false;
  // Each tap of a window, or each line of it, lies in the image as its product reads it.
  bool lie_in_pieces_ = false, lie_in_lines_ = false;
  const IntegerTile* tile_sums_ = nullptr;
  WindowRows windows_;
  int64_t stride_ = 0, tile_ = 1, columns_ = 1;
  std::vector<std::map<std::pair<int64_t, int64_t>, std::unique_ptr<IntegerProduct>>> products_;  // of each thread
  std::vector<OwnScratch> own_at_;
  size_t packed_at_ = 0, pack_at_ = 0, corrections_at_ = 0, zeros_at_ = 0;
};

/// sums[j] += (x[j] - zero) · weights[j]
template <typename T>
[[gnu::always_inline]] inline void add_products(const T* x, int32_t zero, const int32_t* weights, int32_t* sums,
                                                int64_t n) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) sums[j] += (static_cast<int32_t>(x[j]) - zero) * weights[j];
}
TESSERA_MULTIVERSION void add_unsigned_products(const uint8_t* x, int32_t zero, const int32_t* weights, int32_t* sums,
                                                int64_t n) {
  add_products(x, zero, weights, sums, n);
}
TESSERA_MULTIVERSION void add_signed_products(const int8_t* x, int32_t zero, const int32_t* weights, int32_t* sums,
                                              int64_t n) {
  add_products(x, zero, weights, sums, n);
}

/// A convolution of each channel alone, perhaps to several results: element-wise along the channels.
class ChannelSums : public ImageKernel {
 public:
  ChannelSums(const PrepareContext& context, IntegerConvolution shape) : ImageKernel(context, std::move(shape)) {
    weights_at_ = plan_.add(sizeof(int32_t) * shape_.loop.kernel_count() * shape_.results);
    for (int t = 0; t < threads_; ++t)
      own_at_.push_back({plan_.add(shape_.results), plan_.add(shape_.results * sizeof(int32_t)),
                         plan_.add(shape_.results * sizeof(int32_t))});
  }

  void run(const KernelArgs& args) override {
    const uint8_t* x = images(args);
    const SpatialLoop& loop = shape_.loop;
    const int64_t n = shape_.results, taps = loop.kernel_count(), each = n / shape_.channels;
    auto* weights = scratch_at<int32_t>(args.scratch, weights_at_);  // [taps][results], less their zero points
    for (int64_t j = 0; j < n; ++j) {
      const ZeroPoints zero = zeros_.of_weight(args, j);
      for (int64_t t = 0; t < taps; ++t)
        weights[t * n + j] = byte_at(shape_.weight.dtype, args.inputs[1], j * taps + t) -
                             (zero.data ? byte_at(shape_.weight.dtype, zero.data, 0) : 0);
    }
    const SumsEpilogue::Columns of_results = columns_of_results(args, nullptr);
    const int64_t lines = shape_.images * loop.out[0] * loop.out[1];
#pragma omp parallel for num_threads(team_for(lines* loop.out[2] * taps * n, threads_)) schedule(static)
    for (int64_t line = 0; line < lines; ++line) {
      const OwnScratch& own = own_at_[static_cast<size_t>(omp_get_thread_num())];
      const int64_t image = line / (loop.out[0] * loop.out[1]), place = line % (loop.out[0] * loop.out[1]);
      auto* sums = scratch_at<int32_t>(args.scratch, own.sums);
      for (int64_t at = 0; at < loop.out[2]; ++at) {
        std::fill_n(sums, n, 0);
        add_window(args, x + image * loop.in_count() * shape_.channels, {place / loop.out[1], place % loop.out[1], at},
                   each, weights, scratch_at<uint8_t>(args.scratch, own.repeated), sums);
        store(args, of_results, sums, n, image, place * loop.out[2] + at, 1, 0, n, scratch_at(args.scratch, own.row));
      }
    }
    finish(args);
  }

 private:
  struct OwnScratch {
    size_t repeated, sums, row;
  };

  void add_window(const KernelArgs& args, const uint8_t* image, const std::array<int64_t, 3>& at, int64_t each,
                  const int32_t* weights, uint8_t* repeated, int32_t* sums) const {
    const SpatialLoop& loop = shape_.loop;
    const int64_t n = shape_.results;
    const int32_t zero = zeros_.x_value(args);
    loop.for_taps(loop.range(0, at[0]), loop.range(1, at[1]), loop.range(2, at[2]), [&](int64_t tap, int64_t element) {
      const uint8_t* from = image + element * shape_.channels;
      if (each > 1) {
        for (int64_t j = 0; j < n; ++j) repeated[j] = from[j / each];
        from = repeated;
      }
      if (shape_.x.dtype == DType::uint8)
        add_unsigned_products(from, zero, weights + tap * n, sums, n);
      else
        add_signed_products(reinterpret_cast<const int8_t*>(from), zero, weights + tap * n, sums, n);
    });
  }

  size_t weights_at_ = 0;
  std::vector<OwnScratch> own_at_;
};

std::unique_ptr<Kernel> prepare_integer_convolution(const PrepareContext& context) {
  IntegerConvolution shape(context);
  if (shape.y.count() == 0) return make_kernel([](const KernelArgs&) {});
  if (const auto form = integer_convolution_form(shape.node, shape.weight))
    return std::make_unique<WindowProducts>(context, std::move(shape), *form);
  return std::make_unique<ChannelSums>(context, std::move(shape));
}

}  // namespace

std::vector<KernelEntry> integer_convolution_kernels() {
  return {
      {.op_type = "ConvInteger",
       .domain = "",
       .prepare = prepare_integer_convolution,
       .blocks = true,
       .pack = pack_integer_convolution},
      {"PackedConvInteger", "tessera.cpu", prepare_integer_convolution, {}, false, true},
      {"ConvInteger", "tessera", prepare_integer_convolution, {}},
  };
}

}  // namespace tessera::kernels
