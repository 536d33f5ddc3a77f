#include "tessera/kernels/cpu/library/onednn.h"

#include <omp.h>

#include <mutex>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/kernels/cpu/library/teams.h"
#include "tessera/kernels/versions.h"

namespace tessera::kernels::onednn {
namespace {

/// Scratch memory comes from the executor's plan, not from oneDNN's allocator.
dnnl::primitive_attr with_our_scratch(const std::vector<PostOp>& then = {}) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops ops;
  for (const PostOp& op : then) {
    if (op.held_by_result)
      ops.append_sum(1);
    else if (op.binary())
      ops.append_binary(op.algorithm, op.operand);
    else
#if DNNL_VERSION_MAJOR < 3
      ops.append_eltwise(1, op.algorithm, op.alpha, 0);
#else
      ops.append_eltwise(op.algorithm, op.alpha, 0);
#endif
  }
  attributes.set_post_ops(ops);
  return attributes;
}

/// oneDNN refuses what it does not implement by throwing; its reference loops, named "ref…", count as not implemented.
template <typename Make>
auto implemented(Make make) -> std::optional<decltype(make())> {
  try {
    auto made = make();
    if (std::string_view(made.impl_info_str()).starts_with("ref")) return std::nullopt;
    return made;
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented || error.status == dnnl_invalid_arguments) return std::nullopt;
    throw;
  }
}

/// Held while a descriptor is made. oneDNN 2.6 chooses a convolution's blocks by way of variables of the whole process:
/// if two threads describe convolutions of float32 and bfloat16 at once, one may get a descriptor whose primitives read
/// weights at wrong places, in all later runs, too, since the library keeps primitives.
std::mutex& describing() {
  static std::mutex one_at_a_time;
  return one_at_a_time;
}

/// Makes the primitive descriptor from a descriptor (oneDNN 2), or directly from its arguments (oneDNN 3).
template <typename Operation, typename... Arguments>
typename Operation::primitive_desc describe(const dnnl::primitive_attr& attributes, const Arguments&... arguments) {
  const std::lock_guard lock(describing());
#if DNNL_VERSION_MAJOR < 3
  return {typename Operation::desc(arguments...), attributes, engine()};
#else
  return {engine(), arguments..., attributes};
#endif
}

Dims from_zero(Dims dilations) {
  for (int64_t& dilation : dilations) --dilation;
  return dilations;
}

bool is_empty(const Md& layout) {
  return layout.get_size() == 0;
}

template <typename Operation>
std::optional<typename Operation::primitive_desc> windowed(dnnl::algorithm algorithm, const Md& x, const Md& weights,
                                                           const Md& bias, const Md& y, const Windows& windows,
                                                           const std::vector<PostOp>& then = {}) {
  const auto kind = dnnl::prop_kind::forward_inference;
  const Dims dilations = from_zero(windows.dilations);
  return implemented([&] {
    return is_empty(bias) ? describe<Operation>(with_our_scratch(then), kind, algorithm, x, weights, y, windows.strides,
                                                dilations, windows.pads_begin, windows.pads_end)
                          : describe<Operation>(with_our_scratch(then), kind, algorithm, x, weights, bias, y,
                                                windows.strides, dilations, windows.pads_begin, windows.pads_end);
  });
}

}  // namespace

dnnl::engine& engine() {
  // Never destroyed: memories and streams of executors may outlive main().
  static dnnl::engine& engine = *new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::memory::data_type type_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return dnnl::memory::data_type::f32;
    case DType::bfloat16:
      return dnnl::memory::data_type::bf16;
    case DType::float16:
      return dnnl::memory::data_type::f16;
    case DType::uint8:
      return dnnl::memory::data_type::u8;
    case DType::int8:
      return dnnl::memory::data_type::s8;
    case DType::int32:
      return dnnl::memory::data_type::s32;
    default:
      return dnnl::memory::data_type::undef;
  }
}

namespace {

/// What the library has for products of one type.
struct Products {
  bool native = false;
  bool slow = false;  ///< they take longer than those of operands widened to float32
};

Products products_of(DType dtype) {
  const Md square = dense(dtype, {256, 256});
  const auto product = matmul(square, square, {}, square);
  if (!product) return {false, bits_of(dtype) == 16};
  const std::string_view name = product->impl_info_str();
  if (dtype != DType::bfloat16 || name.find("amx") != std::string_view::npos) return {true, false};
#if defined(__x86_64__)
  __builtin_cpu_init();
  return {true, name.find("bf16") == std::string_view::npos || __builtin_cpu_is("intel")};
#else
  return {true, false};
#endif
}

const Products& known_products_of(DType dtype) {
  static const Products none, bfloat16 = products_of(DType::bfloat16), float16 = products_of(DType::float16);
  return dtype == DType::bfloat16 ? bfloat16 : dtype == DType::float16 ? float16 : none;
}

}  // namespace

bool is_native(DType dtype) {
  return dtype == DType::float32 || known_products_of(dtype).native;
}

bool has_amx() {
  constexpr unsigned kAmx = dnnl_cpu_isa_avx512_core_amx;  // bits, those of what it builds on among them
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & kAmx) == kAmx;
}

bool is_faster_widened(DType dtype) {
  return known_products_of(dtype).slow;
}

Md dense(DType dtype, const Dims& dims) {
  Dims strides(dims.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0; stride *= dims[i]) strides[i] = stride;
  return strided(dtype, dims, strides);
}

