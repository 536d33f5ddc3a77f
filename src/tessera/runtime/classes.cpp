#include "tessera/runtime/classes.h"

#include <set>

#include "tessera/base/error.h"

namespace tessera::runtime {
namespace {

// The symbols of what broadcasts although the program has it equal to something else, and their sizes.
Symbols ones_of(const spmd::Program& program, const Symbols& symbols, bool may_compile) {
  Symbols fixed;
  for (const spmd::ExtentEquality& equality : program.equal_extents) {
    const int64_t a = equality.a.evaluate(symbols), b = equality.b.evaluate(symbols);
    if (a == b) continue;
    const bool broadcasts = equality.broadcasts && (a == 1 || b == 1);
    if (broadcasts && b == 1 && program.mesh.size() == 1) continue;
    std::set<std::string> names;
    if (broadcasts) (a == 1 ? equality.a : equality.b).collect_symbols(names);
    if (!names.empty() && may_compile) {
      for (const std::string& name : names) fixed[name] = symbols.at(name);
      continue;
    }
    std::string mend = "they must be equal";
    if (!names.empty()) {
      std::string sizes;
      for (const std::string& name : names)
        sizes += fmt::format("{}{}={}", sizes.empty() ? "" : ",", name, symbols.at(name));
      mend = fmt::format(
          "the program was written for sizes at which they are equal; write one for the others with tessera shard "
          "--fix {}",
          sizes);
    }
    fail("inputs", "{} needs {} = {}, but these inputs make them {} and {}; {}", equality.node, equality.a.str(),
         equality.b.str(), a, b, mend);
  }
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
