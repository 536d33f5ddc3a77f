#pragma once

#include <string>
#include <vector>

#include "tessera/sim/simulate.h"

/// Changes of what a class of ranks runs. The dependences of all other steps stay.
namespace tessera::whatif {

/// An operator beside a step: after it and before all that needs it, or before it and after all that it needs.
struct Insertion {
  int step = 0;
  bool after = true;
  std::string op, name;
  double seconds = 0;
};

/// Communications keep their queues.
sim::ClassProgram with_insertions(const sim::ClassProgram& program, const std::vector<Insertion>& insertions);

/// The same steps in the program's order, each communication waited for where it starts.
sim::ClassProgram without_overlap(const sim::ClassProgram& program);

/// The same, but this communication neither waits for other ranks nor takes time.
void drop_communication(sim::ClassProgram& program, size_t step);

}  // namespace tessera::whatif
