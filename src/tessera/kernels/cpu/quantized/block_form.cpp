#include "tessera/kernels/cpu/quantized/block_form.h"

#include <algorithm>

#include "tessera/kernels/cpu/library/dispatch.h"
#include "tessera/kernels/cpu/library/extents.h"

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

// Codes [k, n], scales and zero points [k / block, n]; without blocks, one of them for each column or for all. Turned:
// each the other way around.
BlockForm of_matrix(const TensorDesc& weight, int64_t block, bool turned, const BlockScales& scales) {
  constexpr int64_t kRowsPacked = 128;  // of a matrix without blocks, which share copies of their scale
  const int64_t k = weight.dims.at(turned ? 1 : 0), n = weight.dims.at(turned ? 0 : 1);
  const int bits = bits_of(weight.dtype);
  BlockForm form{.weight = {.k = k, .n = n, .block = block, .bits = bits, .zeros = zero_kind(scales.zero_type)},
                 .source = {.has_sign = is_signed_code(weight.dtype)}};
  BlockSource& source = form.source;
  source.code_row = turned ? 1 : n;
  source.code_column = turned ? k : 1;
  if (block > 0) {
    source.scale_row = source.zero_row = turned ? 1 : n;
    source.scale_column = source.zero_column = turned ? (k + block - 1) / block : 1;
  } else {
    const int64_t group = form.weight.group();
    form.weight.block = std::clamp((k + group - 1) / group * group, group, kRowsPacked);
    source.scale_row = source.zero_row = 0;
    source.scale_column = source.zero_column = scales.single ? 0 : 1;
  }
  return form;
}

}  // namespace

std::optional<BlockForm> block_form(const Node& node, std::string_view op_type, const TensorDesc& weight,
                                    const BlockScales& scales) {
  const int64_t block = node.get_int("block_size", 0);
  std::optional<BlockForm> form;
  if (op_type == "MatMulNBits" && weight.rank() == 3 && block > 0)
    form = by_columns(weight, block, static_cast<int>(node.get_int("bits", 4)), scales.zero_type);
  if (op_type == "MatMulBlocks" && weight.rank() == 2)
    form = of_matrix(weight, block, node.get_int("transB", 0) != 0, scales);
  if (!form) return std::nullopt;
  form->source.scale_type = scales.scale_type;
  form->source.zero_type = scales.zero_type;
  // A packed group of rows fills 32 bits.
  return form->weight.block % form->weight.group() == 0 ? form : std::nullopt;
}

namespace {

std::unique_ptr<Kernel> prepare_pack(const BlockForm& form, int threads) {
  return make_kernel([form, threads](const KernelArgs& args) {
    BlockSource source = form.source;
    source.codes = args.inputs[0];
    source.scales = args.inputs[1];
    source.zeros = args.inputs.size() > 2 ? args.inputs[2] : nullptr;
    pack_blocks(form.weight, source, args.out<std::byte>(), threads);
  });
}

}  // namespace

std::optional<PackedLayout> pack_block_product(const Node& node, const TensorDesc& weight) {
  const Value *scales = node.input(2), *zeros = node.input(3);
  if (!scales || !scales->is_fixed() || (zeros && !zeros->is_fixed())) return std::nullopt;
  const DType zero_type = zeros ? zeros->dtype() : DType::undefined;
  // Whether one scale belongs to the whole matrix is known when extents are bound.
  const auto form = block_form(node, node.op_type, weight, {scales->dtype(), zero_type}),
             of_one_scale = block_form(node, node.op_type, weight, {scales->dtype(), zero_type, true});
  if (!form || !of_one_scale || form->weight.bytes() == 0) return std::nullopt;
  PackedLayout packed =
      new_packed_layout(node, weight, static_cast<size_t>(form->weight.bytes()), {"bits", "block_size", "transB"});
  packed.beside = {2, 3};
  packed.prepare = [form = *form, of_one_scale = *of_one_scale](const std::vector<TensorDesc>& operands, int threads) {
    return prepare_pack(operands.at(1).count() == 1 ? of_one_scale : form, threads);
  };
  return packed;
}

}  // namespace tessera::kernels
