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

/// Calls make.operator()<T, Op>() for the node's element type and its attribute `reduction`.
template <typename Make>
std::unique_ptr<Kernel> with_reduction(const PrepareContext& context, Make&& make) {
  const Node& node = context.node;
  const DType dtype = context.outputs[0].dtype;
  const std::string reduction = node.get_string("reduction", "none");
  if (reduction == "none")
    return dispatch_size(node, dtype, [&]<typename T>() { return make.template operator()<T, Replace>(); });
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
    return dispatch(Wrapping(), node, unsigned_type(dtype),
                    [&]<typename T>() { return make.template operator()<T, AddUpdate>(); });
  if (reduction == "mul")
    return dispatch(Wrapping(), node, unsigned_type(dtype),
                    [&]<typename T>() { return make.template operator()<T, MulUpdate>(); });
  if (reduction == "max")
    return dispatch(NumberTypes(), node, dtype, [&]<typename T>() { return make.template operator()<T, MaxUpdate>(); });
  if (reduction == "min")
    return dispatch(NumberTypes(), node, dtype, [&]<typename T>() { return make.template operator()<T, MinUpdate>(); });
  fail("kernel", "{}: the reduction is '{}'; it must be none, add, mul, max or min", node.label(), reduction);
}

template <typename T>
T* start_from_data(const KernelArgs& args, size_t bytes) {
  if (bytes > 0 && args.outputs[0] != args.inputs[0]) std::memcpy(args.outputs[0], args.inputs[0], bytes);
  return args.out<T>();
}

// Templates of their own: clang 16 does not emit a lambda of a generic lambda.
template <typename T, typename Op, typename Part>
std::unique_ptr<Kernel> scatter_slices(const PrepareContext& context, const TuplePlan& plan, const Part& part) {
  return make_kernel([plan, part, bytes = context.outputs[0].bytes(), dtype = context.inputs[1].dtype,
                      label = context.node.label()](const KernelArgs& args) {
    const Indices indices(args.inputs[1], dtype);
    T* out = start_from_data<T>(args, bytes);
    const T* updates = args.in<T>(2);
    for (int64_t i = 0; i < plan.total(); ++i) {
      const int64_t slice = plan.slice_in(part, args, label, indices, i);
      if (slice < 0) continue;
      T* to = out + slice * plan.slice;
      const T* from = updates + i * plan.slice;
      for (int64_t k = 0; k < plan.slice; ++k) to[k] = store<T>(Op()(load(to[k]), load(from[k])));
    }
  });
}

// Threads share out the places beside the axis, so that updates of one element keep their order.
template <typename T, typename Op, typename Part>
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
  return make_kernel([=, threads = context.threads, bytes = context.outputs[0].bytes(), dtype = context.inputs[1].dtype,
                      label = context.node.label()](const KernelArgs& args) {
    const Indices indices(args.inputs[1], dtype);
    T* out = start_from_data<T>(args, bytes);
    const T* updates = args.in<T>(2);
    for (int64_t i = 0; i < outer * length * inner; ++i) part.place(args, label, indices[i], extent);
    for_ranges(outer * inner, outer * inner * length, threads, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin / std::max<int64_t>(inner, 1); o * inner < end; ++o) {
        const int64_t first = std::max(begin - o * inner, int64_t{0}), last = std::min(end - o * inner, inner);
        T* line = out + offset(o, 0, at_axis);
        for (int64_t l = 0; l < length; ++l)
          for (int64_t k = first; k < last; ++k) {
            const int64_t i = (o * length + l) * inner + k, place = part.place(args, label, indices[i], extent);
            if (place < 0) continue;
            T& to = line[place * step + (dense ? k : offset(k, at_axis + 1, dims.size()))];
            to = store<T>(Op()(load(to), load(updates[i])));
          }
      }
    });
  });
}

template <typename Part>
std::unique_ptr<Kernel> prepare_slices(const PrepareContext& context, const TuplePlan& plan, const Part& part) {
  if (context.inputs[2].count() != plan.total() * plan.slice)
    fail("kernel", "{}: {} updates for {} indexed elements", context.node.label(), context.inputs[2].count(),
         plan.total() * plan.slice);
  return with_reduction(context, [&]<typename T, typename Op>() { return scatter_slices<T, Op>(context, plan, part); });
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
  return with_reduction(context,
                        [&]<typename T, typename Op>() { return scatter_elements<T, Op>(context, axis, part); });
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
