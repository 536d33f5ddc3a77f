#include "tessera/cli/memory_plan.h"

#include <nlohmann/json.hpp>

#include "tessera/files.h"

namespace tessera::cli {

void write_memory_plan(const Program& program, int64_t rank, const std::string& path) {
  using Json = nlohmann::ordered_json;
  std::string text = "[";
  int64_t time = 0;
  for (const MemoryMoment& moment : program.memory_over_time(rank)) {
    const Json counter = {{"name", "bytes"},
                          {"ph", "C"},
                          {"pid", rank},
                          {"ts", time},
                          {"args",
                           {{"states", moment.states},
                            {"activations", moment.activations},
                            {"gradients", moment.gradients},
                            {"buffers", moment.buffers}}}};
    const Json operation = {
        {"name", moment.operation}, {"ph", "X"}, {"pid", rank}, {"tid", 0}, {"ts", time}, {"dur", 1}};
    text += (time == 0 ? "\n" : ",\n") + counter.dump() + ",\n" + operation.dump();
    ++time;
  }
  write_file(path, text + "\n]\n");
}

}  // namespace tessera::cli
