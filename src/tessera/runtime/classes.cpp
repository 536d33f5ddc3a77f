#include "tessera/runtime/classes.h"

#include <set>

#include "tessera/base/error.h"
#include "tessera/ir/flow.h"

namespace tessera::runtime {
namespace {

// The fix in the message for a run at sizes that break an equality.
[[noreturn]] void refuse(const spmd::ExtentEquality& equality, const Symbols& symbols,
                         const std::set<std::string>& ones) {
  std::string fix = "they must be equal";
  if (equality.node.starts_with(flow::kDomain)) fix += "; the model itself runs in parts then, on ranks of one process";
  if (equality.broadcasts && !ones.empty()) {
    std::string sizes;
    for (const std::string& name : ones)
      sizes += fmt::format("{}{}={}", sizes.empty() ? "" : ",", name, symbols.at(name));
    fix = fmt::format(
        "the program was written for sizes at which they are equal; write one for the others with "
        "`with_sizes` {}",
        sizes);
  }
  fail("inputs", "{} needs {} = {}, but these inputs make them {} and {}; {}", equality.node, equality.a.str(),
       equality.b.str(), equality.a.evaluate(symbols), equality.b.evaluate(symbols), fix);
}

// The symbols, with their sizes, of extents that are 1 although the program assumes that they equal another extent. If
// no operator broadcasts such an extent directly, an earlier one may: a value may have the symbol of an extent that is
// 1 only because both were assumed to be equal. So an equality is refused only if no class is left to try.
Symbols ones_of(const spmd::Program& program, const Symbols& symbols, bool may_compile) {
  Symbols fixed;
  const spmd::ExtentEquality* broken = nullptr;
  std::set<std::string> ones_of_broken;
  for (const spmd::ExtentEquality& equality : program.equal_extents) {
    const int64_t a = equality.a.evaluate(symbols), b = equality.b.evaluate(symbols);
    if (a == b) continue;
    if (equality.broadcasts && b == 1 && program.mesh.size() == 1) continue;
    std::set<std::string> ones;
    if (a == 1 || b == 1) (a == 1 ? equality.a : equality.b).collect_symbols(ones);
    if (may_compile)
      for (const std::string& name : ones) fixed[name] = symbols.at(name);
    if (broken || (may_compile && !ones.empty())) continue;
    broken = &equality;
    ones_of_broken = ones;
  }
  if (broken && fixed.empty()) refuse(*broken, symbols, ones_of_broken);
  return fixed;
}

}  // namespace

std::shared_ptr<const RankPrograms> programs_for(std::shared_ptr<const RankPrograms> programs, const Symbols& symbols,
                                                 const ProgramsForSizes& for_sizes) {
  Symbols fixed;
  for (;;) {
    const Symbols more = ones_of(*programs->programs.front(), symbols, for_sizes != nullptr);
    if (more.empty()) return programs;
    const size_t before = fixed.size();
    fixed.insert(more.begin(), more.end());
    check(fixed.size() > before, "a program for certain sizes has no symbols for them");
    programs = for_sizes(fixed);
  }
}

}  // namespace tessera::runtime
