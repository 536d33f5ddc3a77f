#include "tessera/kernels/cpu/elementwise/elementwise.h"

#include "tessera/kernels/registry.h"

namespace tessera::kernels {

std::unique_ptr<Kernel> unary_kernel(const PrepareContext& context, UnaryRange compute) {
  const int64_t count = context.outputs[0].count();
  return make_kernel([compute = std::move(compute), count, threads = context.threads](const KernelArgs& args) {
    for_ranges(count, count, threads,
               [&](int64_t begin, int64_t end) { compute(args.inputs[0], args.outputs[0], begin, end); });
  });
}

std::unique_ptr<Kernel> binary_kernel(const PrepareContext& context, BinaryRun run) {
  Broadcast plan(context.node, context.outputs[0].dims, {context.inputs[0].dims, context.inputs[1].dims});
  return make_kernel(
      [run, plan = std::move(plan), threads = context.threads](const KernelArgs& args) { run(plan, args, threads); });
}

std::vector<KernelEntry> elementwise_kernels() {
  std::vector<KernelEntry> all;
  for (auto group : {unary_kernels, activation_kernels, arithmetic_kernels, power_kernels, comparison_kernels,
                     bitwise_kernels, selection_kernels, cast_kernels}) {
    std::vector<KernelEntry> entries = group();
    for (KernelEntry& entry : entries)
      entry.elementwise = entry.op_type != "CastLike";  // its operand 1 only gives a type
    all.insert(all.end(), std::make_move_iterator(entries.begin()), std::make_move_iterator(entries.end()));
  }
  for (KernelEntry& entry : dropout_kernels()) all.push_back(std::move(entry));  // has two results, or random ones
  return all;
}

}  // namespace tessera::kernels
