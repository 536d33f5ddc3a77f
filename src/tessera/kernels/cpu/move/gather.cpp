#include <cstring>

#include "tessera/kernels/axes.h"
#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/cpu/move/indexing.h"
#include "tessera/kernels/cpu/move/strided_copy.h"

/// Indices are checked before any copy, outside the threads' loops, which must not throw.
namespace tessera::kernels {
namespace {

void check_count(const PrepareContext& context, int64_t expected) {
  if (context.outputs[0].count() != expected)
    fail("kernel", "{}: the declared result has {} elements, but the operands give {}", context.node.label(),
         context.outputs[0].count(), expected);
}

int64_t element_bytes(const PrepareContext& context) {
  return dispatch_size(context.node, context.outputs[0].dtype,
                       []<typename T>() { return static_cast<int64_t>(sizeof(T)); });
}

/// Copies lines of a table [outer, extent, bytes] to [outer, count, bytes], or the line `absent` if `place` gives -1.
/// Lines of kBytes; 0: any number.
template <size_t kBytes, typename Place>
void gather_lines_of(const std::byte* table, std::byte* out, int64_t outer, int64_t extent, int64_t count,
                     int64_t bytes, int threads, const Place& place, const std::byte* absent) {
  for_ranges(outer * count, outer * count * bytes / 4, threads, [&](int64_t begin, int64_t end) {
    const int64_t size = kBytes > 0 ? static_cast<int64_t>(kBytes) : bytes;
    for (int64_t at = begin; at < end;) {
      const std::byte* rows = table + at / count * extent * size;
      const int64_t first = at % count, stop = std::min(count, first + end - at);
      for (int64_t i = first; i < stop; ++i, ++at) {
        const int64_t from = place(i);
        std::memcpy(out + at * size, from < 0 ? absent : rows + from * size,
                    kBytes > 0 ? kBytes : static_cast<size_t>(size));
      }
    }
  });
}

template <typename Place>
void gather_lines(const std::byte* table, std::byte* out, int64_t outer, int64_t extent, int64_t count, int64_t bytes,
                  int threads, const Place& place, const std::byte* absent = nullptr) {
  const auto gather = [&]<size_t kBytes>() {
    gather_lines_of<kBytes>(table, out, outer, extent, count, bytes, threads, place, absent);
  };
  switch (bytes) {
    case 0:
      return;
    case 1:
      return gather.template operator()<1>();
    case 2:
      return gather.template operator()<2>();
    case 4:
      return gather.template operator()<4>();
    case 8:
      return gather.template operator()<8>();
    default:
      return gather.template operator()<0>();
  }
}

template <typename T>
void check_all(const std::string& label, const T* indices, int64_t count, int64_t extent) {
  bool good = true;
  for (int64_t i = 0; i < count; ++i) good &= indices[i] >= -extent && indices[i] < extent;
  for (int64_t i = 0; !good && i < count; ++i) check_index(label, indices[i], extent);
}

std::unique_ptr<Kernel> prepare_gather(const PrepareContext& context) {
  check_index_type(context, 1);
  const int64_t axis = resolve_axis(context.node, context.node.get_int("axis", 0), context.inputs[0].rank());
  const AxisView view(context.inputs[0].dims, axis);
  const int64_t count = context.inputs[1].count();
  check_count(context, view.outer * count * view.inner);
  const int64_t bytes = line_bytes(context.node, context.outputs[0].dtype, view.inner);
  return make_kernel([=, dtype = context.inputs[1].dtype, label = context.node.label(),
                      threads = context.threads](const KernelArgs& args) {
    Indices(args.inputs[1], dtype).typed([&](const auto* indices) {
      check_all(label, indices, count, view.extent);
      gather_lines(args.in<std::byte>(0), args.out<std::byte>(), view.outer, view.extent, count, bytes, threads,
                   [indices, extent = view.extent](int64_t i) {
                     const int64_t index = indices[i];
                     return index < 0 ? index + extent : index;
                   });
    });
  });
}

/// Fills a line with elements that change no sum: zeros; negative ones for floats, since 0 + -0 is 0.
void add_nothing(std::byte* line, bool floats, int64_t bytes, int64_t element) {
  std::memset(line, 0, static_cast<size_t>(bytes));
  for (int64_t sign = element - 1; floats && sign < bytes; sign += element) line[sign] = std::byte{0x80};
}

/// Gathers from one shard of a table that is split along the axis. Indices of other shards give zeros, selected rather
/// than multiplied, so that the shards' results add up to the whole result.
std::unique_ptr<Kernel> prepare_gather_shard(const PrepareContext& context) {
  check_index_type(context, 1);
  const Shard shard(context, 2, 1);
  const int64_t axis = resolve_axis(context.node, context.node.get_int("axis", 0), context.inputs[0].rank());
  const AxisView view(context.inputs[0].dims, axis);
  const int64_t count = context.inputs[1].count();
  check_count(context, view.outer * count * view.inner);
  const int64_t element = element_bytes(context), bytes = view.inner * element;
  auto run = [=, floats = is_float(context.outputs[0].dtype), dtype = context.inputs[1].dtype,
              label = context.node.label(), threads = context.threads](const KernelArgs& args) {
    auto* absent = static_cast<std::byte*>(args.scratch);
    add_nothing(absent, floats, bytes, element);
    const Indices indices(args.inputs[1], dtype);
    auto place = [&](int64_t i) { return shard.place(args, label, indices[i], view.extent); };
    for (int64_t i = 0; i < count; ++i) place(i);
    gather_lines(args.in<std::byte>(0), args.out<std::byte>(), view.outer, view.extent, count, bytes, threads, place,
                 absent);
  };
  return make_kernel(std::move(run), static_cast<size_t>(bytes));
}

TuplePlan points_of_table(const PrepareContext& context) {
  check_index_type(context, 1);
  return {context.node, context.inputs[0].dims, context.inputs[1].dims, context.node.get_int("batch_dims", 0)};
}

/// Tuples that point into another shard give zeros, as prepare_gather_shard's indices do; there are none if all is
/// here.
template <typename Part>
std::unique_ptr<Kernel> gather_tuples(const PrepareContext& context, const TuplePlan& plan, const Part& part) {
  check_count(context, plan.total() * plan.slice);
  constexpr bool has_others = std::is_same_v<Part, Shard>;
  const int64_t element = element_bytes(context), bytes = plan.slice * element;
  auto run = [=, floats = is_float(context.outputs[0].dtype), dtype = context.inputs[1].dtype,
              label = context.node.label(), threads = context.threads](const KernelArgs& args) {
    auto* absent = static_cast<std::byte*>(args.scratch);
    if constexpr (has_others) add_nothing(absent, floats, bytes, element);
    const Indices indices(args.inputs[1], dtype);
    auto place = [&](int64_t i) { return plan.slice_in(part, args, label, indices, i); };
    for (int64_t i = 0; i < plan.total(); ++i) place(i);
    gather_lines(args.in<std::byte>(0), args.out<std::byte>(), 1, 0, plan.total(), bytes, threads, place, absent);
  };
  return make_kernel(std::move(run), has_others ? static_cast<size_t>(bytes) : 0);
}

std::unique_ptr<Kernel> prepare_gather_nd(const PrepareContext& context) {
  return gather_tuples(context, points_of_table(context), Unsplit());
}
std::unique_ptr<Kernel> prepare_gather_nd_shard(const PrepareContext& context) {
  const TuplePlan plan = points_of_table(context);
  return gather_tuples(context, plan, Shard(context, 2, plan.depth));
}

// A template of its own: clang 16 does not emit a lambda of a generic lambda.
template <typename T, typename Part>
std::unique_ptr<Kernel> gather_elements(const PrepareContext& context, int64_t axis, const Part& part) {
  const Dims& dims = context.inputs[1].dims;
  const int64_t count = count_of(dims), extent = context.inputs[0].dims[axis];
  Dims strides = dense_strides(context.inputs[0].dims);
  const int64_t step = strides[axis];
  strides[axis] = 0;
  T absent;
  add_nothing(reinterpret_cast<std::byte*>(&absent), is_float(context.outputs[0].dtype), sizeof(T), sizeof(T));
  return make_kernel([=, dtype = context.inputs[1].dtype, label = context.node.label(),
                      threads = context.threads](const KernelArgs& args) {
    const Indices indices(args.inputs[1], dtype);
    for (int64_t i = 0; i < count; ++i) part.place(args, label, indices[i], extent);
    const T* in = args.in<T>(0);
    T* out = args.out<T>();
    for_ranges(count, count, threads, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t rest = i, from = 0;
        for (size_t d = dims.size(); d-- > 0; rest /= dims[d]) from += rest % dims[d] * strides[d];
        const int64_t place = part.place(args, label, indices[i], extent);
        out[i] = place < 0 ? absent : in[from + place * step];
      }
    });
  });
}

