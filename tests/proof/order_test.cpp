#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proof/ranks.h"
#include "tessera/base/error.h"
#include "tessera/proof/prove.h"

namespace tessera::proof {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int64_t> ranks_of(const Finding& finding) {
  std::vector<int64_t> ranks;
  for (const Place& place : finding.places) ranks.push_back(place.rank);
  return ranks;
}

Finding clash(const Ranks& ranks) {
  Report report = prove(ranks.all());
  if (report.findings.empty()) return {"none", "", {}};
  EXPECT_EQ(report.findings.size(), 1u);
  return report.findings.front();
}

TEST(Order, IsGoodWhereAllMeetTheSame) {
  Ranks ranks("dp=2,tp=2");
  for (int rank = 0; rank < 4; ++rank) {
    ranks.all_reduce(rank, "tp", "a");
    ranks.all_reduce(rank, "dp", "b");
  }
  Report report = prove(ranks.all());
  EXPECT_TRUE(report.good());
  EXPECT_EQ(report.ranks, 4);
  EXPECT_EQ(report.communications, 8);
}

TEST(Order, NamesTwoRanksThatMeetDifferentValues) {
  Ranks ranks("tp=3");
  for (int rank = 0; rank < 3; ++rank) {
    ranks.all_reduce(rank, "tp", rank == 2 ? "b" : "a");
    ranks.all_reduce(rank, "tp", rank == 2 ? "a" : "b");
  }
  Finding finding = clash(ranks);
  EXPECT_EQ(finding.rule, "order");
  EXPECT_THAT(ranks_of(finding), ElementsAre(0, 2));
  EXPECT_THAT(finding.message, AllOf(HasSubstr("collective #1 of group {0,1,2} over tp"),
                                     HasSubstr("they move different values"), HasSubstr("AllReduce sum of 'b'")));
}

TEST(Order, ComparesWhatMembersReduceBy) {
  Ranks ranks("tp=2");
  ranks.all_reduce(0, "tp", "a");
  ranks.all_reduce(1, "tp", "a")->set("reduction", std::string("max"));
  EXPECT_THAT(clash(ranks).message, HasSubstr("one reduces by sum, the other by max"));
}

// Else one would wait for bytes that the other does not send yet.
TEST(Order, ComparesTheBucketsThatMembersAreIn) {
  Ranks ranks("tp=2");
  for (int rank = 0; rank < 2; ++rank) {
    ranks.all_reduce(rank, "tp", "a")->set("bucket", int64_t{0});
    ranks.all_reduce(rank, "tp", "b")->set("bucket", int64_t{rank});
  }
  EXPECT_THAT(clash(ranks).message, AllOf(HasSubstr("they are in different buckets"), HasSubstr("'b'")));
}

TEST(Order, FindsTheShortestOfTheCirclesInWhichGroupsWait) {
  // Rows over y, columns over x of a 2x2 mesh: each rank waits for the next around the square.
  Ranks ranks("x=2,y=2");
  for (int rank : {0, 3}) {
    ranks.all_reduce(rank, "x", "a");
    ranks.all_reduce(rank, "y", "b");
  }
  for (int rank : {1, 2}) {
    ranks.all_reduce(rank, "y", "b");
    ranks.all_reduce(rank, "x", "a");
  }
  Finding finding = clash(ranks);
  EXPECT_EQ(finding.rule, "cycle");
  EXPECT_THAT(ranks_of(finding), ElementsAre(0, 2, 3, 1));
  EXPECT_THAT(finding.message, HasSubstr("4 ranks wait in a cycle: rank 0 at"));

  // If two ranks wait for each other, and others for these, the finding names the two.
  Ranks pair("tp=4");
  pair.recv(0, "tp", "p", 1);
  pair.recv(1, "tp", "q", 2);
  pair.recv(2, "tp", "r", 1);
  pair.recv(3, "tp", "s", 0);
  finding = clash(pair);
  EXPECT_EQ(finding.rule, "cycle");
  EXPECT_THAT(ranks_of(finding), ElementsAre(1, 2));
}

TEST(Order, NamesTheRankThatEndsWithoutComing) {
  Ranks ranks("tp=2");
  ranks.all_reduce(0, "tp", "a");
  ranks.all_reduce(1, "tp", "a");
  ranks.all_reduce(0, "tp", "b");
  Finding finding = clash(ranks);
  EXPECT_EQ(finding.rule, "cycle");
  EXPECT_THAT(finding.message, AllOf(HasSubstr("rank 0 waits for rank 1"), HasSubstr("collective #2"),
                                     HasSubstr("rank 1 ends without reaching it")));
  EXPECT_EQ(finding.places[1].node, "");
}

TEST(Order, ComparesShapes) {
  Ranks ranks("tp=2");
  ranks.all_reduce(0, "tp", "a");
  ranks.all_reduce(1, "tp", "a", {5});
  Finding finding = clash(ranks);
  EXPECT_EQ(finding.rule, "shape");
  EXPECT_THAT(finding.message, HasSubstr("shapes [4] and [5] do not fit together"));

  Ranks uneven("tp=2");
  uneven.all_gather(0, "tp", "a", 3, 5)->set("extent", std::string("3 - @tp"));
  uneven.all_gather(1, "tp", "a", 2, 5)->set("extent", std::string("3 - @tp"));
  EXPECT_TRUE(prove(uneven.all()).good());

  Ranks misjudged("tp=2");
  misjudged.all_gather(0, "tp", "a", 3, 6)->set("extent", std::string("3"));
  misjudged.all_gather(1, "tp", "a", 2, 6)->set("extent", std::string("3"));
  EXPECT_THAT(clash(misjudged).message, HasSubstr("to be 3, but it is 2"));
}

TEST(Order, PairsMessagesByWhatTheyCarry) {
  Ranks ranks("tp=2");
  ranks.send(0, "tp", "a", 1);
  ranks.send(0, "tp", "b", 1);
  ranks.recv(1, "tp", "b", 0);
  ranks.recv(1, "tp", "a", 0);
  Finding finding = clash(ranks);
  EXPECT_EQ(finding.rule, "message");
  EXPECT_THAT(ranks_of(finding), ElementsAre(1, 0));
  EXPECT_THAT(finding.message, HasSubstr("'a' is sent where 'b' is expected"));
}

TEST(Order, LetsMessagesPassBeforeAnybodyReceives) {
  Ranks ranks("tp=2");  // both send first: a send waits for nobody
  for (int rank : {0, 1}) ranks.send(rank, "tp", "a", 1 - rank);
  for (int rank : {0, 1}) ranks.recv(rank, "tp", "a", 1 - rank);
  EXPECT_TRUE(prove(ranks.all()).good());
}

TEST(Order, FollowsRanksThatWaitBetweenMessages) {
  // Rank 1 is woken by a message while it waits at a collective: it counts once.
  auto talk = [](Ranks& ranks, bool last) {
    ranks.send(0, "tp", "m", 1);
    ranks.all_reduce(0, "tp", "a");
    ranks.recv(0, "tp", "n", 1);
    if (last) ranks.all_reduce(0, "tp", "b");
    ranks.recv(1, "tp", "m", 0);
    ranks.all_reduce(1, "tp", "a");
    ranks.send(1, "tp", "n", 0);
    ranks.all_reduce(1, "tp", "b");
  };
  Ranks good("tp=2");
  talk(good, true);
  EXPECT_TRUE(prove(good.all()).good());
  Ranks bad("tp=2");
  talk(bad, false);
  EXPECT_THAT(clash(bad).message, HasSubstr("rank 0 ends without reaching"));
}

TEST(Order, NamesMessagesThatNobodyReceives) {
  Ranks ranks("tp=2");
  ranks.send(0, "tp", "a", 1);
  Finding finding = clash(ranks);
  EXPECT_EQ(finding.rule, "message");
  EXPECT_THAT(finding.message, HasSubstr("which ends without receiving it"));
}

TEST(Order, WantsPeersInTheGroup) {
  Ranks ranks("dp=2,tp=2");
  ranks.send(0, "tp", "a", 3);
  EXPECT_THAT(clash(ranks).message, AllOf(HasSubstr("rank 0"), HasSubstr("not in the group")));
}

TEST(Order, FollowsAThousandRanksOfFortyEightLayers) {
  auto program = std::make_shared<spmd::Program>();
  program->mesh = Mesh::parse("dp=128,tp=8");
  program->graph = std::make_unique<Graph>();
  Value* value = program->graph->add_input("x", {DType::float32, Shape{Expr::symbol("batch"), 64}});
  program->inputs.push_back({"x", value});
  for (int layer = 0; layer < 48; ++layer)
    for (const char* axis : {"tp", "tp", "dp"}) {
      Node* node = program->graph->add_node("AllReduce", {value}, {"h"}, spmd::kCommDomain);
      node->outputs[0]->type = value->type;
      node->set("axes", std::vector<std::string>{axis});
      value = node->outputs[0];
      node->set("value", value->name);
    }
  Report report = prove(*runtime::RankPrograms::same(program));
  EXPECT_TRUE(report.good());
  EXPECT_EQ(report.communications, 1024 * 48 * 3);
}

}  // namespace
}  // namespace tessera::proof
