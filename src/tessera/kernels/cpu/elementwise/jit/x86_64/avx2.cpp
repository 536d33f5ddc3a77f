#include "tessera/kernels/cpu/elementwise/jit/x86_64/generator.h"

namespace tessera::kernels::jit {
namespace {

/// 8 elements a pass; the rest passes one by one, since 16-bit elements have no masks.
class Avx2Generator : public Generator {
 public:
  explicit Avx2Generator(const Chain& chain) : Generator(chain, Xbyak::Operand::YMM, 8, 1) {}

 private:
  void begin_rest(const Xbyak::Reg64&) override {}

  void load(const Vector& to, DType dtype, const Address& from, bool rest) override {
    const Xbyak::Xmm one(to.getIdx());
    if (dtype == DType::float32) {
      if (rest)
        vmovss(one, ptr[from]);
      else
        vmovups(to, ptr[from]);
    } else if (dtype == DType::boolean) {
      if (rest)
        load_one(one, byte[from]);
      else
        vpmovzxbd(to, ptr[from]);
      const Vector zero = vector(temporaries - 1);
      vpxor(zero, zero, zero);
      vpcmpgtd(to, to, zero);
    } else {
      if (rest)
        load_one(one, word[from]);
      else
        vpmovzxwd(to, ptr[from]);
      if (dtype == DType::bfloat16)
        vpslld(to, to, 16);
      else
        widen_float16(to);
    }
  }

  void load_one(const Xbyak::Xmm& to, const Xbyak::Address& from) {
    movzx(temporary.cvt32(), from);
    vmovd(to, temporary.cvt32());
  }

  void store(DType dtype, const Address& to, const Vector& from, bool rest) override {
    if (dtype == DType::float32) {
      if (rest)
        vmovss(ptr[to], Xbyak::Xmm(from.getIdx()));
      else
        vmovups(ptr[to], from);
      return;
    }
    const Xbyak::Xmm low(temporaries - 1), high(temporaries - 2);
    if (dtype == DType::bfloat16) {
      const Vector bits = vector(low.getIdx());
      vpsrld(bits, from, 16);
      vextracti128(high, Xbyak::Ymm(bits.getIdx()), 1);
      vpackusdw(low, low, high);
    } else {
      vcvtps2ph(low, Xbyak::Ymm(from.getIdx()), 0);
    }
    if (rest)
      vpextrw(word[to], low, 0);
    else
      vmovdqu(ptr[to], low);
  }

  void select_where(const Vector& out, int predicate, const Vector& a, const Vector& b, const Vector& yes,
                    const Vector& no) override {
    const Vector chosen = vector(temporaries - 1);
    vcmpps(chosen, a, b, predicate);
    vblendvps(out, no, yes, chosen);
  }

  void select(const Vector& out, const Vector& condition, const Vector& yes, const Vector& no) override {
    vblendvps(out, no, yes, condition);
  }
};

}  // namespace

std::unique_ptr<Generator> avx2_generator(const Chain& chain) {
  return std::make_unique<Avx2Generator>(chain);
}

}  // namespace tessera::kernels::jit
