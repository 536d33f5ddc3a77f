#pragma once

#include "tessera/bind/machine.h"

namespace tessera::bind {

/// Collects the buffers of a machine program while it is made.
class Arena {
 public:
  Arena() = default;
  /// Starts from these buffers, for a binding in which some have other sizes.
  explicit Arena(std::vector<Lifetime> buffers) : buffers_(std::move(buffers)) {}

  /// A new buffer, needed during these actions.
  size_t add(size_t bytes, const Span& span, Occupant occupant);
  Location add_place(size_t bytes, const Span& span, Occupant occupant);
  const Lifetime& operator[](size_t buffer) const { return buffers_[buffer]; }
  void resize(size_t buffer, size_t bytes) { buffers_[buffer].bytes = bytes; }
  /// Keeps the buffer at least up to this action.
  void extend(size_t buffer, int action);
  /// Keeps both buffers for as long as either is needed.
  void live_together(size_t one, size_t other);

  const std::vector<Lifetime>& buffers() const { return buffers_; }
  std::vector<Occupant> take_occupants() { return std::move(occupants_); }

 private:
  std::vector<Lifetime> buffers_;
  std::vector<Occupant> occupants_;
};

/// Places the buffers in the arena, and staged copies in the staging memory.
void place_buffers(MachineProgram& machine, std::vector<Lifetime> buffers);

/// The contents of the arena at its peak, by name: for messages.
std::vector<device::NamedBytes> pieces_at_peak(const MachineProgram& machine);

}  // namespace tessera::bind
