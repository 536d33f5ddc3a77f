#include "tessera/spmd/print.h"

#include <fmt/format.h>

#include "tessera/ir/text.h"

namespace tessera::spmd {

std::string print_program(const Program& program) {
  std::string text = fmt::format("# mesh {}\n", program.mesh.size() == 1 ? "of one rank" : program.mesh.str());
  auto layout = [&](const Value& value) -> std::string {
    auto placement = program.placements.find(&value);
    if (placement == program.placements.end()) return to_string(value.shape());
    return fmt::format("{}: {}", to_string(value.shape()), placement->second.sharding.str(program.mesh));
  };
  for (const Port& port : program.inputs) text += fmt::format("# input {} {}\n", port.name, layout(*port.value));
  for (const auto& value : program.graph->values())
    if (value->kind == ValueKind::state)
      text += fmt::format("# state {} {}{}\n", value->name, layout(*value),
                          program.derived.contains(value.get()) ? ", made by init" : "");
  TextOptions options;
  options.annotate = layout;
  if (program.init) text += print_text(*program.init, options);
  text += print_text(*program.graph, options);
  for (const Port& port : program.outputs)
    text += fmt::format("# output {} {}\n", port.name, port.value ? layout(*port.value) : "on other ranks");
  return text;
}

}  // namespace tessera::spmd
