#include "tessera/kernels/cpu/elementwise/jit/function.h"

#include <xbyak/xbyak_util.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "tessera/kernels/cpu/elementwise/jit/registers.h"
#include "tessera/kernels/cpu/elementwise/jit/x86_64/generator.h"

namespace tessera::kernels::jit {
namespace {

class Generated : public Function {
 public:
  explicit Generated(std::unique_ptr<Generator> generator) : generator_(std::move(generator)) {
    code_ = generator_->finish<Code>();
  }

 private:
  std::unique_ptr<Generator> generator_;  // owns the memory
};

// Null if there is no memory for code, or the system does not let it be executed.
std::shared_ptr<const Function> generate(const Chain& chain, Target target) {
  try {
    return std::make_shared<Generated>(target == Target::avx512 ? avx512_generator(chain) : avx2_generator(chain));
  } catch (const Xbyak::Error& error) {
    const int code = error;
    if (code == Xbyak::ERR_CANT_PROTECT || code == Xbyak::ERR_CANT_ALLOC) return nullptr;
    throw;
  }
}

// The functions that somebody holds.
class Cache {
 public:
  std::shared_ptr<const Function> get(const Chain& chain, Target target) {
    std::lock_guard lock(mutex_);
    std::weak_ptr<const Function>& entry = functions_[{target, chain}];
    if (auto function = entry.lock()) return function;
    auto function = generate(chain, target);
    entry = function;
    std::erase_if(functions_, [](const auto& known) { return known.second.expired(); });
    return function;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<Target, Chain>, std::weak_ptr<const Function>> functions_;
};

}  // namespace

Target best_target() {
  static const Target best = [] {
    using Xbyak::util::Cpu;
    const Cpu cpu;
    if (cpu.has(Cpu::tAVX512F | Cpu::tAVX512VL | Cpu::tAVX512BW | Cpu::tAVX512DQ | Cpu::tBMI2)) return Target::avx512;
    if (cpu.has(Cpu::tAVX2 | Cpu::tF16C)) return Target::avx2;
    return Target::none;
  }();
  return best;
}

bool fits(const Chain& chain, Target target) {
  if (target == Target::none) return false;
  const auto streams =
      std::count_if(chain.operands.begin(), chain.operands.end(),
                    [](const Chain::Operand& operand) { return !operand.fixed; }) +
      std::count_if(chain.steps.begin(), chain.steps.end(), [](const Chain::Step& step) { return step.stored; });
  const int registers = target == Target::avx512 ? 32 : 16;
  return streams <= Generator::most_streams && Registers(chain).count <= registers - Generator::temporaries;
}

std::shared_ptr<const Function> compile(const Chain& chain, Target target) {
  static Cache cache;
  return cache.get(chain, target);
}

}  // namespace tessera::kernels::jit
