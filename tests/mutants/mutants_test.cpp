// Edited written programs: those that `tessera check --accept` takes over must give the right answer, and no right
// program may be refused. TESSERA_MUTANTS=N tries N of them, TESSERA_RANDOM_SEED=S begins with that of seed
// S, TESSERA_MUTATOR=NAME edits by one mutator only.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>

#include "mutants/in_child.h"
#include "mutants/trial.h"
#include "random/settings.h"
#include "sample.h"

namespace tessera::mutants {
namespace {

constexpr uint64_t kMutantShares = 2;  // so that tests run side by side
constexpr size_t kMostEscapes = 10;    // that a share prints

bool is_wrong(const Outcome& outcome) {
  return outcome.verdict == Verdict::escaped || outcome.verdict == Verdict::wronged ||
         outcome.verdict == Verdict::broke;
}

class EditedPrograms : public testing::TestWithParam<uint64_t> {};

TEST_P(EditedPrograms, ThatAreAcceptedGiveTheRightAnswer) {
  const uint64_t first = random::number_from("TESSERA_RANDOM_SEED", random::kFirstSeed);
  const uint64_t count = random::number_from("TESSERA_MUTANTS", test::sample<uint64_t>(180, 600)) / kMutantShares;
  const char* mutator = std::getenv("TESSERA_MUTATOR");
  std::map<Verdict, uint64_t> verdicts;
  std::map<std::string, std::map<Verdict, uint64_t>> by_mutator;
  uint64_t tried = 0;
  size_t printed = 0;
  // A share has programs of its own, so that each is written once.
  auto seed_of = [&](uint64_t n) {
    return first + (n / Trials::kAlike * kMutantShares + GetParam()) * Trials::kAlike + n % Trials::kAlike;
  };
  in_child(seed_of, mutator ? mutator : "", [&](uint64_t seed, const Outcome& outcome) {
    ++verdicts[outcome.verdict];
    ++by_mutator[outcome.mutator][outcome.verdict];
    tried += outcome.verdict != Verdict::nothing;
    if (is_wrong(outcome) && ++printed <= kMostEscapes)
      ADD_FAILURE() << name_of(outcome.verdict) << ": " << outcome.message
                    << "\nrepeat it with TESSERA_MUTANTS=2 TESSERA_RANDOM_SEED=" << seed;
    return tried < count;
  });
  std::cout << "  " << tried << " mutants:";
  for (const auto& [verdict, number] : verdicts) std::cout << " " << number << " " << name_of(verdict);
  std::cout << "\n";
  if (std::getenv("TESSERA_MUTANTS"))
    for (const auto& [name, of] : by_mutator) {
      std::cout << "    " << name << ":";
      for (const auto& [verdict, number] : of) std::cout << " " << number << " " << name_of(verdict);
      std::cout << "\n";
    }
  if (!mutator && tried > 50) {
    EXPECT_GT(verdicts[Verdict::refused] * 3, tried);  // else the edits prove little
  }
}

// What tools drop when they save a model follows from its nodes: of each program, one in four a random one, in one
// form. TESSERA_SUBJECTS=N takes N of them, from the one that TESSERA_RANDOM_SEED belongs to on.
TEST_P(EditedPrograms, MayLoseTypesAndMetadata) {
  const uint64_t first = random::number_from("TESSERA_RANDOM_SEED", random::kFirstSeed) / Trials::kAlike;
  const uint64_t count = random::number_from("TESSERA_SUBJECTS", test::sample<uint64_t>(80, 300));
  Trials trials;
  uint64_t equal = 0;
  for (uint64_t k = first + GetParam(); k < first + count; k += kMutantShares) {
    const uint64_t seed = k * Trials::kAlike + 1;
    const Outcome outcome = trials.run(seed, "take types and metadata away");
    equal += outcome.verdict == Verdict::equal;
    EXPECT_FALSE(is_wrong(outcome)) << outcome.message << "\nrepeat it with TESSERA_SUBJECTS=" << kMutantShares
                                    << " TESSERA_RANDOM_SEED=" << seed;
  }
  EXPECT_GT(equal * kMutantShares * 2, count);
}

INSTANTIATE_TEST_SUITE_P(Share, EditedPrograms, testing::Range(uint64_t{0}, kMutantShares));

}  // namespace
}  // namespace tessera::mutants
