#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "tessera/spmd/layout/storage.h"
#include "tessera/spmd/program.h"

namespace tessera::compiler {

struct CompileOptions;

/// How the first program of a set over the same states holds those that change: a training step for its evaluation, a
/// program for any size for those of certain sizes. Its storage is decided by what it computes; the others of the set
/// are compiled to that storage, whatever they compute. Example, of a table e that a step stores as [97{tp}, 32]: an
/// evaluation that needs e whole gathers it for each use.
///
/// States that do not change are left to each program, since ranks hold what two programs use alike only once.
class SharedStates {
 public:
  /// `first` outlives it.
  explicit SharedStates(const spmd::Program& first);

  /// Those that change and are states themselves, not pieces of a parameter. The others of the set keep them whole.
  const std::set<std::string>& undivided() const { return undivided_; }
  /// How those of them that `graph` has are stored. Their places follow from the places of the nodes that use them.
  spmd::Storage storage_in(const Graph& graph) const;
  /// Throws a user error for a state of `other` that changes there, but not in the first program, or the other way
  /// round, and for one that both hold in different pieces, shapes, layouts or places.
  void require_alike(const spmd::Program& other) const;

 private:
  void require_alike(const spmd::Placement& own, const spmd::Placement& other) const;

  const spmd::Program& first_;
  std::map<std::string_view, const spmd::Placement*> changing_;  // by the state's name
  std::map<std::string_view, bool> changes_;                     // by the name of the parameter
  std::set<std::string> undivided_;
};

/// Whether a request of `options` for storage names a state of the model that its rewritten form holds in pieces, or
/// stacked with others, or the program that it shares states with has it as it is: then the model has to be rewritten
/// again.
bool names_rewritten_state(const OnnxModel& model, const OnnxModel& rewritten, const CompileOptions& options);

/// Lets states of `program` that are states of `like` too, with the same data, share its memory.
void share_data(spmd::Program& program, const spmd::Program& like);

}  // namespace tessera::compiler
