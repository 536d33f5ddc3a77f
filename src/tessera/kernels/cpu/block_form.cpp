#include "tessera/kernels/cpu/block_form.h"

#include "tessera/base/error.h"
#include "tessera/kernels/cpu/dispatch.h"
#include "tessera/kernels/cpu/extents.h"

namespace tessera::kernels {
namespace {

bool is_signed_code(DType dtype) {
  return dtype == DType::int8 || dtype == DType::int4;
}

BlockWeight::Zeros zero_kind(DType type) {
  if (type == DType::undefined) return BlockWeight::Zeros::none;
  return is_float(type) ? BlockWeight::Zeros::floats : BlockWeight::Zeros::integers;
}

// Codes [n, k / block, block], scales [n, k / block], zero points as floats so, too, or each column's as whole bytes.
BlockForm by_columns(const TensorDesc& weight, int64_t block, int bits, DType zero_type) {
  const int64_t n = weight.dims.at(0), blocks = weight.dims.at(1), per_byte = 8 / bits;
  BlockForm form{.weight = {.k = blocks * block, .n = n, .block = block, .bits = bits, .zeros = zero_kind(zero_type)},
                 .source = {}};
  form.source.code_column = blocks * block;
  form.source.scale_column = blocks;
  form.source.zero_column = is_float(zero_type) ? blocks : (blocks + per_byte - 1) / per_byte * per_byte;
  return form;
}

// Codes [k, n], scales and zero points [k / block, n].
BlockForm by_rows(const TensorDesc& weight, int64_t block, DType zero_type) {
  const int64_t n = weight.dims.at(1);
  BlockForm form{.weight = {.k = weight.dims.at(0),
                            .n = n,
                            .block = block,
                            .bits = bits_of(weight.dtype),
                            .zeros = zero_kind(zero_type)},
                 .source = {.has_sign = is_signed_code(weight.dtype)}};
  form.source.code_row = form.source.scale_row = form.source.zero_row = n;
  return form;
}

}  // namespace

std::optional<BlockForm> block_form(const Node& node, std::string_view op_type, const TensorDesc& weight,
                                    DType scale_type, DType zero_type) {
  const int64_t block = node.get_int("block_size", 0);
  std::optional<BlockForm> form;
  if (op_type == "MatMulNBits" && weight.rank() == 3 && block > 0)
    form = by_columns(weight, block, static_cast<int>(node.get_int("bits", 4)), zero_type);
  if (op_type == "MatMulBlocks" && weight.rank() == 2 && block > 0) form = by_rows(weight, block, zero_type);
  if (!form) return std::nullopt;
  form->source.scale_type = scale_type;
  form->source.zero_type = zero_type;
  // A packed group of rows fills 32 bits.
  return form->weight.block % form->weight.group() == 0 ? form : std::nullopt;
}

std::unique_ptr<Kernel> prepare_pack_blocks(const PrepareContext& context, const BlockForm& form) {
  if (static_cast<size_t>(form.weight.bytes()) != context.outputs.at(0).bytes())
    fail("kernel", "{}: blocks [{}, {}] do not pack into {} bytes; rewrite the program", context.node.label(),
         form.weight.k, form.weight.n, context.outputs[0].bytes());
  return make_kernel([form, threads = context.threads](const KernelArgs& args) {
    BlockSource source = form.source;
    source.codes = args.inputs[0];
    source.scales = args.inputs[1];
    source.zeros = args.inputs.size() > 2 ? args.inputs[2] : nullptr;
    pack_blocks(form.weight, source, args.out<std::byte>(), threads);
  });
}

}  // namespace tessera::kernels