Md strided(DType dtype, const Dims& dims, const Dims& strides) {
  return {dims, type_of(dtype), strides};
}

Md any_layout(DType dtype, const Dims& dims) {
  return {dims, type_of(dtype), dnnl::memory::format_tag::any};
}

Dims dims_of(const Md& layout) {
#if DNNL_VERSION_MAJOR < 3
  return layout.dims();
#else
  return layout.get_dims();
#endif
}

TeamScope::TeamScope(int threads) : before_(omp_get_max_threads()) {
  omp_set_num_threads(threads);
}
TeamScope::~TeamScope() {
  omp_set_num_threads(before_);
}

Primitive::Primitive(const dnnl::primitive& primitive, const Md& scratchpad, const std::vector<Argument>& arguments,
                     int threads)
    : primitive_(primitive), stream_(engine()), scratch_bytes_(scratchpad.get_size()), threads_(threads) {
  for (const Argument& argument : arguments)
    memories_.push_back(dnnl::memory(argument.layout, engine(), DNNL_MEMORY_NONE));
  memories_.push_back(dnnl::memory(scratchpad, engine(), DNNL_MEMORY_NONE));
  for (size_t i = 0; i < arguments.size(); ++i) arguments_.push_back({arguments[i].id, memories_[i].get()});
  arguments_.push_back({DNNL_ARG_SCRATCHPAD, memories_.back().get()});
  addresses_.resize(memories_.size());
}

void Primitive::run(std::span<const void* const> addresses, void* scratch) {
  if (threads_ > 1) heed_other_work(threads_);
  TeamScope team(threads_);
  auto place = [&](size_t index, const void* address) {
    // Setting an address makes some versions clear a layout's padding, which must not happen to shared weights at every
    // run.
    if (addresses_[index] == address) return;
    memories_[index].set_data_handle(const_cast<void*>(address));
    addresses_[index] = address;
  };
  for (size_t i = 0; i < addresses.size(); ++i) place(i, addresses[i]);
  if (scratch_bytes_ > 0) place(memories_.size() - 1, scratch);
  const dnnl_status_t status =
      dnnl_primitive_execute(primitive_.get(), stream_.get(), static_cast<int>(arguments_.size()), arguments_.data());
  if (status != dnnl_success) fail_running("kernel", "oneDNN could not run a primitive (status {})", int(status));
}

std::unique_ptr<Primitive> reorder(const Md& from, const Md& to, int threads) {
  if (from == to) return nullptr;
  TeamScope team(threads);
  const dnnl::reorder::primitive_desc desc(engine(), from, engine(), to, with_our_scratch());
  return std::make_unique<Primitive>(dnnl::reorder(desc), desc.scratchpad_desc(),
                                     std::vector<Primitive::Argument>{{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}},
                                     threads);
}

int post_op_argument(size_t index) {
  return DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(index)) | DNNL_ARG_SRC_1;
}

std::optional<dnnl::matmul::primitive_desc> matmul(const Md& a, const Md& b, const Md& bias, const Md& c,
                                                   const std::vector<PostOp>& then) {
  return implemented([&] {
    const dnnl::primitive_attr attributes = with_our_scratch(then);
    return is_empty(bias) ? describe<dnnl::matmul>(attributes, a, b, c)
                          : describe<dnnl::matmul>(attributes, a, b, bias, c);
  });
}

std::optional<dnnl::convolution_forward::primitive_desc> convolution(const Md& x, const Md& weights, const Md& bias,
                                                                     const Md& y, const Windows& windows,
                                                                     const std::vector<PostOp>& then) {
  return windowed<dnnl::convolution_forward>(dnnl::algorithm::convolution_direct, x, weights, bias, y, windows, then);
}

std::optional<dnnl::pooling_forward::primitive_desc> pooling(dnnl::algorithm algorithm, const Md& x, const Md& y,
                                                             const Windows& windows, const Dims& kernel) {
  const auto kind = dnnl::prop_kind::forward_inference;
  return implemented([&] {
#if DNNL_VERSION_MAJOR < 3
    return describe<dnnl::pooling_forward>(with_our_scratch(), kind, algorithm, x, y, windows.strides, kernel,
                                           windows.pads_begin, windows.pads_end);
#else
    return describe<dnnl::pooling_forward>(with_our_scratch(), kind, algorithm, x, y, windows.strides, kernel,
                                           from_zero(windows.dilations), windows.pads_begin, windows.pads_end);
#endif
  });
}

bool uses_amx(const dnnl::primitive_desc_base& desc) {
  return std::string_view(desc.impl_info_str()).find("amx") != std::string_view::npos;
}

std::optional<dnnl::deconvolution_forward::primitive_desc> deconvolution(const Md& x, const Md& weights, const Md& bias,
                                                                         const Md& y, const Windows& windows) {
  auto desc =
      windowed<dnnl::deconvolution_forward>(dnnl::algorithm::deconvolution_direct, x, weights, bias, y, windows);
  // The one for AMX multiplies what a window does not reach by zero, which makes NaNs of infinities.
  return desc && uses_amx(*desc) ? std::nullopt : desc;
}

}  // namespace tessera::kernels::onednn

namespace tessera::kernels {

std::map<std::string, std::string> library_versions() {
  const dnnl_version_t* version = dnnl_version();
  return {{"oneDNN", fmt::format("{}.{}.{}", version->major, version->minor, version->patch)}};
}

}  // namespace tessera::kernels
