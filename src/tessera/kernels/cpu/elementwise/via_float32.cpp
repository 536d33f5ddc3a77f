#include "tessera/kernels/cpu/elementwise/via_float32.h"

#include <algorithm>

#include "tessera/base/multiversion.h"
#include "tessera/kernels/cpu/library/dispatch.h"
#include "tessera/kernels/cpu/library/scratch.h"
#include "tessera/kernels/cpu/move/strided_copy.h"

namespace tessera::kernels {
namespace {

TESSERA_MULTIVERSION void widen_chunk(const BFloat16* source, float* target, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) target[i] = static_cast<float>(source[i]);
}
TESSERA_MULTIVERSION void widen_chunk(const Float16* source, float* target, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) target[i] = static_cast<float>(source[i]);
}
void widen_chunk(const float* source, float* target, int64_t count) {
  std::copy_n(source, count, target);
}

// Stores of whole structures do not vectorise; stores of their bits do.
TESSERA_MULTIVERSION void narrow_piece(const float* source, BFloat16* target, int64_t count) {
  uint16_t* bits = &target->bits;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) bits[i] = BFloat16(source[i]).bits;
}
TESSERA_MULTIVERSION void narrow_piece(const float* source, Float16* target, int64_t count) {
  uint16_t* bits = &target->bits;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) bits[i] = Float16(source[i]).bits;
}
void narrow_piece(const float* source, float* target, int64_t count) {
  std::copy_n(source, count, target);
}

/// Calls visit(begin, size) for pieces of [0, count) on the team.
template <typename Visit>
void in_chunks(int64_t count, int threads, Visit visit) {
  constexpr int64_t chunk = 8192;
  const int64_t chunks = (count + chunk - 1) / chunk;
#pragma omp parallel for num_threads(team_for(count, threads)) schedule(static)
  for (int64_t i = 0; i < chunks; ++i) visit(i * chunk, std::min(chunk, count - i * chunk));
}

template <typename Visit>
void with_type(DType dtype, Visit visit) {
  switch (dtype) {
    case DType::bfloat16:
      return visit.template operator()<BFloat16>();
    case DType::float16:
      return visit.template operator()<Float16>();
    case DType::float32:
      return visit.template operator()<float>();
    default:
      check(false, "only 16-bit floats are widened and narrowed");
  }
}

bool is_narrow(DType dtype) {
  return dtype == DType::bfloat16 || dtype == DType::float16;
}

/// A 16-bit operand or result: its place in the node, its type and its float32 form in scratch memory.
struct Converted {
  size_t index;
  DType dtype;
  int64_t count;
  size_t at;
  std::optional<StridedCopy> gather = {};  ///< an operand that is strided: makes it dense at `gathered_at` first
  size_t gathered_at = 0;
};

class ViaFloat32 : public Kernel {
 public:
  ViaFloat32(const PrepareContext& context, KernelFactory prepare)
      : threads_(context.threads), input_pointers_(context.inputs.size()), output_pointers_(context.outputs.size()) {
    PrepareContext wide = context;
    inputs_ = convert(wide.inputs);
    for (const Converted& input : inputs_)
      if (input.index < wide.known.size()) wide.known[input.index] = nullptr;
    for (Converted& input : inputs_) {
      TensorDesc& desc = wide.inputs[input.index];
      // Where the dimensions only change places, the same strides hold for the wide form.
      if (desc.strides.empty() || fills_its_span(desc)) continue;
      input.gather.emplace(view_of(desc));
      input.gathered_at = plan_.add(context.inputs[input.index].bytes());
      desc.strides.clear();
    }
    outputs_ = convert(wide.outputs);
    inner_ = prepare(wide);
    inner_scratch_at_ = plan_.add(inner_->scratch_bytes());
  }

  size_t scratch_bytes() const override { return plan_.bytes(); }

  void run(const KernelArgs& args) override {
    check(args.inputs.size() == input_pointers_.size() && args.outputs.size() == output_pointers_.size(),
          "a kernel runs with the operands that it was prepared for");
    std::copy(args.inputs.begin(), args.inputs.end(), input_pointers_.begin());
    std::copy(args.outputs.begin(), args.outputs.end(), output_pointers_.begin());
    for (const Converted& input : inputs_) {
      float* wide = scratch_at<float>(args.scratch, input.at);
      const void* given = args.inputs[input.index];
      if (input.gather) {
        uint16_t* gathered = scratch_at<uint16_t>(args.scratch, input.gathered_at);
        input.gather->run(static_cast<const uint16_t*>(given), gathered, threads_);
        given = gathered;
      }
      widen(input.dtype, given, wide, input.count, threads_);
      input_pointers_[input.index] = wide;
    }
    for (const Converted& output : outputs_) output_pointers_[output.index] = scratch_at(args.scratch, output.at);
    inner_->run({input_pointers_, output_pointers_, scratch_at(args.scratch, inner_scratch_at_)});
    for (const Converted& output : outputs_)
      narrow(scratch_at<float>(args.scratch, output.at), output.dtype, args.outputs[output.index], output.count,
             threads_);
  }

 private:
  static bool fills_its_span(const TensorDesc& desc) {
    int64_t span = 1;
    for (size_t d = 0; d < desc.dims.size(); ++d) {
      if (desc.strides[d] <= 0 && desc.dims[d] != 1) return false;
      span += desc.strides[d] * (desc.dims[d] - 1);
    }
    return span == desc.count();
  }

  /// Turns the 16-bit ones of `descs` into float32 and plans their memory.
  std::vector<Converted> convert(std::vector<TensorDesc>& descs) {
    std::vector<Converted> converted;
    for (size_t i = 0; i < descs.size(); ++i) {
      if (!is_narrow(descs[i].dtype)) continue;
      converted.push_back({i, descs[i].dtype, descs[i].count(), 0});
      descs[i].dtype = DType::float32;
      converted.back().at = plan_.add(descs[i].bytes());
    }
    return converted;
  }

  int threads_;
  std::vector<const void*> input_pointers_;
  std::vector<void*> output_pointers_;
  ScratchPlan plan_;
  std::vector<Converted> inputs_, outputs_;
  std::unique_ptr<Kernel> inner_;
  size_t inner_scratch_at_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> via_float32(const PrepareContext& context, KernelFactory prepare) {
  return std::make_unique<ViaFloat32>(context, prepare);
}

void widen(DType from, const void* source, float* target, int64_t count, int threads) {
  with_type(from, [&]<typename T>() {
    in_chunks(count, threads, [&](int64_t begin, int64_t size) {
      widen_chunk(static_cast<const T*>(source) + begin, target + begin, size);
    });
  });
}

void narrow(const float* source, DType to, void* target, int64_t count, int threads) {
  with_type(to, [&]<typename T>() {
    in_chunks(count, threads, [&](int64_t begin, int64_t size) {
      narrow_piece(source + begin, static_cast<T*>(target) + begin, size);
    });
  });
}

void widen_row(const BFloat16* source, float* target, int64_t count) {
  widen_chunk(source, target, count);
}
void widen_row(const Float16* source, float* target, int64_t count) {
  widen_chunk(source, target, count);
}
void narrow_row(const float* source, BFloat16* target, int64_t count) {
  narrow_piece(source, target, count);
}
void narrow_row(const float* source, Float16* target, int64_t count) {
  narrow_piece(source, target, count);
}

}  // namespace tessera::kernels
