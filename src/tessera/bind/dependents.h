#pragma once

#include <set>
#include <unordered_map>

#include "tessera/bind/subject.h"
#include "tessera/bind/values.h"

namespace tessera::bind {

/// The parts of a binding that certain symbols can change.
struct Change {
  std::vector<const Value*> extents;    ///< values whose extents depend on one of the symbols
  std::vector<const Value*> elements;   ///< expressions whose elements depend on one
  std::vector<size_t> inputs, outputs;  ///< inputs and outputs of the program whose parts depend on one
  std::vector<int> communications;      ///< steps whose communication depends on one
};

/// Finds what depends on a binding's symbols, and the steps that read or make a value.
class Dependents {
 public:
  /// `expressions`: the bound ones. `asked`: for each step, the symbols that its communication depends on.
  Dependents(Subject subject, const std::vector<NodeGroup>& groups, const Values& values,
             std::vector<const Value*> expressions, std::vector<std::set<std::string, std::less<>>> asked);

  /// What these symbols can change. Only the rank's own thread may call this.
  const Change& on(const std::vector<std::string>& symbols) const;
  /// The steps that read or make the value, or a value in its memory.
  const std::vector<int>& steps_of(const Value* value) const;

 private:
  Change change_by(const std::vector<std::string>& symbols) const;

  Subject subject_;
  std::vector<const Value*> bound_, expressions_;  // values whose extents a binding has read
  std::vector<std::set<std::string, std::less<>>> asked_;
  std::unordered_map<const Value*, std::vector<int>> steps_of_;
  mutable std::map<std::vector<std::string>, Change> changes_;
};

}  // namespace tessera::bind
