#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "tessera/spmd/layout/storage.h"
#include "tessera/spmd/program.h"

namespace tessera::compiler {

struct CompileOptions;

/// The storage of changing states in the first program of a set that shares them: a training step and its evaluation,
/// or a program for any size and those for particular sizes. The first program's computation decides the storage; the
/// others are compiled for that storage. Example: a training step stores a table e as [97{tp}, 32]; an evaluation that
/// needs e whole gathers it for each use.
///
/// Each program decides the storage of states that do not change; ranks hold shards that two programs have in common
/// only once.
class SharedStates {
 public:
  /// `first` outlives it.
  explicit SharedStates(const spmd::Program& first);

  /// The changing states that are not pieces of a parameter. The other programs of the set must not cut them into
  /// pieces.
  const std::set<std::string>& undivided() const { return undivided_; }
  /// The storage of those that `graph` has. Their places follow from the places of the nodes that use them.
  spmd::Storage storage_in(const Graph& graph) const;
  /// Throws a user error if a state changes in only one of `other` and the first program, or if the two hold it in
  /// different pieces, shapes, layouts or places.
  void require_alike(const spmd::Program& other) const;

 private:
  void require_alike(const spmd::Placement& own, const spmd::Placement& other) const;

  const spmd::Program& first_;
  std::map<std::string_view, const spmd::Placement*> changing_;  // by the state's name
  std::map<std::string_view, bool> changes_;                     // by the name of the parameter
  std::set<std::string> undivided_;
};

/// Whether the model must be rewritten again: a storage request of `options` names a state that its rewritten form
/// holds in pieces or in a stack, or the program that it shares states with holds such a state as it is.
bool names_rewritten_state(const OnnxModel& model, const OnnxModel& rewritten, const CompileOptions& options);

/// Lets states of `program` share the memory of states of `like` with the same name and data.
void share_data(spmd::Program& program, const spmd::Program& like);

}  // namespace tessera::compiler
