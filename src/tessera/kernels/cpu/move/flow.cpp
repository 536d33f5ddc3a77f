#include "tessera/ir/flow.h"

#include <cstring>

#include "tessera/kernels/cpu/library/dispatch.h"
#include "tessera/kernels/registry.h"

// The nodes that delimit branches and bodies of loops. What they decide, the runtime decides; the kernels move data.
namespace tessera::kernels {
namespace {

std::unique_ptr<Kernel> prepare_nothing(const PrepareContext&) {
  return make_kernel([](const KernelArgs&) {});
}

// Nothing moves if the operand was made where the result is.
std::unique_ptr<Kernel> prepare_hold(const PrepareContext& context) {
  return make_kernel([bytes = context.inputs[0].bytes()](const KernelArgs& args) {
    if (bytes > 0 && args.out<std::byte>() != args.in<std::byte>(0))
      std::memcpy(args.out<std::byte>(), args.in<std::byte>(0), bytes);
  });
}

// The row of `whole` that an iteration has.
int64_t row_of(int64_t iteration, int64_t rows, bool reverse) {
  return reverse ? rows - 1 - iteration : iteration;
}

std::unique_ptr<Kernel> prepare_item(const PrepareContext& context) {
  return make_kernel([bytes = context.outputs[0].bytes(), rows = context.inputs[0].dims[0],
                      reverse = context.node.get_int("reverse", 0) != 0](const KernelArgs& args) {
    const int64_t row = row_of(*args.in<int64_t>(1), rows, reverse);
    if (bytes > 0) std::memcpy(args.out<std::byte>(), args.in<std::byte>(0) + row * static_cast<int64_t>(bytes), bytes);
  });
}

std::unique_ptr<Kernel> prepare_stack(const PrepareContext& context) {
  return make_kernel([bytes = context.inputs[0].bytes(), rows = context.outputs[0].dims[0],
                      reverse = context.node.get_int("reverse", 0) != 0](const KernelArgs& args) {
    std::byte* row = args.out<std::byte>() + row_of(*args.in<int64_t>(1), rows, reverse) * static_cast<int64_t>(bytes);
    if (bytes > 0 && row != args.in<std::byte>(0)) std::memcpy(row, args.in<std::byte>(0), bytes);
  });
}

std::unique_ptr<Kernel> prepare_choose(const PrepareContext& context) {
  return make_kernel([bytes = context.outputs[0].bytes()](const KernelArgs& args) {
    const auto* chosen = args.in<std::byte>(*args.in<bool>(2) ? 0 : 1);
    if (bytes > 0 && args.out<std::byte>() != chosen) std::memcpy(args.out<std::byte>(), chosen, bytes);
  });
}

}  // namespace

std::vector<KernelEntry> flow_kernels() {
  constexpr std::string_view domain = flow::kDomain;
  return {
      {.op_type = "Loop", .domain = domain, .prepare = prepare_nothing},
      {.op_type = "Carry", .domain = domain, .prepare = prepare_hold},
      {.op_type = "Item", .domain = domain, .prepare = prepare_item},
      {.op_type = "Next", .domain = domain, .prepare = prepare_hold},
      {.op_type = "Again", .domain = domain, .prepare = prepare_hold},
      {.op_type = "Last", .domain = domain, .prepare = prepare_hold, .view = true},
      {.op_type = "Stack", .domain = domain, .prepare = prepare_stack},
      {.op_type = "Branch", .domain = domain, .prepare = prepare_hold},
      {.op_type = "Bring", .domain = domain, .prepare = prepare_hold, .view = true},
      {.op_type = "Join", .domain = domain, .prepare = prepare_hold},
      {.op_type = "Choose", .domain = domain, .prepare = prepare_choose},
  };
}

}  // namespace tessera::kernels
