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

TEST(Profile, tells_what_was_computed_while_communication_was_under_way) {
  constexpr std::string_view kBeside = R"(
pair (float[batch, 8] x, float[64, 64] z) => (float[batch, 8] y, float[64, 64] t) <float[8, 32] up, float[32, 8] down> {
  hidden = MatMul (x, up)
  active = Relu (hidden)
  y = MatMul (active, down)
  t = Softmax (z)
})";
  test::TemporaryFolder folder;
  const Program program = compile(Model::load(test::write_model(folder, kBeside)), Mesh::parse("tp=2"));
  for (bool overlap : {true, false}) {
    SessionOptions options;
    options.profile = true;
    options.overlap = overlap;
    Session session(program, options);
    session.run({{"x", test::ramp({3, 8})}, {"z", test::ramp({64, 64})}});
    for (const RankProfile& rank : session.profile().ranks) {
      double beside = 0, under_way = 0;
      size_t communications = 0;
      for (const ProfileEvent& event : rank.events) {
        if (event.op == "Softmax") beside = event.duration;
        under_way += event.under_way;
        communications += event.communication ? 1 : 0;
      }
      EXPECT_EQ(communications, overlap ? 2u : 1u) << "start and wait are one event where nothing is between them";
      EXPECT_NEAR(under_way, overlap ? beside : 0, kRounding);
      EXPECT_NEAR(rank.overlapped, overlap ? beside : 0, kRounding);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, Profiled, testing::Values("tp=1", "tp=2", "dp=3", "dp=2,tp=2"));

}  // namespace
}  // namespace tessera
