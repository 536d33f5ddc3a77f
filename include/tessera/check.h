#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/tessera.h"

/// Proofs about a program, before anything runs.
namespace tessera {
inline namespace v1 {

/// Why a program is wrong.
struct CheckFinding {
  /// What does not hold:
  ///   order      members of a group meet the same collectives in the same order
  ///   shape      what they state about types, shapes and members fits together
  ///   message    sends and receives pair up
  ///   cycle      nobody waits in a circle, or for a rank that has ended
  ///   layout     a communication changes a tensor's layout as it says
  ///   partial    a partial value is reduced before it is used as whole
  ///   function   the functions that collectives are lowered to are those that their metadata say
  ///   meaning    a written program computes what it was proved to compute when it was written
  ///   output     all ranks that give the same part of an output have the same of it
  ///   type       a node's result is of the type that is stated
  std::string rule;
  std::string message;  ///< names ranks, nodes, and what clashes

  /// A node on a rank.
  struct Place {
    int64_t rank = 0;
    std::string node;  ///< "AllReduce 'h'"; "" for a rank that has ended
  };
  std::vector<Place> places;  ///< that clash; of a cycle, in the order in which each waits for the next
};

struct CheckReport {
  int64_t ranks = 0;
  int64_t models = 0;          ///< that differ; like ranks run the same
  int64_t communications = 0;  ///< of all ranks, in one step
  std::vector<CheckFinding> findings;

  bool good() const { return findings.empty(); }
};

/// Follows all ranks through their communications, on classes of like ranks, and proves that members of a group meet
/// the same collectives in the same order and with matching types and shapes, that sends meet receives, that no ranks
/// wait in a circle, that every value's layout follows from how it was made, and that ranks which give the same part of
/// an output, or keep the same part of a state, have the same of it. What comes after a clash means little, so one
/// clash is reported, of a circle the shortest.
CheckReport check_program(const Program& program);

/// Model files of a written program that are not as they were written, relative to its folder.
std::vector<std::string> changed_models(const std::filesystem::path& folder);

/// Checks the program with such models, and if it is good takes them over as they are: from now on it is read with
/// them.
CheckReport accept_changed_models(const std::filesystem::path& folder);

}  // namespace v1
}  // namespace tessera
