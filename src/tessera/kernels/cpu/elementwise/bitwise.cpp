#include "tessera/kernels/cpu/elementwise/elementwise.h"

namespace tessera::kernels {
namespace {

struct And {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};
// Shifts by fewer bits than the type has. Other shifts, negative ones among them, leave only the sign (to the right) or
// nothing.
template <typename T>
bool within_width(T bits) {
  return static_cast<std::make_unsigned_t<T>>(bits) < sizeof(T) * 8;
}
struct ShiftLeft {
  template <typename T>
  T operator()(T a, T b) const {
    return within_width(b) ? static_cast<T>(static_cast<uint64_t>(a) << b) : T(0);
  }
};
struct ShiftRight {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(within_width(b) ? a >> b : a >> (sizeof(T) * 8 - 1) >> 1);
  }
};

template <typename List, typename Op>
std::unique_ptr<Kernel> prepare_bits(const PrepareContext& context) {
  return dispatch(List(), context.node, context.inputs[0].dtype,
                  [&]<typename T>() { return binary_kernel<T, T, Op>(context); });
}

/// For operators that see no sign: numbers with a sign are computed as those without.
template <typename Op>
std::unique_ptr<Kernel> prepare_unsigned(const PrepareContext& context) {
  return dispatch(IntegerTypes(), context.node, context.inputs[0].dtype, [&]<typename T>() {
    using Bits = std::make_unsigned_t<T>;
    return binary_kernel<Bits, Bits, Op>(context);
  });
}

std::unique_ptr<Kernel> prepare_shift(const PrepareContext& context) {
  const std::string direction = context.node.get_string("direction", "");
  if (direction == "LEFT") return prepare_unsigned<ShiftLeft>(context);
  if (direction == "RIGHT") return prepare_bits<IntegerTypes, ShiftRight>(context);
  fail("kernel", "{}: direction is '{}'; it must be 'LEFT' or 'RIGHT'", context.node.label(), direction);
}

}  // namespace

std::vector<KernelEntry> bitwise_kernels() {
  return {
      {"And", "", prepare_bits<Types<bool>, And>, {0, 1}},
      {"Or", "", prepare_bits<Types<bool>, Or>, {0, 1}},
      {"Xor", "", prepare_bits<Types<bool>, Xor>, {0, 1}},
      {"BitwiseAnd", "", prepare_unsigned<And>, {0, 1}},
      {"BitwiseOr", "", prepare_unsigned<Or>, {0, 1}},
      {"BitwiseXor", "", prepare_unsigned<Xor>, {0, 1}},
      {"BitShift", "", prepare_shift, {0, 1}},
  };
}

}  // namespace tessera::kernels
