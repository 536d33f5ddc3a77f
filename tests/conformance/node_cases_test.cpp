// ONNX's own backend tests, as Debian's libonnx-testdata packs them: each passes, alone and sharded, or is listed in
// unsupported.txt.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <map>
#include <set>

#include "conformance/run_case.h"

namespace tessera::conformance {
namespace {

namespace fs = std::filesystem;

const fs::path kData = "/usr/share/libonnx-testdata/data";
// What the package of ONNX 1.12 holds; fewer would be a damaged installation.
constexpr size_t kCases = 1072;
// Of the tests on tensors alone, so many in a hundred must pass.
constexpr size_t kLeastPercent = 90;

// "node/test_abs", in order.
std::vector<std::string> all_cases() {
  std::vector<std::string> cases;
  if (!fs::exists(kData)) return cases;
  for (const auto& suite : fs::directory_iterator(kData))
    for (const auto& folder : fs::directory_iterator(suite))
      if (fs::exists(folder.path() / "model.onnx")) cases.push_back(fs::relative(folder, kData).string());
  std::sort(cases.begin(), cases.end());
  return cases;
}

// The first word of each line that is no comment.
std::set<std::string> listed_cases() {
  std::set<std::string> names;
  std::ifstream file(fs::path(TESSERA_TEST_DATA) / "conformance" / "unsupported.txt");
  for (std::string line; std::getline(file, line);) {
    std::string name = line.substr(0, line.find_first_of(" \t"));
    if (!name.empty() && name[0] != '#') names.insert(name);
  }
  return names;
}

bool passes(const Outcome& outcome) {
  return outcome.verdict == Verdict::pass || outcome.verdict == Verdict::pass_with_constants;
}

TEST(NodeCases, AreInstalled) {
  EXPECT_GE(all_cases().size(), kCases) << "install libonnx-testdata (apt.txt lists it)";
}

TEST(NodeCases, PassUnlessListedAsUnsupported) {
  std::set<std::string> listed = listed_cases();
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
    if (listed.erase(name) == 0)
      EXPECT_TRUE(passes(outcome)) << name << " is " << name_of(outcome.verdict) << ": " << outcome.message;
    else if (passes(outcome))
      ADD_FAILURE() << name << " passes now; remove it from tests/conformance/unsupported.txt";
    else
      EXPECT_EQ(outcome.verdict, Verdict::unsupported) << name << ": " << outcome.message;
  }
  EXPECT_TRUE(listed.empty()) << "unsupported.txt lists '" << *listed.begin() << "', which is no test";
  for (const auto& [verdict, count] : counts) std::cout << "  " << name_of(verdict) << ": " << count << "\n";
  std::cout << fmt::format("  {} of {} pass; of {} on tensors alone (no sequences, optionals, strings, training) {}\n",
                           passed, cases, plain, plain_passed);
  EXPECT_GE(plain_passed * 100, plain * kLeastPercent);
}

TEST(NodeCases, GiveTheSameAnswerHoweverTheyAreSplit) {
  std::set<std::string> listed = listed_cases();
  int checked = 0;
  for (const std::string& name : all_cases()) {
    if (listed.contains(name)) continue;
    ++checked;
    for (const std::string& problem : run_sharded(kData / name, {"x=2", "x=3"}))
      ADD_FAILURE() << name << " on " << problem;
  }
  EXPECT_GT(checked, 0);
}

// The comparison must see what it is for.
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
