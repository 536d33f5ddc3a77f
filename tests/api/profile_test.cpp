#include "tessera/profile.h"

#include <gtest/gtest.h>

#include "api/small_model.h"

namespace tessera {
namespace {

constexpr double kRounding = 1e-3;  // µs: the clock's step

class Profiled : public testing::TestWithParam<const char*> {};

TEST_P(Profiled, compute_communication_and_idle_are_the_whole_run_on_every_rank) {
  test::TemporaryFolder folder;
  const Program program = compile(Model::load(test::write_model(folder, test::kPair)), Mesh::parse(GetParam()));
  SessionOptions options;
  options.profile = true;
  Session session(program, options);
  EXPECT_TRUE(session.profile().ranks.empty()) << "before a run";
  for (int64_t batch : {1, 64, 3000}) {
    session.run({{"x", test::ramp({batch, 8})}});
    const Profile profile = session.profile();
    ASSERT_EQ(profile.ranks.size(), static_cast<size_t>(program.mesh().size()));
    EXPECT_GT(profile.duration, 0);
    for (const RankProfile& rank : profile.ranks) {
      EXPECT_NEAR(rank.compute + rank.exposed + rank.idle, profile.duration, kRounding);
      for (double part : {rank.compute, rank.exposed, rank.idle}) EXPECT_GE(part, -kRounding);
      double end = 0;
      for (const ProfileEvent& event : rank.events) {
        EXPECT_GE(event.begin, end - kRounding) << event.name;
        EXPECT_GE(event.duration, event.waiting) << event.name;
        end = event.begin + event.duration;
      }
      EXPECT_LE(end, profile.duration + kRounding);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, Profiled, testing::Values("tp=1", "tp=2", "dp=3", "dp=2,tp=2"));

}  // namespace
}  // namespace tessera
