#include "tessera/kernels/cpu/elementwise/parts.h"

#include <algorithm>

#include "tessera/kernels/cpu/elementwise/broadcast.h"

namespace tessera::kernels {
namespace {

class Divider {
 public:
  Divider(const std::vector<GroupMember>& members, const std::vector<jit::Chain::Operand>& operands)
      : members_(members), operands_(operands), last_reader_(members.size(), 0) {
    for (size_t m = 0; m < members.size(); ++m) {
      std::vector<DType> types;
      for (int place : members[m].operands) {
        types.push_back(place < 0 ? members[~place].dtype : operands[place].dtype);
        if (place < 0) last_reader_[~place] = m;
      }
      operations_.push_back(jit::operation_of(*members[m].node, types, members[m].dtype));
    }
  }

  std::vector<GroupPart> run() const {
    std::vector<GroupPart> parts;
    for (size_t m = 0; m < members_.size(); m = parts.back().end) parts.push_back(part_from(m));
    return parts;
  }

 private:
  // The longest function of two members or more; else the first member alone.
  GroupPart part_from(size_t begin) const {
    const jit::Target target = jit::best_target();
    size_t end = begin;
    while (end < members_.size() && operations_[end]) ++end;
    for (; target != jit::Target::none && end >= begin + 2; --end) {
      GroupPart part{begin, end, {}, {}, nullptr};
      const jit::Chain chain = chain_of(part);
      if (chain.operands.size() > Broadcast::max_operands || !jit::fits(chain, target)) continue;
      part.function = jit::compile(chain, target);
      if (!part.function) break;
      return part;
    }
    return {begin, begin + 1, members_[begin].operands, {begin}, nullptr};
  }

  // Fills in what the part reads and writes.
  jit::Chain chain_of(GroupPart& part) const {
    jit::Chain chain;
    for (size_t m = part.begin; m < part.end; ++m) {
      const GroupMember& member = members_[m];
      const bool stored = member.stored >= 0 || last_reader_[m] >= part.end;
      if (stored) part.results.push_back(m);
      chain.steps.push_back({*operations_[m], member.dtype, {}, stored});
      for (int place : member.operands) chain.steps.back().operands.push_back(place_in(chain, part, place));
    }
    return chain;
  }

  int place_in(jit::Chain& chain, GroupPart& part, int place) const {
    if (place < 0 && static_cast<size_t>(~place) >= part.begin) return ~(~place - static_cast<int>(part.begin));
    const auto known = std::find(part.operands.begin(), part.operands.end(), place);
    const auto at = static_cast<int>(known - part.operands.begin());
    if (known == part.operands.end()) {
      part.operands.push_back(place);
      chain.operands.push_back(place < 0 ? jit::Chain::Operand{members_[~place].dtype, false} : operands_[place]);
    }
    return at;
  }

  const std::vector<GroupMember>& members_;
  const std::vector<jit::Chain::Operand>& operands_;
  std::vector<size_t> last_reader_;
  std::vector<std::optional<jit::Operation>> operations_;  // none: the node's own kernel computes it
};

}  // namespace

std::vector<GroupPart> parts_of(const std::vector<GroupMember>& members,
                                const std::vector<jit::Chain::Operand>& operands) {
  return Divider(members, operands).run();
}

}  // namespace tessera::kernels
