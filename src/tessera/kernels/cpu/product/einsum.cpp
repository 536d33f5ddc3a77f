#include "tessera/ir/einsum.h"

#include <algorithm>
#include <array>
#include <map>

#include "tessera/kernels/cpu/library/dispatch.h"
#include "tessera/kernels/cpu/library/extents.h"
#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/registry.h"

namespace tessera::kernels {
namespace {

constexpr size_t kMostOperands = 8;
using Offsets = std::array<int64_t, kMostOperands>;

/// A loop over one label: each operand's stride along it (0 if it has no such dimension, or repeats; the sum of both
/// strides for a diagonal).
struct LabelLoop {
  int64_t extent = 1;
  Offsets steps{};
};

/// result[o] = Σ over all of `summed` of the product of the operands.
struct EinsumLoops {
  std::vector<LabelLoop> kept, summed;
  size_t operands = 0;
  int threads = 1;
};

int64_t points(const std::vector<LabelLoop>& loops) {
  int64_t count = 1;
  for (const LabelLoop& loop : loops) count *= loop.extent;
  return count;
}

/// Each operand's offset at point `index`, row-major, of the loops.
Offsets place(const std::vector<LabelLoop>& loops, size_t operands, int64_t index, Offsets offsets) {
  for (size_t l = loops.size(); l-- > 0;) {
    const int64_t digit = index % loops[l].extent;
    index /= loops[l].extent;
    for (size_t k = 0; k < operands; ++k) offsets[k] += digit * loops[l].steps[k];
  }
  return offsets;
}

/// Sums of integers wrap around.
template <typename T>
using Sum = std::conditional_t<std::is_integral_v<T>, uint64_t, Compute<T>>;

template <typename T>
Sum<T> sum_of_products(const LabelLoop& loop, size_t operands, const std::array<const T*, kMostOperands>& at) {
  Sum<T> sum = 0;
  for (int64_t i = 0; i < loop.extent; ++i) {
    Sum<T> product = static_cast<Sum<T>>(load(at[0][i * loop.steps[0]]));
    for (size_t k = 1; k < operands; ++k) product *= static_cast<Sum<T>>(load(at[k][i * loop.steps[k]]));
    sum += product;
  }
  return sum;
}

template <typename T>
void einsum(const EinsumLoops& loops, const LabelLoop& inner, const KernelArgs& args) {
  const int64_t count = points(loops.kept), rows = points(loops.summed);
  T* out = args.out<T>();
  for_ranges(count, count * rows * inner.extent, loops.threads, [&](int64_t begin, int64_t end) {
    std::array<const T*, kMostOperands> at{};
    for (int64_t o = begin; o < end; ++o) {
      const Offsets start = place(loops.kept, loops.operands, o, {});
      Sum<T> sum = 0;
      for (int64_t row = 0; row < rows; ++row) {
        const Offsets offsets = place(loops.summed, loops.operands, row, start);
        for (size_t k = 0; k < loops.operands; ++k) at[k] = args.in<T>(k) + offsets[k];
        sum += sum_of_products<T>(inner, loops.operands, at);
      }
      out[o] = static_cast<T>(sum);
    }
  });
}

std::map<std::string, LabelLoop> loops_of(const PrepareContext& context, const EinsumEquation& equation) {
  std::map<std::string, LabelLoop> loops;
  for (size_t k = 0; k < context.inputs.size(); ++k) {
    const Dims& dims = context.inputs[k].dims;
    int64_t stride = 1;
    for (size_t d = dims.size(); d-- > 0;) {
      const std::string& label = equation.operands[k][d];
      auto [found, fresh] = loops.try_emplace(label);
      LabelLoop& loop = found->second;
      if (fresh || loop.extent == 1) loop.extent = dims[d];
      if (dims[d] != 1 && dims[d] != loop.extent)
        fail("kernel", "{}: '{}' is both {} and {}; it must have one extent", context.node.label(), label, loop.extent,
             dims[d]);
      if (dims[d] != 1) loop.steps[k] += stride;
      stride *= dims[d];
    }
  }
  return loops;
}

std::unique_ptr<Kernel> prepare_einsum(const PrepareContext& context) {
  const Node& node = context.node;
  std::vector<size_t> ranks;
  for (const TensorDesc& input : context.inputs) ranks.push_back(input.dims.size());
  if (ranks.empty() || ranks.size() > kMostOperands)
    fail("kernel", "{}: {} operands; 1 to {} are computed: split the equation into several", node.label(), ranks.size(),
         kMostOperands);
  const EinsumEquation equation = EinsumEquation::read(node.get_string("equation", ""), ranks, node.label());
  std::map<std::string, LabelLoop> labels = loops_of(context, equation);
  EinsumLoops loops{{}, {}, ranks.size(), context.threads};
  Dims made;
  for (const std::string& label : equation.result) {
    loops.kept.push_back(labels.at(label));
    made.push_back(loops.kept.back().extent);
    labels.erase(label);
  }
  if (made != context.outputs.at(0).dims)
    fail("kernel", "{}: the declared result is {}, but the operands give {}", node.label(),
         text_of(context.outputs[0].dims), text_of(made));
  // The longest sum is the innermost loop.
  LabelLoop inner;
  for (const auto& [label, loop] : labels) loops.summed.push_back(loop);
  auto longest = std::max_element(loops.summed.begin(), loops.summed.end(),
                                  [](const LabelLoop& a, const LabelLoop& b) { return a.extent < b.extent; });
  if (longest != loops.summed.end()) {
    inner = *longest;
    loops.summed.erase(longest);
  }
  return dispatch(NumberTypes(), node, context.inputs[0].dtype, [&]<typename T>() {
    return make_kernel([loops, inner](const KernelArgs& args) { einsum<T>(loops, inner, args); });
  });
}

}  // namespace

std::vector<KernelEntry> einsum_kernels() {
  return {{"Einsum", "", prepare_einsum, {}}};
}

}  // namespace tessera::kernels
