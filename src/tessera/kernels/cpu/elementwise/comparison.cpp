#include "tessera/kernels/cpu/elementwise/elementwise.h"

namespace tessera::kernels {
namespace {

struct Equal {
  template <typename T>
  bool operator()(T a, T b) const {
    return a == b;
  }
};
struct Less {
  template <typename T>
  bool operator()(T a, T b) const {
    return a < b;
  }
};
struct LessOrEqual {
  template <typename T>
  bool operator()(T a, T b) const {
    return a <= b;
  }
};
struct Greater {
  template <typename T>
  bool operator()(T a, T b) const {
    return a > b;
  }
};
struct GreaterOrEqual {
  template <typename T>
  bool operator()(T a, T b) const {
    return a >= b;
  }
};

template <typename Op>
std::unique_ptr<Kernel> prepare_comparison(const PrepareContext& context) {
  return dispatch(AllTypes(), context.node, context.inputs[0].dtype,
                  [&]<typename T>() { return binary_kernel<T, bool, Op>(context); });
}

}  // namespace

std::vector<KernelEntry> comparison_kernels() {
  return {
      {"Equal", "", prepare_comparison<Equal>, {}},
      {"Less", "", prepare_comparison<Less>, {}},
      {"LessOrEqual", "", prepare_comparison<LessOrEqual>, {}},
      {"Greater", "", prepare_comparison<Greater>, {}},
      {"GreaterOrEqual", "", prepare_comparison<GreaterOrEqual>, {}},
  };
}

}  // namespace tessera::kernels
