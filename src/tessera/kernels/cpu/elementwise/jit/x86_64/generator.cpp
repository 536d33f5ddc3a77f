#include "tessera/kernels/cpu/elementwise/jit/x86_64/generator.h"

#include "tessera/base/error.h"

namespace tessera::kernels::jit {

using Xbyak::Reg64;

namespace {

// Vectors 0 to 2 hold a step's fixed operands, 3 to 5 what it computes on the way.
constexpr int kFixed = 3;

}  // namespace

/// Push, fixed operands, pointers; passes of a whole register; passes over the rest; pop; constants.
void Generator::generate() {
  const Reg64 starts[most_streams] = {r8, r9, r10, r11, rbx, rbp, r12, r13, r14, r15};
  const Reg64 saved[] = {rbx, rbp, r12, r13, r14, r15};
  const Reg64 operands = rdi, results = rsi;  // as the System V ABI passes them
  const auto frame = static_cast<int>(chain_.operands.size() * 4 + 15) / 16 * 16;
  for (const Reg64& reg : saved) push(reg);
  sub(rsp, frame);
  put_fixed_into_frame();

  size_t streams = 0;
  for (size_t i = 0; i < chain_.operands.size(); ++i) {
    operand_starts_.push_back(starts[chain_.operands[i].fixed ? 0 : streams++]);
    if (!chain_.operands[i].fixed) mov(operand_starts_[i], ptr[operands + 8 * i]);
  }
  size_t stored = 0;
  for (const Chain::Step& step : chain_.steps) {
    result_starts_.push_back(starts[step.stored ? streams++ : 0]);
    if (step.stored) mov(result_starts_.back(), ptr[results + 8 * stored++]);
  }
  check(streams <= most_streams, "a chain has as many streams as pointers");

  Xbyak::Label whole, rest, pass_over_rest, done;
  const Reg64 end = operands;  // of whole passes
  xor_(index, index);
  mov(end, count);
  and_(end, -lanes_);
  jz(rest, T_NEAR);
  align(32);
  L(whole);
  pass(false);
  add(index, lanes_);
  cmp(index, end);
  jb(whole, T_NEAR);
  L(rest);
  sub(end, count);
  jz(done, T_NEAR);
  neg(end);
  begin_rest(end);
  L(pass_over_rest);
  pass(true);
  add(index, lanes_of_rest_);
  cmp(index, count);
  jb(pass_over_rest, T_NEAR);
  L(done);
  vzeroupper();
  add(rsp, frame);
  for (auto reg = std::rbegin(saved); reg != std::rend(saved); ++reg) pop(*reg);
  ret();
  align(4);
  for (auto& [bits, label] : constants_) {
    L(label);
    dd(bits);
  }
}

// Operand i lies at 4 i, in the form of registers.
void Generator::put_fixed_into_frame() {
  mov(index, 1);
  begin_rest(index);
  for (size_t i = 0; i < chain_.operands.size(); ++i) {
    if (!chain_.operands[i].fixed) continue;
    mov(temporary, ptr[rdi + 8 * i]);
    load(vector(0), chain_.operands[i].dtype, temporary, true);
    vmovss(ptr[rsp + 4 * i], Xbyak::Xmm(0));
  }
}

void Generator::pass(bool rest) {
  std::vector<bool> loaded(chain_.operands.size(), false);
  for (size_t s = 0; s < chain_.steps.size(); ++s) {
    const Chain::Step& made = chain_.steps[s];
    for (int place : made.operands) {
      if (place < 0 || chain_.operands[place].fixed || loaded[place]) continue;
      const DType dtype = chain_.operands[place].dtype;
      load(value(place, 0), dtype, at(operand_starts_[place], dtype), rest);
      loaded[place] = true;
    }
    const Vector out = value(~static_cast<int>(s), 0);
    step(made, out);
    if (made.operation != Operation::where) round(made.dtype, out);
    if (made.stored) store(made.dtype, at(result_starts_[s], made.dtype), out, rest);
  }
}

void Generator::step(const Chain::Step& step, const Vector& out) {
  const Vector first = value(step.operands[0], 0), inner = vector(kFixed);
  const auto combine_all = [&](auto&& combine) {
    vmovaps(out, first);
    for (size_t i = 1; i < step.operands.size(); ++i) combine(value(step.operands[i], 1));
  };
  switch (step.operation) {
    case Operation::add:
      return combine_all([&](const Vector& other) { vaddps(out, out, other); });
    case Operation::sub:
      return vsubps(out, first, value(step.operands[1], 1));
    case Operation::mul:
      return vmulps(out, first, value(step.operands[1], 1));
    case Operation::div:
      return vdivps(out, first, value(step.operands[1], 1));
    // The instruction gives its second operand where one is NaN, and where both are zeros; the kernels' NaN wins.
    case Operation::min:
      return combine_all([&](const Vector& other) {
        vminps(inner, out, other);
        select_where(out, is_unordered, out, out, out, inner);
      });
    case Operation::max:
      return combine_all([&](const Vector& other) {
        vmaxps(inner, out, other);
        select_where(out, is_unordered, out, out, out, inner);
      });
    case Operation::neg:
      set(inner, 0x80000000u);
      return vxorps(out, first, inner);
    case Operation::abs:
      set(inner, 0x7fffffffu);
      return vandps(out, first, inner);
    case Operation::sqrt:
      return vsqrtps(out, first);
    case Operation::reciprocal:
      set(inner, 0x3f800000u);
      return vdivps(out, inner, first);
    case Operation::relu:
      vxorps(inner, inner, inner);
      return vmaxps(out, inner, first);  // gives `first` where it is NaN or a zero
    case Operation::where:
      return select(out, first, value(step.operands[1], 1), value(step.operands[2], 2));
    case Operation::cast:
      return vmovaps(out, first);  // is rounded after it
  }
}

/// To nearest even, as BFloat16 and Float16 do (base/float16.h): an own instruction for bfloat16 would lose denormals.
void Generator::round(DType dtype, const Vector& value) {
  if (dtype == DType::float16) {
    const Vector narrow = half(vector(kFixed));
    vcvtps2ph(narrow, value, 0);
    vcvtph2ps(value, narrow);
  }
  if (dtype != DType::bfloat16) return;
  const Vector rounded = vector(kFixed), inner = vector(kFixed + 1);
  set(inner, 1);
  vpsrld(rounded, value, 16);
  vandps(rounded, rounded, inner);
  set(inner, 0x7fffu);
  vpaddd(rounded, rounded, inner);
  vpaddd(rounded, rounded, value);
  set(inner, 0x400000u);
  vorps(inner, inner, value);
  select_where(value, is_unordered, value, value, inner, rounded);
  set(inner, 0xffff0000u);
  vandps(value, value, inner);
}

void Generator::widen_float16(const Vector& value) {
  const Vector magnitude = vector(kFixed), inner = vector(kFixed + 1), sign = vector(kFixed + 2);
  set(inner, 0x7fffu);
  vandps(magnitude, value, inner);
  vpslld(magnitude, magnitude, 13);
  set(inner, 0x77800000u);  // 2^112
  vmulps(magnitude, magnitude, inner);
  vpslld(sign, value, 16);
  set(inner, 0x80000000u);
  vandps(sign, sign, inner);
  vorps(value, magnitude, sign);
  set(inner, 0x7f800000u);  // of infinities and NaNs
  vorps(inner, inner, value);
  set(sign, 0x47800000u);  // 2^16, beyond the finite ones
  select_where(value, is_greater_or_equal, magnitude, sign, inner, value);
}

void Generator::set(const Vector& to, uint32_t bits) {
  vbroadcastss(to, ptr[rip + constants_[bits]]);
}

Generator::Vector Generator::value(int place, int number) {
  if (place < 0) return vector(temporaries + registers_.of_step[~place]);
  if (!chain_.operands[place].fixed) return vector(temporaries + registers_.of_operand[place]);
  vbroadcastss(vector(number), ptr[rsp + 4 * place]);
  return vector(number);
}

Generator::Address Generator::at(const Reg64& start, DType dtype) const {
  return start + index * static_cast<int>(bytes_of(dtype, 1));
}

}  // namespace tessera::kernels::jit
