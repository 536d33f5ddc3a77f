#include "tessera/kernels/cpu/elementwise/jit/x86_64/generator.h"

namespace tessera::kernels::jit {
namespace {

/// 16 elements a pass; the rest is one pass under a mask.
class Avx512Generator : public Generator {
 public:
  explicit Avx512Generator(const Chain& chain) : Generator(chain, Xbyak::Operand::ZMM, 16, 16) {}

 private:
  void begin_rest(const Xbyak::Reg64& elements) override {
    const Xbyak::Reg32 mask = temporary.cvt32();
    mov(mask, 0xffff);
    bzhi(mask, mask, elements.cvt32());
    kmovd(rest_, mask);
  }

  void load(const Vector& to, DType dtype, const Address& from, bool rest) override {
    const Vector target = rest ? to | rest_ | T_z : to;
    if (dtype == DType::float32) {
      vmovups(target, ptr[from]);
    } else if (dtype == DType::boolean) {
      vpmovzxbd(target, ptr[from]);
      vptestmd(chosen_, to, to);
      vpmovm2d(to, chosen_);
    } else {
      vpmovzxwd(target, ptr[from]);
      if (dtype == DType::bfloat16)
        vpslld(to, to, 16);
      else
        widen_float16(to);
    }
  }

  void store(DType dtype, const Address& to, const Vector& from, bool rest) override {
    const Xbyak::Address target = rest ? ptr[to] | rest_ : ptr[to];
    if (dtype == DType::float32) {
      vmovups(target, from);
    } else if (dtype == DType::bfloat16) {
      const Vector bits = vector(temporaries - 1);
      vpsrld(bits, from, 16);
      vpmovdw(target, bits);
    } else {
      vcvtps2ph(target, from, 0);
    }
  }

  void select_where(const Vector& out, int predicate, const Vector& a, const Vector& b, const Vector& yes,
                    const Vector& no) override {
    vcmpps(chosen_, a, b, predicate);
    vblendmps(out | chosen_, no, yes);
  }

  void select(const Vector& out, const Vector& condition, const Vector& yes, const Vector& no) override {
    vpmovd2m(chosen_, condition);
    vblendmps(out | chosen_, no, yes);
  }

  const Xbyak::Opmask rest_ = k1, chosen_ = k2;
};

}  // namespace

std::unique_ptr<Generator> avx512_generator(const Chain& chain) {
  return std::make_unique<Avx512Generator>(chain);
}

}  // namespace tessera::kernels::jit
