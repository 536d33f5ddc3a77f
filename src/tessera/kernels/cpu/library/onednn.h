#pragma once

#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <span>
#include <vector>

#include "tessera/ir/tensor.h"

/// The only place that knows oneDNN's version. All other code sees descriptors, and primitives that take addresses.
namespace tessera::kernels::onednn {

using Md = dnnl::memory::desc;

/// The process's CPU engine.
dnnl::engine& engine();

/// oneDNN's type; undef if it has none.
dnnl::memory::data_type type_of(DType dtype);

/// Whether the library has matrix products of this type here: bfloat16 needs AVX-512, float16 its FP16 instructions and
/// oneDNN 3.
bool is_native(DType dtype);

/// Whether its products use Intel's matrix extensions (AMX) here.
bool has_amx();

/// Whether large products of this type take longer than those of operands widened to float32: those that the library
/// lacks, and those of bfloat16 where there is no AMX. Intel's VDPBF16PS runs every other cycle and multiplies and adds
/// 32 pairs, float32 instructions twice in a cycle 16 each; AMD's runs every cycle. CPUs without it emulate it.
bool is_faster_widened(DType dtype);

/// A dense row-major tensor, or one with the given strides (in elements).
Md dense(DType dtype, const Dims& dims);
Md strided(DType dtype, const Dims& dims, const Dims& strides);
/// A tensor whose layout the primitive may choose.
Md any_layout(DType dtype, const Dims& dims);

Dims dims_of(const Md& layout);

/// Sets the calling thread's OpenMP team while it lives. oneDNN sizes its work by the team, both when it makes a
/// primitive and when it runs one.
class TeamScope {
 public:
  explicit TeamScope(int threads);
  ~TeamScope();
  TeamScope(const TeamScope&) = delete;
  TeamScope& operator=(const TeamScope&) = delete;

 private:
  int before_;
};

/// A primitive together with the layouts of its arguments.
class Primitive {
 public:
  /// An argument that is always given: oneDNN's DNNL_ARG_… number and its layout.
  struct Argument {
    int id;
    Md layout;
  };

  Primitive(const dnnl::primitive& primitive, const Md& scratchpad, const std::vector<Argument>& arguments,
            int threads);

  /// Bytes of scratch memory that run() needs.
  size_t scratch_bytes() const { return scratch_bytes_; }
  /// `addresses` in the order of the arguments.
  void run(std::span<const void* const> addresses, void* scratch);

 private:
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  std::vector<dnnl::memory> memories_;      // the arguments', then the scratch memory
  std::vector<const void*> addresses_;      // that memories_ have now
  std::vector<dnnl_exec_arg_t> arguments_;  // refer to memories_
  size_t scratch_bytes_ = 0;
  int threads_ = 1;
};

/// Copies between layouts; null if they are the same.
std::unique_ptr<Primitive> reorder(const Md& from, const Md& to, int threads);

/// Windows of a convolution. `dilations` count from 1, as ONNX's do.
struct Windows {
  Dims strides, dilations, pads_begin, pads_end;
};

/// An operation that a primitive applies to its result before it stores it: a function of each element, or a sum or
/// product with the operand's element at the same place (repeated along dimensions of extent 1).
struct PostOp {
  dnnl::algorithm algorithm;
  float alpha = 0;
  Md operand = {};              ///< of binary_add and binary_mul
  bool held_by_result = false;  ///< of binary_add: the operand is the previous content of the result's memory
  /// Whether it reads an operand of its own.
  bool binary() const {
    return (algorithm == dnnl::algorithm::binary_add && !held_by_result) || algorithm == dnnl::algorithm::binary_mul;
  }
};
/// The argument number of the operand of post-op `index`.
int post_op_argument(size_t index);

/// Whether the primitive multiplies in tiles (AMX).
bool uses_amx(const dnnl::primitive_desc_base& desc);

// Primitive descriptors; nullopt if oneDNN has no implementation, or none better than its reference loops.
// `bias` may be an empty descriptor.
std::optional<dnnl::matmul::primitive_desc> matmul(const Md& a, const Md& b, const Md& bias, const Md& c,
                                                   const std::vector<PostOp>& then = {});
std::optional<dnnl::convolution_forward::primitive_desc> convolution(const Md& x, const Md& weights, const Md& bias,
                                                                     const Md& y, const Windows& windows,
                                                                     const std::vector<PostOp>& then = {});
std::optional<dnnl::pooling_forward::primitive_desc> pooling(dnnl::algorithm algorithm, const Md& x, const Md& y,
                                                             const Windows& windows, const Dims& kernel);
std::optional<dnnl::deconvolution_forward::primitive_desc> deconvolution(const Md& x, const Md& weights, const Md& bias,
                                                                         const Md& y, const Windows& windows);

}  // namespace tessera::kernels::onednn
