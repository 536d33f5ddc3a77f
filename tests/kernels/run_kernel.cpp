#include "kernels/run_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/float16.h"
#include "tessera/kernels/kernel.h"
#include "tessera/kernels/packing.h"

namespace tessera::kernels {
namespace {

constexpr std::byte unwritten{0xAB};

/// Memory aligned to 64 bytes, with a margin behind that must stay unwritten.
struct AlignedBuffer {
  explicit AlignedBuffer(size_t bytes) : bytes(bytes), storage(bytes + 2 * 64, unwritten) {}
  std::byte* data() {
    void* start = storage.data();
    size_t space = storage.size();
    return static_cast<std::byte*>(std::align(64, bytes + 64, start, space));
  }
  void check_margin(const std::string& what) {
    if (std::any_of(data() + bytes, data() + bytes + 64, [](std::byte byte) { return byte != unwritten; }))
      fail_running("test", "{} was written beyond its {} bytes", what, bytes);
  }
  size_t bytes;
  std::vector<std::byte> storage;
};

}  // namespace

std::vector<Tensor> run_kernel(const std::string& op_type, const std::vector<Tensor>& inputs,
                               const std::vector<std::pair<DType, Dims>>& outputs, const RunOptions& options) {
  const KernelEntry* entry = find_kernel(op_type, options.domain);
  if (!entry) fail_running("test", "no kernel for '{}'", op_type);

  Node node;
  node.op_type = op_type;
  node.domain = options.domain;
  node.name = "tested";
  for (const auto& [name, value] : options.attributes) node.set(name, value);
  Value result;  // stands for each of them, for messages to name
  result.name = "result";
  for (const auto& [dtype, dims] : outputs) node.outputs.push_back(dtype == DType::undefined ? nullptr : &result);

  PrepareContext context{.node = node};
#ifdef TESSERA_THREAD_SANITIZER
  context.threads = 1;  // libgomp's barriers are not instrumented
#else
  context.threads = options.threads;
#endif
  for (const Tensor& input : inputs) {
    const auto view = options.views.find(static_cast<int>(context.inputs.size()));
    if (view == options.views.end())
      context.inputs.push_back({input.dtype, input.dims});
    else
      context.inputs.push_back({input.dtype, view->second.dims, 0, view->second.strides});
    context.known.push_back(options.known && view == options.views.end() ? input.data : nullptr);
  }
  std::vector<Tensor> results;
  std::vector<AlignedBuffer> buffers;
  for (const auto& [dtype, dims] : outputs) {
    context.outputs.push_back({dtype, dims});
    const auto view = options.views.find(-1);
    if (context.outputs.size() == 1 && view != options.views.end()) context.outputs[0].strides = view->second.strides;
    results.push_back(dtype == DType::undefined ? Tensor{} : Tensor::zeros(dtype, dims));
    buffers.emplace_back(results.back().bytes);
  }

  std::vector<const void*> in;
  for (const Tensor& input : inputs) in.push_back(input.data);
  std::vector<void*> out;
  for (size_t i = 0; i < outputs.size(); ++i)
    out.push_back(results[i].dtype == DType::undefined ? nullptr : buffers[i].data());

  if (options.in_place >= 0) {
    if (std::find(entry->in_place.begin(), entry->in_place.end(), options.in_place) == entry->in_place.end())
      fail_running("test", "{} does not run in place of operand {}", op_type, options.in_place);
    const Tensor& taken = inputs.at(options.in_place);
    if (taken.bytes != results[0].bytes) fail_running("test", "an operand of another size cannot be taken over");
    if (taken.bytes > 0) std::memcpy(out[0], taken.data, taken.bytes);
    in[options.in_place] = out[0];
  }
  if (entry->view) {
    if (results[0].bytes > 0) std::memcpy(out[0], in[0], results[0].bytes);
  } else {
    auto kernel = entry->prepare(context);
    AlignedBuffer scratch(kernel->scratch_bytes());
    kernel->run({in, out, scratch.data()});
    scratch.check_margin("scratch memory of " + op_type);
    for (AlignedBuffer& buffer : buffers) buffer.check_margin("a result of " + op_type);
  }
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i].bytes > 0) std::memcpy(results[i].mutable_data(), out[i], results[i].bytes);
  return results;
}

Tensor run_kernel_one(const std::string& op_type, const std::vector<Tensor>& inputs, DType dtype, Dims dims,
                      const RunOptions& options) {
  return run_kernel(op_type, inputs, {{dtype, std::move(dims)}}, options).at(0);
}

Tensor booleans(Dims dims, const std::vector<int>& values) {
  std::vector<uint8_t> bytes(values.begin(), values.end());
  return Tensor::of(DType::boolean, std::move(dims), bytes);
}

Tensor narrowed(DType dtype, Dims dims, const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (float value : values) bits.push_back(dtype == DType::bfloat16 ? BFloat16(value).bits : Float16(value).bits);
  return Tensor::of(dtype, std::move(dims), bits);
}

std::vector<float> widened(const Tensor& tensor) {
  std::vector<float> values;
  for (uint16_t bits : tensor.as<uint16_t>()) {
    BFloat16 brain;
    Float16 half;
    brain.bits = half.bits = bits;
    values.push_back(tensor.dtype == DType::bfloat16 ? static_cast<float>(brain) : static_cast<float>(half));
  }
  return values;
}

Tensor packed_weight(const PackedLayout& layout, const std::vector<Tensor>& operands) {
  std::vector<TensorDesc> types;
  std::vector<const void*> in;
  for (const Tensor& operand : operands) {
    types.push_back({operand.dtype, operand.dims});
    in.push_back(operand.data);
  }
  const std::unique_ptr<Kernel> kernel = layout.prepare(types, 1);
  Tensor packed = Tensor::zeros(DType::uint8, {static_cast<int64_t>(layout.bytes)});
  AlignedBuffer scratch(kernel->scratch_bytes());
  void* out = packed.mutable_data();
  kernel->run({in, std::span(&out, 1), scratch.data()});
  scratch.check_margin("scratch memory of " + layout.op_type);
  return packed;
}

Tensor run_packed_product(const std::string& op_type, const std::string& domain, std::vector<Tensor> inputs,
                          DType dtype, Dims dims, const Attributes& attributes, int threads) {
  Graph graph;
  Node node;
  node.op_type = op_type;
  node.domain = domain;
  for (const auto& [name, value] : attributes) node.set(name, value);
  for (size_t i = 0; i < inputs.size(); ++i)
    node.inputs.push_back(inputs[i].dtype == DType::undefined ? nullptr
                                                              : graph.add_state("s" + std::to_string(i), inputs[i]));
  const auto layout = packed_layout(node, {inputs[1].dtype, inputs[1].dims});
  EXPECT_TRUE(layout.has_value());
  if (!layout) return {};
  RunOptions use{.attributes = attributes, .domain = "tessera.cpu", .threads = threads};
  for (const Attribute& attribute : layout->use_attributes) use.attributes[attribute.name] = attribute.value;
  std::vector<Tensor> packs = {inputs[1]};
  for (const size_t index : layout->beside) packs.push_back(index < inputs.size() ? inputs[index] : Tensor());
  inputs[1] = packed_weight(*layout, packs);
  return run_kernel_one(layout->op_type, inputs, dtype, std::move(dims), use);
}

}  // namespace tessera::kernels
