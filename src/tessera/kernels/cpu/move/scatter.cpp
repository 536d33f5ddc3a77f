#include <cstring>

#include "tessera/kernels/axes.h"
#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/cpu/move/indexing.h"
#include "tessera/kernels/cpu/move/strided_copy.h"

/// Updates are applied in the order of the indices, so that repeated indices give one answer.
namespace tessera::kernels {
namespace {

struct Replace {
  template <typename C>
  C operator()(C, C update) const {
    return update;
  }
};
struct AddUpdate {
  template <typename C>
  C operator()(C old, C update) const {
    return static_cast<C>(old + update);
  }
};
struct MulUpdate {
  template <typename C>
  C operator()(C old, C update) const {
    if constexpr (std::is_integral_v<C>)  // 16-bit operands would be promoted to int, and overflow there
      return static_cast<C>(static_cast<uint64_t>(old) * update);
    else
      return old * update;
  }
};
struct MaxUpdate {
  template <typename C>
  C operator()(C old, C update) const {
    return ((old > update) | (old != old)) ? old : update;
  }
};
struct MinUpdate {
  template <typename C>
  C operator()(C old, C update) const {
    return ((old < update) | (old != old)) ? old : update;
  }
};

/// How updates change elements that lie one after the other. The loops that find their places know neither the element
/// type nor the operation.
struct Update {
  int64_t size;  ///< of an element, in bytes
  void (*apply)(void* elements, const void* updates, int64_t count);
};

template <typename T, typename Op>
Update update_with() {
  return {static_cast<int64_t>(sizeof(T)), [](void* elements, const void* updates, int64_t count) {
            T* to = static_cast<T*>(elements);
            const T* from = static_cast<const T*>(updates);
            for (int64_t k = 0; k < count; ++k) to[k] = store<T>(Op()(load(to[k]), load(from[k])));
          }};
}

/// For the node's element type and its attribute `reduction`.
Update update_of(const PrepareContext& context) {
  const Node& node = context.node;
  const DType dtype = context.outputs[0].dtype;
  const std::string reduction = node.get_string("reduction", "none");
  if (reduction == "none") return dispatch_size(node, dtype, []<typename T>() { return update_with<T, Replace>(); });
  // Integers are added and multiplied as unsigned ones, which wrap around.
  using Wrapping = decltype(FloatTypes() + UnsignedTypes());
  auto unsigned_type = [](DType type) {
    switch (type) {
      case DType::int8:
        return DType::uint8;
      case DType::int16:
        return DType::uint16;
      case DType::int32:
        return DType::uint32;
      case DType::int64:
        return DType::uint64;
      default:
        return type;
    }
  };
  if (reduction == "add")
    return dispatch(Wrapping(), node, unsigned_type(dtype), []<typename T>() { return update_with<T, AddUpdate>(); });
  if (reduction == "mul")
    return dispatch(Wrapping(), node, unsigned_type(dtype), []<typename T>() { return update_with<T, MulUpdate>(); });
  if (reduction == "max")
    return dispatch(NumberTypes(), node, dtype, []<typename T>() { return update_with<T, MaxUpdate>(); });
  if (reduction == "min")
    return dispatch(NumberTypes(), node, dtype, []<typename T>() { return update_with<T, MinUpdate>(); });
  fail("kernel", "{}: the reduction is '{}'; it must be none, add, mul, max or min", node.label(), reduction);
}

/// Copies the data unless the output lies where they do, and returns the output.
std::byte* start_from_data(const KernelArgs& args, size_t bytes) {
  if (bytes > 0 && args.outputs[0] != args.inputs[0]) std::memcpy(args.outputs[0], args.inputs[0], bytes);
  return args.out<std::byte>();
}

template <typename Part>
std::unique_ptr<Kernel> prepare_slices(const PrepareContext& context, const TuplePlan& plan, const Part& part) {
  if (context.inputs[2].count() != plan.total() * plan.slice)
    fail("kernel", "{}: {} updates for {} indexed elements", context.node.label(), context.inputs[2].count(),
         plan.total() * plan.slice);
  return make_kernel([plan, part, update = update_of(context), bytes = context.outputs[0].bytes(),
                      dtype = context.inputs[1].dtype, label = context.node.label()](const KernelArgs& args) {
    const Indices indices(args.inputs[1], dtype);
    std::byte* out = start_from_data(args, bytes);
    const std::byte* updates = args.in<std::byte>(2);
    const int64_t slice_bytes = plan.slice * update.size;
    for (int64_t i = 0; i < plan.total(); ++i) {
      const int64_t slice = plan.slice_in(part, args, label, indices, i);
      if (slice >= 0) update.apply(out + slice * slice_bytes, updates + i * slice_bytes, plan.slice);
    }
  });
}

// Threads share out the places beside the axis, so that updates of one element keep their order.
template <typename Part>
std::unique_ptr<Kernel> scatter_elements(const PrepareContext& context, int64_t axis, const Part& part) {
  const Dims& data = context.inputs[0].dims;
  const Dims& dims = context.inputs[1].dims;
  const auto at_axis = static_cast<size_t>(axis);
  const Dims strides = dense_strides(data);
  const int64_t extent = data[at_axis], step = strides[at_axis], length = dims[at_axis];
  const int64_t inner = count_of(std::span(dims).subspan(at_axis + 1));
  const int64_t outer = count_of(std::span(dims).first(at_axis));
  // Where a place before or behind the axis lies in the data.
  const auto offset = [=](int64_t place, size_t first, size_t last) {
    int64_t to = 0;
    for (size_t d = last; d-- > first; place /= dims[d]) to += place % dims[d] * strides[d];
    return to;
  };
  const bool dense = std::equal(dims.begin() + axis + 1, dims.end(), data.begin() + axis + 1);
  return make_kernel([=, update = update_of(context), threads = context.threads, bytes = context.outputs[0].bytes(),
                      dtype = context.inputs[1].dtype, label = context.node.label()](const KernelArgs& args) {
    const Indices indices(args.inputs[1], dtype);
    std::byte* out = start_from_data(args, bytes);
    const std::byte* updates = args.in<std::byte>(2);
    for (int64_t i = 0; i < outer * length * inner; ++i) part.place(args, label, indices[i], extent);
    for_ranges(outer * inner, outer * inner * length, threads, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin / std::max<int64_t>(inner, 1); o * inner < end; ++o) {
        const int64_t first = std::max(begin - o * inner, int64_t{0}), last = std::min(end - o * inner, inner);
        std::byte* line = out + offset(o, 0, at_axis) * update.size;
        for (int64_t l = 0; l < length; ++l)
          for (int64_t k = first; k < last; ++k) {
            const int64_t i = (o * length + l) * inner + k, place = part.place(args, label, indices[i], extent);
            if (place < 0) continue;
            const int64_t to = place * step + (dense ? k : offset(k, at_axis + 1, dims.size()));
            update.apply(line + to * update.size, updates + i * update.size, 1);
          }
      }
    });
  });
}

