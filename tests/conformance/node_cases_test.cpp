// ONNX's own backend tests, as Debian's libonnx-testdata packs them: each passes, alone and sharded, or is listed in
// unsupported.txt.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <set>

#include "conformance/run_case.h"
#include "conformance/split_case.h"
#include "conformance/suite.h"
#include "sample.h"

namespace tessera::conformance {
namespace {

// The number of cases in ONNX 1.12's package; fewer mean a damaged installation.
constexpr size_t kCases = 1072;
// This percentage of the tests on tensors alone must pass.
constexpr size_t kLeastPercent = 90;

bool passes(const Outcome& outcome) {
  return outcome.verdict == Verdict::pass;
}

TEST(NodeCases, AreInstalled) {
  EXPECT_GE(all_cases().size(), kCases) << "install libonnx-testdata (apt-tests.txt lists it)";
}

TEST(NodeCases, PassUnlessListedAsUnsupported) {
  std::set<std::string> listed = listed_cases("unsupported.txt");
  const std::set<std::string> random = listed_cases("random.txt");
  std::map<Verdict, int> counts;
  size_t cases = 0, passed = 0, plain = 0, plain_passed = 0;
  for (const std::string& name : all_cases()) {
    Outcome outcome = run_alone(kData / name);
    ++counts[outcome.verdict];
    ++cases;
    passed += passes(outcome);
    if (is_plain(kData / name)) {
      ++plain;
      plain_passed += passes(outcome);
    }
    if (random.contains(name))
      EXPECT_EQ(outcome.verdict, Verdict::wrong) << name << " has random numbers: " << outcome.message;
    else if (listed.erase(name) == 0)
      EXPECT_TRUE(passes(outcome)) << name << " is " << name_of(outcome.verdict) << ": " << outcome.message;
    else if (passes(outcome))
      ADD_FAILURE() << name << " passes now; remove it from tests/conformance/unsupported.txt";
    else
      EXPECT_EQ(outcome.verdict, Verdict::unsupported) << name << ": " << outcome.message;
  }
  EXPECT_TRUE(listed.empty()) << "unsupported.txt lists '" << *listed.begin() << "', which is not a test";
  for (const auto& [verdict, count] : counts) std::cout << "  " << name_of(verdict) << ": " << count << "\n";
  std::cout << fmt::format("  {} of {} pass; of {} on tensors alone (no sequences, optionals, strings, training) {}\n",
                           passed, cases, plain, plain_passed);
  EXPECT_GE(plain_passed * 100, plain * kLeastPercent);
}

TEST(NodeCases, GiveTheSameAnswerHoweverTheyAreSplit) {
  std::set<std::string> listed = listed_cases("unsupported.txt");
  listed.merge(listed_cases("random.txt"));  // tests of random numbers compare them across meshes
  int checked = 0;
  for (const std::string& name : all_cases()) {
    if (listed.contains(name)) continue;
    // A sample takes each case on one of the meshes.
    std::vector<std::string> meshes = {"x=2", "x=3"};
    if (!test::tries_all()) meshes = {meshes[static_cast<size_t>(checked) % 2]};
    ++checked;
    for (const std::string& problem : run_sharded(kData / name, meshes)) ADD_FAILURE() << name << " on " << problem;
  }
  EXPECT_GT(checked, 0);
}

// Each operand in every way that the operator's rule allows, computed on parts.
TEST(NodeCases, GiveTheAnswerInEverySplitOfAnOperand) {
  std::set<std::string> listed = listed_cases("unsupported.txt");
  listed.merge(listed_cases("random.txt"));
  SplitTally tally;
  for (const std::string& name : all_cases())
    if (name.starts_with("node/") && !listed.contains(name)) tally.add(run_split(kData / name));
  std::cout << tally.str();
  EXPECT_GE(tally.percent(), kLeastPercent);
}

// The comparison must detect differences.
TEST(Mismatch, IsFoundInShapesTypesAndElements) {
  ElementTolerance tolerance;
  Tensor two = Tensor::of<float>(DType::float32, {2}, {1, 2});
  EXPECT_EQ(mismatch("y", two, two, tolerance), "");
  EXPECT_EQ(mismatch("y", two, Tensor::of<float>(DType::float32, {2}, {1, 2.001f}), tolerance), "");
  EXPECT_NE(mismatch("y", two, Tensor::of<float>(DType::float32, {2}, {1, 2.01f}), tolerance), "");
  EXPECT_NE(mismatch("y", two, Tensor::of<float>(DType::float32, {1, 2}, {1, 2}), tolerance), "");
  EXPECT_NE(mismatch("y", two, Tensor::of<double>(DType::float64, {2}, {1, 2}), tolerance), "");
  Tensor nan = Tensor::of<float>(DType::float32, {2}, {1, NAN});
  EXPECT_NE(mismatch("y", two, nan, tolerance), "");
  EXPECT_NE(mismatch("y", nan, two, tolerance), "");
  EXPECT_EQ(mismatch("y", nan, nan, tolerance), "");
  EXPECT_NE(mismatch("y", two, Tensor::of<float>(DType::float32, {2}, {1, INFINITY}), tolerance), "");
  Tensor ints = Tensor::of<int64_t>(DType::int64, {1}, {1000000});
  EXPECT_NE(mismatch("y", ints, Tensor::of<int64_t>(DType::int64, {1}, {1000001}), tolerance), "");
}

}  // namespace
}  // namespace tessera::conformance
