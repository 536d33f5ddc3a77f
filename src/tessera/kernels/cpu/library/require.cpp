#include "tessera/kernels/cpu/library/require.h"

#include "tessera/base/error.h"
#include "tessera/kernels/cpu/library/extents.h"

namespace tessera::kernels {

void require_dims(const PrepareContext& context, size_t index, std::string_view what, const Dims& dims) {
  if (!context.has_input(index) || context.inputs[index].dims == dims) return;
  fail("kernel", "{}: {} has extents {}, but the other operands need {}; give it those", context.node.label(), what,
       text_of(context.inputs[index].dims), text_of(dims));
}

void require_scalar(const PrepareContext& context, size_t index, std::string_view what, DType dtype) {
  if (!context.has_input(index)) return;
  const TensorDesc& given = context.inputs[index];
  if (given.dtype != dtype || given.count() != 1)
    fail("kernel", "{}: {} is {} {}; give one {} element", context.node.label(), what, name_of(given.dtype),
         text_of(given.dims), name_of(dtype));
}

}  // namespace tessera::kernels