TuplePlan points_of(const PrepareContext& context) {
  check_index_type(context, 1);
  return {context.node, context.inputs[0].dims, context.inputs[1].dims, 0};
}

std::unique_ptr<Kernel> prepare_scatter_nd(const PrepareContext& context) {
  return prepare_slices(context, points_of(context), Unsplit());
}
std::unique_ptr<Kernel> prepare_scatter_nd_shard(const PrepareContext& context) {
  const TuplePlan plan = points_of(context);
  return prepare_slices(context, plan, Shard(context, 3, plan.depth));
}

template <typename Part>
std::unique_ptr<Kernel> prepare_updates(const PrepareContext& context, const Part& part) {
  check_index_type(context, 1);
  const Dims& data = context.inputs[0].dims;
  const Dims& dims = context.inputs[1].dims;
  const int64_t axis = resolve_axis(context.node, context.node.get_int("axis", 0), context.inputs[0].rank());
  bool fits = dims.size() == data.size() && context.inputs[2].dims == dims;
  for (size_t d = 0; fits && d < dims.size(); ++d) fits = static_cast<int64_t>(d) == axis || dims[d] <= data[d];
  if (!fits) fail("kernel", "{}: indices and updates differ, or are larger than the data", context.node.label());
  return scatter_elements(context, axis, part);
}

std::unique_ptr<Kernel> prepare_scatter_elements(const PrepareContext& context) {
  return prepare_updates(context, Unsplit());
}
std::unique_ptr<Kernel> prepare_scatter_elements_shard(const PrepareContext& context) {
  return prepare_updates(context, Shard(context, 3, 1));
}

}  // namespace

std::vector<KernelEntry> scattering_kernels() {
  return {
      {"ScatterND", "", prepare_scatter_nd, {0}},
      {"ScatterNDShard", "tessera", prepare_scatter_nd_shard, {0}},
      {"ScatterElements", "", prepare_scatter_elements, {0}},
      {"ScatterElementsShard", "tessera", prepare_scatter_elements_shard, {0}},
  };
}

}  // namespace tessera::kernels
