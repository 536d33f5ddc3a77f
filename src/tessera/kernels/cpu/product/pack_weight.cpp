#include <array>

#include "tessera/base/error.h"
#include "tessera/kernels/cpu/elementwise/via_float32.h"
#include "tessera/kernels/cpu/library/dispatch.h"
#include "tessera/kernels/cpu/library/extents.h"
#include "tessera/kernels/cpu/library/scratch.h"
#include "tessera/kernels/cpu/product/weight_layout.h"
#include "tessera/kernels/cpu/quantized/block_form.h"
#include "tessera/kernels/cpu/quantized/integer_form.h"
#include "tessera/kernels/cpu/recurrent/recurrence_form.h"
#include "tessera/kernels/packing.h"

namespace tessera::kernels {
namespace {

/// The attributes on which a packed form depends, for each operator that takes one.
std::vector<std::string_view> layout_attributes(std::string_view op_type) {
  if (op_type == "MatMul" || op_type == "Gemm") return {"transB"};
  if (op_type == "Conv") return {"group", "strides", "pads", "auto_pad", "dilations", "kernel_shape"};
  if (op_type == "MatMulInteger") return {"transB"};
  if (op_type == "ConvInteger") return {"group"};
  if (op_type == "MatMulNBits") return {"bits", "block_size"};
  if (op_type == "MatMulBlocks") return {"block_size", "transB"};
  if (op_type == "GRU") return {"linear_before_reset"};
  return {};
}

/// How a node's operand 1 lies in blocks, if its scales and zero points are known, too, and can be packed with it.
std::optional<BlockForm> fixed_blocks(const Node& node, const TensorDesc& weight) {
  const Value *scales = node.input(2), *zeros = node.input(3);
  if (!scales || !scales->is_fixed() || (zeros && !zeros->is_fixed())) return std::nullopt;
  return block_form(node, node.op_type, weight, {scales->dtype(), zeros ? zeros->dtype() : DType::undefined});
}

/// How a recurrence's weights are packed, if the matrices of its state are known, too.
std::optional<RecurrenceForm> fixed_recurrence(const Node& node, const TensorDesc& weight) {
  const Value* of_state = node.input(2);
  return of_state && of_state->is_fixed() ? recurrence_form(node, node.op_type, weight, of_state->dtype())
                                          : std::nullopt;
}

std::string key_of(const Attribute& attribute) {
  if (auto* integer = std::get_if<int64_t>(&attribute.value)) return fmt::format("{}={}", attribute.name, *integer);
  if (auto* text = std::get_if<std::string>(&attribute.value)) return fmt::format("{}={}", attribute.name, *text);
  if (auto* integers = std::get_if<std::vector<int64_t>>(&attribute.value))
    return fmt::format("{}={}", attribute.name, text_of(*integers));
  fail("kernel", "attribute '{}' is neither an integer, a string nor a list of integers", attribute.name);
}

}  // namespace

bool is_weight(const Value* value) {
  return value && value->kind == ValueKind::state && !value->changing;
}

std::optional<PackedLayout> packed_layout(const Node& node, const TensorDesc& weight) {
  PackedLayout packed;
  // In our domain: the operators that sum in float32, without the convolutions whose groups are an operand.
  const bool ours = node.domain == "tessera" && !node.input(3);
  if (const auto integers = node.domain.empty() ? integer_form(node, node.op_type, weight) : std::nullopt) {
    packed.bytes = integers->bytes();
  } else if (const auto blocks = fixed_blocks(node, weight)) {
    packed.bytes = static_cast<size_t>(blocks->weight.bytes());
    packed.beside = {2, 3};
  } else if (const auto form = node.domain.empty() ? fixed_recurrence(node, weight) : std::nullopt) {
    packed.bytes = static_cast<size_t>(form->directions) * form->direction_bytes();
    packed.beside = packed.spared = {2};
  } else if (node.domain.empty() || ours) {
    const auto layout = weight_layout(node, node.op_type, weight);
    if (!layout) return std::nullopt;
    packed.bytes = layout->bytes();
  } else {
    return std::nullopt;
  }
  if (packed.bytes == 0) return std::nullopt;
  packed.op_type = "Packed" + node.op_type;
  packed.use_attributes = {{"weight_dtype", std::string(name_of(weight.dtype)), {}}, {"weight_dims", weight.dims, {}}};
  packed.pack_attributes = {{"packs", node.op_type, {}}};
  for (std::string_view name : layout_attributes(node.op_type))
    if (const Attribute* attribute = node.find_attribute(name)) packed.pack_attributes.push_back(*attribute);
  for (const Attribute& attribute : packed.pack_attributes) packed.key += key_of(attribute) + ";";
  return packed;
}

std::unique_ptr<Kernel> prepare_pack_weight(const PrepareContext& context) {
  const TensorDesc& weight = context.inputs.at(0);
  const std::string packs = context.node.get_string("packs", "");
  if (const auto integers = integer_form(context.node, packs, weight))
    return prepare_pack_integers(*integers, weight.dtype, context.threads);
  const auto type_of = [&](size_t index) {
    return context.has_input(index) ? context.inputs[index].dtype : DType::undefined;
  };
  if (const auto blocks = block_form(context.node, packs, weight,
                                     {type_of(1), type_of(2), context.has_input(1) && context.inputs[1].count() == 1}))
    return prepare_pack_blocks(context, *blocks);
  if (const auto form = recurrence_form(context.node, packs, weight, type_of(1)))
    return prepare_pack_recurrence(context, *form);
  const auto layout = weight_layout(context.node, packs, weight);
  if (!layout || layout->bytes() != context.outputs.at(0).bytes())
    fail("kernel", "{}: this machine does not pack a {} weight for {} into {} bytes; rewrite the program for it",
         context.node.label(), name_of(weight.dtype), packs.empty() ? "an unnamed operator" : packs,
         context.outputs.at(0).bytes());
  ScratchPlan plan;
  const bool widened = layout->stored != weight.dtype;
  const size_t wide_at = plan.add(widened ? layout->plain.get_size() : 0);
  // A weight that is only widened keeps its layout; then the reorder is a copy.
  std::shared_ptr<onednn::Primitive> reorder = onednn::reorder(layout->plain, layout->packed, context.threads);
  const size_t inner_at = plan.add(reorder ? reorder->scratch_bytes() : 0);
  return make_kernel(
      [=, count = weight.count(), dtype = weight.dtype, threads = context.threads](const KernelArgs& args) {
        const void* plain = args.inputs[0];
        if (widened) {
          float* wide = reorder ? scratch_at<float>(args.scratch, wide_at) : args.out<float>();
          widen(dtype, plain, wide, count, threads);
          plain = wide;
        }
        if (reorder)
          reorder->run(std::array<const void*, 2>{plain, args.outputs[0]}, scratch_at(args.scratch, inner_at));
      },
      plan.bytes());
}

}  // namespace tessera::kernels
