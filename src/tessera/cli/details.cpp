#include "tessera/cli/details.h"

#include <CLI/CLI.hpp>
#include <map>

#include "tessera/cli/help.h"
#include "tessera/cli/layouts.h"
#include "tessera/trainer.h"

namespace tessera::cli {
namespace {

// In columns, an entry for each operation.
Json memory_json(const Program& program, const SymbolSizes& sizes) {
  const int64_t rank = largest_rank(program);
  Json operations = Json::array(), states = Json::array(), activations = Json::array(), gradients = Json::array(),
       buffers = Json::array();
  for (const MemoryMoment& moment : program.memory_over_time(rank, sizes)) {
    operations.push_back(moment.operation);
    states.push_back(moment.states);
    activations.push_back(moment.activations);
    gradients.push_back(moment.gradients);
    buffers.push_back(moment.buffers);
  }
  return {{"rank", rank},           {"operations", operations}, {"states", states}, {"activations", activations},
          {"gradients", gradients}, {"buffers", buffers}};
}

}  // namespace

void DetailOptions::declare(CLI::App& app) {
  under(app, Heading::output);
  app.add_flag(
      "--details", asked,
      "with --json: add the times of operators as a trace, memory over time, and the layouts of all tensors with "
      "their reasons, all of which tessera report shows");
}

void DetailOptions::check(const Console& console) const {
  if (asked && !console.json)
    throw Error(ErrorKind::user, "details", "--details are a part of the JSON object; give --json, too");
}

Json DetailOptions::of(const Program& program, const SymbolSizes& sizes, const std::optional<Forecast>& forecast,
                       const Trace* measured) const {
  Json object = Json::object();
  if (!asked) return object;
  object["memory"] = memory_json(program, sizes);
  if (Json layouts = layouts_json(program); !layouts.empty()) object["layouts"] = std::move(layouts);
  Json events = Json::array();
  if (measured && !measured->empty()) events = measured->events();
  if (forecast)
    for (Json& event : Trace::predicted(forecast->prediction, forecast->settings.machine.name, 1).events())
      events.push_back(std::move(event));
  if (!events.empty()) object["traceEvents"] = std::move(events);
  return object;
}

}  // namespace tessera::cli
