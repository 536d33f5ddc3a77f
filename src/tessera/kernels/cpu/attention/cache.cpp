#include <cstring>
#include <string>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/cpu/library/require.h"
#include "tessera/kernels/registry.h"
#include "tessera/kernels/view.h"

/// TensorScatter: rows written into a cache, or into a part of one (TensorScatterShard). Where the result takes over
/// the cache's memory, nothing else moves.
namespace tessera::kernels {
namespace {

size_t axis_of(const Node& node, size_t rank) {
  const int64_t axis = node.get_int("axis", -2);
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
}

/// What lies behind the written axis is one row, which must be contiguous in the update.
bool has_whole_rows(const Node& node, const View& view) {
  const Dims dense = dense_strides(view.dims);
  for (size_t d = axis_of(node, view.dims.size()) + 1; d < view.dims.size(); ++d)
    if (view.dims[d] != 1 && view.strides[d] != dense[d]) return false;
  return true;
}

class TensorScatterKernel : public Kernel {
 public:
  explicit TensorScatterKernel(const PrepareContext& context)
      : label_(context.node.label()),
        circular_(context.node.get_string("mode", "linear") == "circular"),
        bytes_(context.outputs[0].bytes()),
        threads_(context.threads) {
    const Dims& cache = context.inputs[0].dims;
    const View update = view_of(context.inputs[1]);
    const size_t axis = axis_of(context.node, cache.size()), width = bits_of(context.inputs[0].dtype) / 8;
    outer_.assign(update.dims.begin(), update.dims.begin() + static_cast<ptrdiff_t>(axis));
    outer_strides_.assign(update.strides.begin(), update.strides.begin() + static_cast<ptrdiff_t>(axis));
    for (int64_t& stride : outer_strides_) stride *= static_cast<int64_t>(width);
    heads_ = 1;
    for (size_t d = 1; d < axis; ++d) heads_ *= cache[d];
    batch_ = cache[0];
    here_ = cache[axis];
    is_part_ = context.node.is("TensorScatterShard", "tessera");
    has_first_ = context.has_input(2);
    count_ = update.dims[axis];
    stride_ = update.strides[axis] * static_cast<int64_t>(width);
    row_ = static_cast<int64_t>(width);
    for (size_t d = axis + 1; d < cache.size(); ++d) row_ *= cache[d];
    if (!is_part_) require_room(here_);
  }

  void run(const KernelArgs& args) override {
    auto* cache = args.out<std::byte>();
    if (bytes_ > 0 && args.outputs[0] != args.inputs[0]) std::memcpy(cache, args.inputs[0], bytes_);
    const int64_t* first = has_first_ ? args.in<int64_t>(2) : nullptr;
    const int64_t offset = is_part_ ? *args.in<int64_t>(3) : 0, size = is_part_ ? *args.in<int64_t>(4) : here_;
    require_room(size);
    for (int64_t b = 0; first && b < batch_; ++b)
      if (first[b] < 0 || (!circular_ && first[b] > size - count_))
        fail("kernel", "{}: {} rows from {} on are outside a cache of {}", label_, count_, first[b], size);
    if (row_ == 0 || here_ == 0 || count_ == 0) return;
    const int64_t outer = batch_ * heads_;
#pragma omp parallel for num_threads(team_for(outer* count_* row_ / 4, threads_)) schedule(static)
    for (int64_t at = 0; at < outer; ++at) {
      const std::byte* from = args.in<std::byte>(1) + offset_of(at);
      std::byte* to = cache + at * here_ * row_;
      const int64_t begin = first ? first[at / heads_] % size : 0;
      for (int64_t i = 0; i < count_; ++i) {
        const int64_t place = (begin + i) % size - offset;
        if (place >= 0 && place < here_) std::memcpy(to + place * row_, from + i * stride_, static_cast<size_t>(row_));
      }
    }
  }

 private:
  void require_room(int64_t size) const {
    if (circular_ ? count_ > 0 && here_ > 0 && size <= 0 : count_ > size)
      fail("kernel", "{}: an update of {} does not fit into a cache of {}", label_, count_, size);
  }

  // In bytes, of the update's rows of one sample and head.
  int64_t offset_of(int64_t at) const {
    int64_t offset = 0;
    for (size_t d = outer_.size(); d-- > 0; at /= outer_[d]) offset += at % outer_[d] * outer_strides_[d];
    return offset;
  }

  std::string label_;
  bool circular_;
  size_t bytes_;
  int threads_;
  Dims outer_, outer_strides_;
  bool is_part_ = false, has_first_ = false;
  int64_t batch_ = 0, heads_ = 1, here_ = 0, count_ = 0;
  int64_t stride_ = 0, row_ = 0;  // in bytes
};

std::unique_ptr<Kernel> prepare_tensor_scatter(const PrepareContext& context) {
  const Dims &cache = context.inputs[0].dims, &update = context.inputs[1].dims;
  if (bits_of(context.inputs[0].dtype) % 8 != 0 || context.inputs[0].dtype == DType::string)
    fail("kernel", "{}: elements of type {} cannot be written one by one", context.node.label(),
         name_of(context.inputs[0].dtype));
  Dims wanted = cache;
  const size_t axis = axis_of(context.node, cache.size());
  if (axis < update.size()) wanted[axis] = update[axis];
  require_dims(context, 1, "the update", wanted);
  require_dims(context, 2, "write_indices", {cache[0]});
  require_scalar(context, 3, "the offset", DType::int64);
  require_scalar(context, 4, "the number of rows", DType::int64);
  return std::make_unique<TensorScatterKernel>(context);
}

}  // namespace

std::vector<KernelEntry> cache_kernels() {
  std::vector<KernelEntry> entries;
  for (const auto& [op_type, domain] : {std::pair("TensorScatter", ""), std::pair("TensorScatterShard", "tessera")})
    entries.push_back(
        {.op_type = op_type,
         .domain = domain,
         .prepare = prepare_tensor_scatter,
         .in_place = {0},
         .strided = {1},
         .takes_strided = [](const Node& node, int, const View& view) { return has_whole_rows(node, view); }});
  return entries;
}

}  // namespace tessera::kernels
