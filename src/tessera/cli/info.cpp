#include "tessera/cli/command.h"
#include "tessera/inspect.h"
#include "tessera/launch.h"

namespace tessera::cli {
namespace {

class Info : public Command {
 public:
  void declare(CLI::App&) override {}

  int run(Console& console) override {
    MachineInfo found = machine();
    const std::vector<EngineInfo> engines = tessera::engines();
    if (console.json) {
      Json usable = Json::array();
      for (const EngineInfo& engine : engines)
        usable.push_back({{"name", engine.name},
                          {"description", engine.description},
                          {"usable", engine.missing.empty()},
                          {"missing", engine.missing}});
      Json presets = Json::array();
      for (const PresetInfo& preset : found.presets)
        presets.push_back({{"name", preset.name}, {"axes", preset.axes}, {"description", preset.description}});
      console.emit({{"version", version()},
                    {"instruction_sets", found.instruction_sets},
                    {"cores", found.cores},
                    {"engines", usable},
                    {"presets", presets}});
      return kGood;
    }
    console.say("tessera " + std::string(version()));
    console.say("instruction sets: " + (found.instruction_sets.empty() ? "baseline" : joined(found.instruction_sets)));
    console.say("cores: " + std::to_string(found.cores) + ", divided among the ranks, at least 1 thread each");
    console.say("engines:");
    Table kinds({"name", "what it is", "here"});
    for (const EngineInfo& engine : engines)
      kinds.add({engine.name, engine.description, engine.missing.empty() ? "usable" : engine.missing});
    kinds.print(console);
    console.say("presets:");
    Table table({"name", "axis", "what it does"});
    for (const PresetInfo& preset : found.presets) table.add({preset.name, preset.axes, preset.description});
    table.print(console);
    return kGood;
  }
};

}  // namespace

std::unique_ptr<Command> make_info() {
  return std::make_unique<Info>();
}

}  // namespace tessera::cli
