// The layout never changes the answer: every operator under every legal sharding of one tensor at a time on 1-D meshes
// of 2 to 5 ranks (tensors take turns at two of these), and under a seeded sample of random shardings of
// several tensors on 2-D meshes, gives the result of one rank. TESSERA_SAMPLE=all runs every mesh and factoring, and
// more of the sample, for every case; TESSERA_TEST_SEED changes operands and sample.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "property/cases.h"
#include "property/trial.h"
#include "sample.h"
#include "tessera/kernels/kernel.h"
#include "tessera/ops/op.h"

namespace tessera::property {
namespace {

// Operators without a case of their own, or whose cases cannot run, and why.
const std::map<OperatorKey, std::string>& excused() {
  static const std::map<OperatorKey, std::string> all = {
      {{"tessera", "GatherShard"}, "only the partitioner makes it, from Gather, whose cases cover it"},
      {{"tessera", "GatherElementsShard"}, "likewise, from GatherElements"},
      {{"tessera", "GatherNDShard"}, "likewise, from GatherND"},
      {{"tessera", "ScatterElementsShard"}, "likewise, from ScatterElements"},
      {{"tessera", "ScatterNDShard"}, "likewise, from ScatterND"},
      {{"tessera", "Conv"}, "likewise, from Conv"},
      {{"tessera", "ConvTranspose"}, "likewise, from ConvTranspose"},
      {{"tessera", "ConvInteger"}, "likewise, from ConvInteger"},
      {{"tessera", "MaxPool"}, "likewise, from MaxPool with indices"},
      {{"tessera", "AveragePool"}, "likewise, from AveragePool"},
      {{"", "Constant"}, "importing makes it a value of the graph, so that no kernel computes it"},
      {{"tessera.flow", "Carry"}, "it is part of a loop, and covered by the cases of Loop"},
      {{"tessera.flow", "Item"}, "likewise"},
      {{"tessera.flow", "Next"}, "likewise"},
      {{"tessera.flow", "Again"}, "likewise"},
      {{"tessera.flow", "Last"}, "likewise"},
      {{"tessera.flow", "Stack"}, "likewise"},
      {{"tessera.flow", "Bring"}, "it is part of an If, and covered by the cases of Branch"},
      {{"tessera.flow", "Join"}, "likewise"},
      {{"tessera.flow", "Choose"}, "likewise"},
  };
  return all;
}

// An operator that is excused for want of a kernel is tested as soon as it has one.
bool is_tested(const OperatorKey& key) {
  return !excused().contains(key) ||
         (cases_by_operator().contains(key) && kernels::find_kernel(key.second, key.first) != nullptr);
}

std::vector<OperatorKey> operators() {
  std::vector<OperatorKey> keys;
  for (const ops::OpDef* op : ops::all_ops()) keys.emplace_back(op->domain, op->type);
  std::erase_if(keys, [](const OperatorKey& key) { return !is_tested(key); });
  return keys;
}

class Operators : public testing::TestWithParam<OperatorKey> {};

TEST_P(Operators, GiveTheSameOnEveryMesh) {
  auto found = cases_by_operator().find(GetParam());
  ASSERT_TRUE(found != cases_by_operator().end()) << GetParam().second << " has no case; add examples to its record";
  // The first cases of an operator are unlike each other; of the others, each tries less.
  constexpr size_t kFew = 6;
  size_t seen = 0;
  int right = 0, refused = 0;
  for (const Subject& subject : found->second) {
    SCOPED_TRACE(subject.name);
    Trials trials(subject);
    const bool first = seen++ < kFew;
    trials.run_single(test::sample(first ? 2 : 1, 100));
    trials.run_random(test::sample(first ? 8 : 3, 200));
    right += trials.right();
    refused += trials.refused();
  }
  RecordProperty("right", right);
  RecordProperty("refused", refused);
  EXPECT_GT(right, refused) << "most shardings of " << GetParam().second << " are refused";
}

INSTANTIATE_TEST_SUITE_P(Property, Operators, testing::ValuesIn(operators()),
                         [](const auto& info) { return name_of(info.param); });

TEST(ExcusedOperators, AreKnown) {
  for (const auto& [key, reason] : excused())
    EXPECT_NE(ops::find_op(key.second, key.first), nullptr) << key.second << " is excused, but there is none";
}

}  // namespace
}  // namespace tessera::property
