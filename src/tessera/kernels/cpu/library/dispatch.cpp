#include "tessera/kernels/cpu/library/dispatch.h"

namespace tessera::kernels {

void fail_dtype(const Node& node, DType dtype) {
  fail("kernel", "the CPU kernel of {} does not compute {} elements; put a Cast to a type that it computes before it",
       node.label(), name_of(dtype));
}

}  // namespace tessera::kernels
