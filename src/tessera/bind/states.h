#pragma once

#include "tessera/bind/outputs.h"

namespace tessera::bind {

/// A slot that gets its next value after a run.
struct NextValue {
  size_t slot = 0;
  const Value* copied = nullptr;  ///< the value copied to the slot's spare; null: it is made there
};

/// Where the states that change are, and where their next values are made.
struct PlacedStates {
  std::vector<StateSlot*> slots;
  std::map<const Value*, size_t> slot_of;     ///< by state
  Destinations direct;                        ///< results that are made in the memory of states
  std::map<const Value*, const Value*> over;  ///< results that overwrite a state, with the state
  std::vector<NextValue> next;                ///< of slots with a spare
};

/// Gives each state that changes its slot. Its next value overwrites the current one if that is not read afterwards.
/// Otherwise it is made in the spare, and the two are exchanged after the run. A next value that is an output or a view
/// is copied. `taken`: results that already have a place.
PlacedStates place_states(const Subject& subject, const std::vector<NodeGroup>& groups, const Values& values,
                          const Destinations& taken);

/// The exchanges after a run.
std::vector<Exchange> exchanges_of(const std::vector<NextValue>& next, const Values& values, Places& places);

}  // namespace tessera::bind