/// out[i, j, k] = data[i, index[i, j, k], k] for axis 1; the indices may be smaller than the data along other axes.
template <typename Part>
std::unique_ptr<Kernel> prepare_elements(const PrepareContext& context, const Part& part) {
  check_index_type(context, 1);
  const Dims& data = context.inputs[0].dims;
  const Dims& dims = context.inputs[1].dims;
  const int64_t axis = resolve_axis(context.node, context.node.get_int("axis", 0), context.inputs[0].rank());
  bool fits = dims.size() == data.size();
  for (size_t d = 0; fits && d < dims.size(); ++d) fits = static_cast<int64_t>(d) == axis || dims[d] <= data[d];
  if (!fits) fail("kernel", "{}: the indices are larger than the data", context.node.label());
  check_count(context, count_of(dims));
  return dispatch_size(context.node, context.outputs[0].dtype,
                       [&]<typename T>() { return gather_elements<T>(context, axis, part); });
}

std::unique_ptr<Kernel> prepare_gather_elements(const PrepareContext& context) {
  return prepare_elements(context, Unsplit());
}
std::unique_ptr<Kernel> prepare_gather_elements_shard(const PrepareContext& context) {
  return prepare_elements(context, Shard(context, 2, 1));
}

}  // namespace

std::vector<KernelEntry> gathering_kernels() {
  return {
      {"Gather", "", prepare_gather, {}},
      {"GatherShard", "tessera", prepare_gather_shard, {}},
      {"GatherND", "", prepare_gather_nd, {}},
      {"GatherNDShard", "tessera", prepare_gather_nd_shard, {}},
      {"GatherElements", "", prepare_gather_elements, {}},
      {"GatherElementsShard", "tessera", prepare_gather_elements_shard, {}},
  };
}

}  // namespace tessera::kernels
