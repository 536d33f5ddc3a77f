// ONNX's own backend tests with their operands as inputs of the model, initializers, Constant nodes and results of
// other nodes: the answer is the same.
#include <gtest/gtest.h>

#include <set>

#include "conformance/fed_case.h"
#include "conformance/suite.h"
#include "io/temporary_folder.h"

namespace tessera::conformance {
namespace {

class FedCases : public testing::TestWithParam<Feed> {};

TEST_P(FedCases, GiveTheSameAnswer) {
  std::set<std::string> unsupported = listed_cases("unsupported.txt");
  unsupported.merge(listed_cases("random.txt"));
  const testing_io::TemporaryFolder folder;
  int runs = 0;
  for (const std::string& name : all_cases()) {
    if (unsupported.contains(name)) continue;
    const Outcome outcome = run_fed(read_case(kData / name), GetParam(), folder.path());
    EXPECT_EQ(outcome.verdict, Verdict::pass) << name << ": " << outcome.message;
    ++runs;
  }
  EXPECT_GT(runs, 950);
}

INSTANTIATE_TEST_SUITE_P(Ways, FedCases,
                         testing::Values(Feed::inputs, Feed::initializers, Feed::constants, Feed::results),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace tessera::conformance
