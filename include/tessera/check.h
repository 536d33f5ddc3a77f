#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/tessera.h"

/// Proofs about a program, before anything runs.
namespace tessera {
inline namespace v1 {

/// One reason why a program is wrong.
struct CheckFinding {
  /// The rule that does not hold:
  ///   order      members of a group meet the same collectives in the same order
  ///   shape      the types, shapes and members that they state fit together
  ///   message    sends and receives pair up
  ///   cycle      no ranks wait for each other in a cycle, and none waits for a rank that has ended
  ///   layout     a communication changes a tensor's layout as it states
  ///   partial    a partial value is reduced before it is used as a whole value
  ///   function   the function of a lowered collective does what its metadata state
  ///   meaning    a written program computes what it was proved to compute when it was written
  ///   control    ranks that communicate in a branch or body take the same branch and run as many iterations
  ///   output     all ranks that return the same part of an output have equal data there
  ///   type       a node's result has the stated type
  ///   program    the changed models of a written program still form a program
  ///   device     a model's device annotations fit the model and themselves
  ///   operator   an operator can compute with operands in the layouts of its device annotations
  std::string rule;
  std::string message;  ///< names the ranks, the nodes, and the contradiction

  /// A node on a rank.
  struct Place {
    int64_t rank = 0;
    std::string node;  ///< "AllReduce 'h'"; "" for a rank that has ended
  };
  std::vector<Place> places;  ///< the nodes that clash; in a cycle, each waits for the next
};

struct CheckReport {
  int64_t ranks = 0;
  int64_t models = 0;          ///< different models; ranks that are alike share one
  int64_t communications = 0;  ///< of all ranks, in one step
  std::vector<CheckFinding> findings;

  bool good() const { return findings.empty(); }
};

/// Follows all ranks through their communications, one walk per class of ranks with equal programs. Proves that members
/// of a group meet the same collectives in the same order and with matching types and shapes, that sends match
/// receives, that no ranks wait for each other in a cycle, that every value's layout follows from its computation, and
/// that ranks which return the same part of an output, or keep the same part of a state, have equal data there.
/// Findings after the first usually follow from it, so the report has only one; if that is a cycle, the shortest.
CheckReport check_program(const Program& program);

/// The faults of a model's device annotations for a configuration ("": for all): annotations that contradict each other
/// or the model; if there are none, operators that cannot be split as annotated. Ranks in findings are 0.
std::vector<CheckFinding> check_annotations(const Model& model, const std::string& configuration = "");
/// Throws a user error for the first statement that contradicts itself or the model, if there is one.
void refuse_wrong_annotations(const Model& model);

/// The model files of a written program that have changed since, relative to its folder.
std::vector<std::string> changed_models(const std::filesystem::path& folder);

/// The finding for changed models that Program::read refuses, made from the user error that it threw.
CheckFinding fault_of(const Error& error);

/// Checks the program with its changed models. If they pass, the manifest accepts them: from now on, Program::read
/// accepts these models. Changed models that cannot be read are also a finding; `models` is then 0.
CheckReport accept_changed_models(const std::filesystem::path& folder);

}  // namespace v1
}  // namespace tessera
