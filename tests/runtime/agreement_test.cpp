#include "tessera/runtime/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tessera/base/error.h"

namespace tessera::runtime {
namespace {

using testing::Each;
using testing::HasSubstr;

/// The errors of each rank for this data.
std::vector<std::string> agree_on(const std::vector<std::string>& given) {
  const auto world = comm::make_local_world(static_cast<int>(given.size()));
  const std::vector<int> all = world->local_ranks();
  std::vector<std::string> errors(given.size());
  std::vector<std::thread> threads;
  for (int rank : all)
    threads.emplace_back([&, rank] {
      try {
        if (auto error = agree(*world->join(rank, all), nullptr, {"inputs", given[rank]}))
          std::rethrow_exception(error);
      } catch (const Error& error) {
        errors[rank] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST(Agreement, names_the_rank_that_was_given_something_else) {
  EXPECT_THAT(agree_on({"2", "2", "2"}), Each(""));
  EXPECT_THAT(agree_on({"2", "2", "3"}),
              Each(HasSubstr("[inputs] rank 2 was given 3, but rank 0 2; give all ranks the same")));
}

TEST(Agreement, names_it_also_where_the_words_that_differ_are_cut) {
  const std::string much(600, 'x');
  EXPECT_THAT(agree_on({much + "2", much + "2", much + "3", much + "2"}), Each(HasSubstr("rank 2 was given xxx")));
}

}  // namespace
}  // namespace tessera::runtime
