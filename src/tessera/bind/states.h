#pragma once

#include "tessera/bind/outputs.h"

namespace tessera::bind {

/// A state's slot that gets its next value after a run.
struct NextValue {
  size_t slot = 0;
  const Value* copied = nullptr;  ///< to the slot's spare; null: it is made there
};

/// Where the states of a program that change are, and where their next values are made.
struct PlacedStates {
  std::vector<StateSlot*> slots;
  std::map<const Value*, size_t> slot_of;     ///< by state
  Destinations direct;                        ///< results that are made in the memory of states
  std::map<const Value*, const Value*> over;  ///< results that overwrite a state's value: that state
  std::vector<NextValue> next;                ///< of slots that have a spare
};

/// Gives each state that changes its slot. Its next value is made over the value that it has, if nobody reads that any
/// more by then; else aside, and the two change places after the run. What is read after the run, or is a view, is
/// copied. `taken`: results that are made elsewhere.
PlacedStates place_states(const Subject& subject, const std::vector<NodeGroup>& groups, const Values& values,
                          const Destinations& taken);

/// The exchanges after a run.
std::vector<Exchange> exchanges_of(const std::vector<NextValue>& next, const Values& values, Places& places);

}  // namespace tessera::bind
