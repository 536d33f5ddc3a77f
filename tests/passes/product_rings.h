#pragma once

#include <string>
#include <vector>

#include "tessera/passes/collective_products.h"

namespace tessera::passes {

/// Lets all collectives that can go around rings beside products do so, and gives the pass' notes.
inline std::vector<std::string> put_products_in_rings(spmd::Program& program, const RingForm& form) {
  std::vector<std::string> notes;
  const Topology topology;
  Context context{topology, notes};
  context.choose_rings = [&](const spmd::Program& chosen) {
    std::vector<RingChoice> all;
    for (const ProductCollective& each : product_collectives(chosen))
      if (each.is_candidate()) all.push_back({each.at, form});
    return all;
  };
  collective_products(program, context);
  spmd::verify(program, "collective_products");
  return notes;
}

}  // namespace tessera::passes
