#include <gmock/gmock.h>
#include <mpi.h>

#include <string>

#include "../backend_suite.h"
#include "run_on_mpi.h"

// Run as one process per rank: mpirun -n 6 comm_mpi_test. Every process runs every test.
namespace tessera::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void run_by_messages(int ranks, const RankBody& body) {
  run_on_mpi(ranks, body, std::chrono::seconds(60));
}
void run_by_library(int ranks, const RankBody& body) {
  run_on_mpi(ranks, body, std::chrono::seconds(60), 0);
}

INSTANTIATE_TEST_SUITE_P(Mpi, BackendSuite,
                         ::testing::Values(Backend{.name = "mpi", .on_ranks = run_by_messages},
                                           Backend{
                                               .name = "library", .on_ranks = run_by_library, .member_order = false}),
                         name_of_backend);

TEST(MpiWorld, a_rank_that_does_not_come_is_named_on_all_others) {
  run_on_mpi(
      4,
      [](World& world, int rank) {
        auto group = world.join(rank, everyone(4));
        static std::vector<float> data(5000);  // outlives the run that fails, as MPI needs it to
        Operation sum{.kind = Kind::all_reduce, .in = data.data(), .out = data.data(), .count = 5000, .label = "y"};
        group->run(sum);
        if (rank == 2) {
          std::this_thread::sleep_for(std::chrono::milliseconds(2500));  // beyond the timeout and the grace
          Operation nothing{.kind = Kind::recv, .out = data.data(), .count = 1, .from = 1};
          EXPECT_THAT(error_of([&] { group->run(nothing); }), HasSubstr("ended the run"));
        } else {
          EXPECT_THAT(error_of([&] { group->run(sum); }),
                      AllOf(HasSubstr("all_reduce sum float32[5000] 'y' (#2 of group {0,1,2,3})"),
                            HasSubstr("missing: rank 2; arrived: ranks 0,1,3"), HasSubstr("rank 2 says nothing")));
        }
      },
      std::chrono::milliseconds(500));
}

TEST(MpiWorld, a_rank_that_does_not_join_is_named) {
  run_on_mpi(
      3,
      [](World& world, int rank) {
        if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2000));
        EXPECT_THAT(error_of([&] { world.join(rank, everyone(3)); }),
                    AllOf(HasSubstr("joining (#0 of group {0,1,2})"), HasSubstr("missing: rank 1")));
      },
      std::chrono::milliseconds(200));
}

TEST(MpiWorld, an_abort_ends_the_waits_of_all_others_with_its_message) {
  run_on_mpi(
      4,
      [](World& world, int rank) {
        auto group = world.join(rank, everyone(4));
        auto pair = world.join(rank, std::vector{rank / 2 * 2, rank / 2 * 2 + 1});
        static float element = 0;
        // A member that MPI is adding to a group cannot be called back. The barrier ends on rank 2 before it ends on
        // the others, who may learn of the abort there.
        const auto meet = [&] { group->run({.kind = Kind::barrier}); };
        if (rank == 2) {
          meet();
          return world.abort(rank, "the disk is full");
        }
        const std::string error = error_of([&] {
          meet();
          if (rank == 3) pair->run({.kind = Kind::recv, .out = &element, .count = 1, .from = 0});
          group->run({.kind = Kind::all_reduce, .in = &element, .out = &element, .count = 1});
        });
        EXPECT_THAT(error, HasSubstr("rank 2 ended the run: the disk is full"));
      },
      std::chrono::seconds(60));
}

/// What a rank says whose successes nobody needs to read.
class FailuresOnly : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.failed())
      std::cerr << result.file_name() << ":" << result.line_number() << ": " << result.message() << std::endl;
  }
};

}  // namespace
}  // namespace tessera::comm

int main(int argc, char** argv) {
  int provided = 0, rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  ::testing::InitGoogleTest(&argc, argv);
  // All ranks draw the same operations, and only one reports successes.
  unsigned long long seed = rank == 0 ? tessera::comm::test_seed() : 0;
  MPI_Bcast(&seed, 1, MPI_UNSIGNED_LONG_LONG, 0, MPI_COMM_WORLD);
  setenv("TESSERA_TEST_SEED", std::to_string(seed).c_str(), 1);
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new tessera::comm::FailuresOnly);
  }
  int result = RUN_ALL_TESTS(), worst = 0;
  MPI_Allreduce(&result, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return worst;
}
