// Random programs on random meshes under random annotations. TESSERA_RANDOM_PROGRAMS=N runs N of them,
// TESSERA_RANDOM_SEED=S begins with the program of seed S: a failure's seed and N = 1 repeat it.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "random/random_program.h"
#include "random/settings.h"
#include "sample.h"

namespace tessera::random {
namespace {

constexpr uint64_t kProgramShares = 4;  // so that tests run side by side
constexpr int kMostFailures = 3;        // of a share: each is shrunk, which takes a while

class RandomPrograms : public testing::TestWithParam<uint64_t> {};

TEST_P(RandomPrograms, give_the_same_however_they_are_split) {
  const uint64_t count = number_from("TESSERA_RANDOM_PROGRAMS", test::sample<uint64_t>(1200, 4000));
  const uint64_t first = number_from("TESSERA_RANDOM_SEED", kFirstSeed);
  int equal = 0, refused = 0, skipped = 0, failed = 0, with_sums = 0;
  for (uint64_t seed = first + GetParam(); seed < first + count && failed < kMostFailures; seed += kProgramShares) {
    SCOPED_TRACE(seed);
    Program program = generate(seed, Operators::all);
    Outcome outcome = check(program);
    equal += outcome.verdict == Verdict::equal;
    with_sums += outcome.verdict == Verdict::equal &&
                 std::any_of(program.orders.begin(), program.orders.end(),
                             [](const Order& order) { return order.sharding.is_partial(); });
    refused += outcome.verdict == Verdict::refused;
    skipped += outcome.verdict == Verdict::skipped;
    if (outcome.verdict != Verdict::failed) continue;
    ++failed;
    Program small = shrink(program, outcome);
    ADD_FAILURE() << outcome.message << "\nshrunk, " << check(small).message << "\n"
                  << describe(small) << "\nrepeat it with TESSERA_RANDOM_SEED=" << seed << " TESSERA_RANDOM_PROGRAMS=1";
  }
  std::cout << "  seeds from " << first << ": " << equal << " equal (" << with_sums
            << " where annotations claim partial sums), " << refused << " refused, " << skipped << " skipped, "
            << failed << " failed\n";
  // Programs that one rank does not run, or annotations that cannot be followed, must be rare.
  EXPECT_LE((refused + skipped) * 10, equal + 20);
}

INSTANTIATE_TEST_SUITE_P(Share, RandomPrograms, testing::Range(uint64_t{0}, kProgramShares));

}  // namespace
}  // namespace tessera::random
