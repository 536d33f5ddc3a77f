#include "tessera/kernels/cpu/elementwise/jit/registers.h"

#include <algorithm>

namespace tessera::kernels::jit {

Registers::Registers(const Chain& chain) : of_operand(chain.operands.size(), -1), of_step(chain.steps.size(), -1) {
  std::vector<size_t> operand_end(chain.operands.size(), 0), step_end(chain.steps.size(), 0);  // their last readers
  for (size_t s = 0; s < chain.steps.size(); ++s) {
    step_end[s] = s;
    for (int place : chain.steps[s].operands) (place < 0 ? step_end[~place] : operand_end[place]) = s;
  }
  std::vector<bool> taken;
  const auto take = [&] {
    const auto free = std::find(taken.begin(), taken.end(), false);
    const auto at = static_cast<int>(free - taken.begin());
    if (free == taken.end())
      taken.push_back(true);
    else
      *free = true;
    return at;
  };
  for (size_t s = 0; s < chain.steps.size(); ++s) {
    const std::vector<int>& operands = chain.steps[s].operands;
    for (int place : operands)
      if (place >= 0 && !chain.operands[place].fixed && of_operand[place] < 0) of_operand[place] = take();
    of_step[s] = take();
    for (int place : operands) {
      const int held = place < 0 ? of_step[~place] : of_operand[place];
      if (held >= 0 && (place < 0 ? step_end[~place] : operand_end[place]) == s) taken[held] = false;
    }
    if (step_end[s] == s) taken[of_step[s]] = false;  // is stored, and no step reads it
  }
  count = static_cast<int>(taken.size());
}

}  // namespace tessera::kernels::jit
