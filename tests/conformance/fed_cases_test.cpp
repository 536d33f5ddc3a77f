// ONNX's own backend tests with their operands as inputs of the model, initializers, Constant nodes and results of
// other nodes: the answer is right, or an error says which operand must be known. refused.txt lists the latter.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "conformance/fed_case.h"
#include "conformance/suite.h"
#include "io/temporary_folder.h"

namespace tessera::conformance {
namespace {

using Refusals = std::map<std::string, std::set<std::string>>;  // by case: the ways in which it is refused

Refusals listed_refusals() {
  Refusals refusals;
  std::ifstream file(std::filesystem::path(TESSERA_TEST_DATA) / "conformance" / "refused.txt");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, way;
    if (!(words >> name) || name[0] == '#') continue;
    while (words >> way) refusals[name].insert(way);
  }
  return refusals;
}

bool names_a_tensor(const std::string& message, const NodeCase& node_case) {
  const auto& values = node_case.model.graph->values();
  return message.find("('") != std::string::npos || std::any_of(values.begin(), values.end(), [&](const auto& value) {
           return message.find("'" + value->name + "'") != std::string::npos ||
                  message.find("'" + value->name + ".stacked'") != std::string::npos;  // by which it is fed
         });
}

class FedCases : public testing::TestWithParam<Feed> {};

TEST_P(FedCases, AreRightOrRefused) {
  const std::string way(name_of(GetParam()));
  std::set<std::string> unsupported = listed_cases("unsupported.txt");
  unsupported.merge(listed_cases("random.txt"));
  const Refusals listed = listed_refusals();
  const testing_io::TemporaryFolder folder;
  std::set<std::string> refused;
  int runs = 0;
  for (const std::string& name : all_cases()) {
    if (unsupported.contains(name)) continue;
    const NodeCase node_case = read_case(kData / name);
    const Outcome outcome = run_fed(node_case, GetParam(), folder.path());
    ++runs;
    if (outcome.verdict == Verdict::unsupported) {
      refused.insert(name);
      EXPECT_TRUE(names_a_tensor(outcome.message, node_case)) << name << ": " << outcome.message;
      const bool known = listed.contains(name) && listed.at(name).contains(way);
      EXPECT_TRUE(known) << "refused.txt does not list " << name << " " << way << ": " << outcome.message;
    } else {
      EXPECT_EQ(outcome.verdict, Verdict::pass) << name << ": " << outcome.message;
    }
  }
  EXPECT_GT(runs, 800);
  for (const auto& [name, ways] : listed)
    EXPECT_TRUE(!ways.contains(way) || refused.contains(name))
        << "refused.txt lists " << name << " " << way << ", which is not refused";
}

INSTANTIATE_TEST_SUITE_P(Ways, FedCases,
                         testing::Values(Feed::inputs, Feed::initializers, Feed::constants, Feed::results),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace tessera::conformance
