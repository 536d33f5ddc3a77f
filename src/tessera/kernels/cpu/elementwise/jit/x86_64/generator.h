#pragma once

#include <xbyak/xbyak.h>

#include <map>
#include <memory>

#include "tessera/kernels/cpu/elementwise/jit/chain.h"
#include "tessera/kernels/cpu/elementwise/jit/registers.h"

namespace tessera::kernels::jit {

/// Writes the machine code of a chain. In registers, elements of 16-bit floats are float32, and booleans are 32 bits,
/// of which all or none are set. One pass of the loop computes a register of elements; a target's way through the rest
/// differs. Fixed operands wait in the stack frame, since there are more of them than registers.
class Generator : public Xbyak::CodeGenerator {
 public:
  static constexpr int most_streams = 10;  ///< operands and results that go by: each needs a pointer
  static constexpr int temporaries = 6;    ///< vector registers that hold no value of the chain

  /// The function, executable and no longer writable.
  template <typename Code>
  Code finish() {
    generate();
    ready(PROTECT_RE);
    return getCode<Code>();
  }

 protected:
  using Vector = Xbyak::Xmm;  // of any width
  using Address = Xbyak::RegExp;

  Generator(const Chain& chain, Xbyak::Operand::Kind width, int lanes, int lanes_of_rest)
      : CodeGenerator(4096, Xbyak::AutoGrow),
        chain_(chain),
        registers_(chain),
        width_(width),
        lanes_(lanes),
        lanes_of_rest_(lanes_of_rest) {}

  /// Prepares passes over the rest for as many elements as the register says, or lanes_of_rest if there are more. May
  /// change the register `temporary`.
  virtual void begin_rest(const Xbyak::Reg64& elements) = 0;
  /// Reads elements as they are in registers. May change `temporary` and the last two vectors of temporaries.
  virtual void load(const Vector& to, DType dtype, const Address& from, bool rest) = 0;
  /// Writes elements. May change the last two vectors of temporaries.
  virtual void store(DType dtype, const Address& to, const Vector& from, bool rest) = 0;
  /// out = compare(a, b) ? yes : no, by the predicate of the comparing instruction. May change vector 5.
  virtual void select_where(const Vector& out, int predicate, const Vector& a, const Vector& b, const Vector& yes,
                            const Vector& no) = 0;
  /// out = condition ? yes : no, for a boolean in the form of registers.
  virtual void select(const Vector& out, const Vector& condition, const Vector& yes, const Vector& no) = 0;

  static constexpr int is_unordered = 3, is_greater_or_equal = 13;  // predicates

  Vector vector(int number) const { return Vector(width_, number); }
  /// The register of half the width.
  Vector half(const Vector& of) const {
    return Vector(width_ == Xbyak::Operand::ZMM ? Xbyak::Operand::YMM : Xbyak::Operand::XMM, of.getIdx());
  }
  /// Repeats 32 bits.
  void set(const Vector& to, uint32_t bits);
  /// Widens float16, given as 16 bits in 32; may change vectors 3 to 5.
  void widen_float16(const Vector& value);

  const Xbyak::Reg64 index = rax, count = rdx, temporary = rcx;

 private:
  void generate();
  void put_fixed_into_frame();
  void pass(bool rest);
  void step(const Chain::Step& step, const Vector& out);
  void round(DType dtype, const Vector& value);
  Vector value(int place, int number);
  Address at(const Xbyak::Reg64& start, DType dtype) const;

  const Chain chain_;
  const Registers registers_;
  const Xbyak::Operand::Kind width_;
  const int lanes_, lanes_of_rest_;
  std::vector<Xbyak::Reg64> operand_starts_, result_starts_;  // of fixed ones: unused
  std::map<uint32_t, Xbyak::Label> constants_;
};

std::unique_ptr<Generator> avx2_generator(const Chain& chain);
std::unique_ptr<Generator> avx512_generator(const Chain& chain);

}  // namespace tessera::kernels::jit
