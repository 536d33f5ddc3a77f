#pragma once

#include "random/machine.h"
#include "random/random_program.h"
#include "tessera/compiler/compile.h"

namespace tessera::random {

/// Sets the mesh, sizes and layouts that the program asks for.
inline void split_as(const Program& program, compiler::CompileOptions& options) {
  options.mesh = program.mesh;
  for (const auto& [symbol, value] : program.symbols) options.shapes[symbol] = value;
  for (const Order& order : program.orders)
    options.annotations.push_back({order.name, order.sharding.str(program.mesh), "annotation"});
  for (const Placing& placing : program.places)
    options.places.push_back({placing.name, print_place(placing.place, program.mesh), "place"});
  if (program.priced) options.machine = std::make_shared<const MachineModel>(machine_of("cpu"));
  if (program.rings) options.ring_attention = passes::RingAttention::always;
  options.product_rings = program.rings ? compiler::ProductRings::always : compiler::ProductRings::never;
  if (program.orders.empty() && program.mesh.size() > 1) options.presets = "dp:" + program.mesh.axes().front().name;
}

}  // namespace tessera::random
