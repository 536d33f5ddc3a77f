#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

/// ONNX's backend tests under every split of one operand that the operators' rules allow.
namespace tessera::conformance {

/// What a test does if one dimension of one operand is split, by each factor that its rule can split, over 2 and over 3
/// ranks. The split is an order that nothing may gather before the operator, so that the operator computes on parts.
struct SplitOutcome {
  std::string op;                     ///< the test's operator; "several" if its model has more than one
  int legal = 0;                      ///< splits that the rule allows
  int passed = 0;                     ///< those that give the test's answer, computed on parts
  int whole = 0;                      ///< dimensions of more than one element of which the rule allows no split
  std::vector<std::string> problems;  ///< of those that do not pass
};

/// Runs a test that passes on one rank. Models that run in parts, and symbolic extents, have no splits here.
SplitOutcome run_split(const std::filesystem::path& folder);

/// The outcomes of many tests, by operator.
class SplitTally {
 public:
  void add(const SplitOutcome& outcome);
  /// One line for each operator: "Add: 9 of 9 tests, 54 of 54 splits, 0 dimensions whole"; then one for all.
  std::string str() const;
  /// Tests that pass in every split, of those that have any, in percent.
  double percent() const;

 private:
  struct Line {
    int tests = 0, right = 0, legal = 0, passed = 0, whole = 0;
  };
  static std::string text(const Line& line);

  std::map<std::string, Line> lines_;
  Line all_;
};

}  // namespace tessera::conformance
