#include "tessera/cli/layouts.h"

#include <algorithm>
#include <map>

#include "tessera/cli/program_tables.h"
#include "tessera/inspect.h"

namespace tessera::cli {
namespace {

/// Blocks of the model, by the parameters in them.
class Blocks {
 public:
  /// Up to the first number, "h.*" of "h.12.fc.weight"; else a known block that the name begins with, as an optimizer's
  /// "head.weight.momentum" does; else its module, "head" of "head.weight".
  std::string of(const std::string& parameter) {
    const std::string pattern = without_numbers(parameter);
    if (const size_t star = pattern.find('*'); star != std::string::npos) return pattern.substr(0, star + 1);
    for (const std::string& block : known_)
      if (pattern.starts_with(block + ".")) return block;
    const size_t point = pattern.rfind('.');
    return known_.emplace_back(point == std::string::npos ? pattern : pattern.substr(0, point));
  }

 private:
  std::vector<std::string> known_;
};

Json reshard_list(const std::vector<ReshardSummary>& reshards) {
  Json list = Json::array();
  for (const ReshardSummary& each : reshards)
    if (each.bytes > 0)  // slices are free
      list.push_back({{"to", each.to},
                      {"steps", each.steps},
                      {"bytes", each.bytes},
                      {"consumer", without_numbers(each.consumer)},
                      {"reason", without_numbers(each.reason)}});
  return list;
}

// The reasons of all places, each once.
void add_reasons(Json& entry, const Explanation& found) {
  std::vector<std::string> why, lost;
  const auto add = [](std::vector<std::string>& all, std::string text) {
    if (std::find(all.begin(), all.end(), text) == all.end()) all.push_back(std::move(text));
  };
  for (const Explanation::Place& place : found.places) {
    for (const Explanation::Axis& axis : place.axes)
      add(why, axis.axis + " on dimension " + std::to_string(axis.dim) +
                   (axis.part.empty() ? "" : ", part " + axis.part) + ": " +
                   (axis.round == 0 ? "annotated by " : "from ") + without_numbers(axis.by));
    for (const Explanation::Lost& each : place.lost)
      add(lost, "not " + each.axis + " on dimension " + std::to_string(each.dim) + ": " + without_numbers(each.reason));
  }
  entry["why"] = why;
  entry["lost"] = lost;
}

Json entry_of(const Explanation& found, const std::string& block, const std::map<std::string, int64_t>& bytes) {
  const std::string& name = found.tensor.name;
  Json entry = {{"tensor", without_numbers(name)}, {"count", 0}, {"block", block}};
  entry["kind"] = found.parameter == name ? "state" : "result";
  const Json port = port_json(found.tensor);
  entry["dtype"] = port["dtype"];
  entry["shape"] = port["shape"];
  if (const auto stored = bytes.find(name); stored != bytes.end()) entry["bytes"] = stored->second;
  std::vector<std::string> layouts;  // the first is the one in which it is stored, given or made
  for (const Explanation::Place& place : found.places)
    if (std::find(layouts.begin(), layouts.end(), place.layout) == layouts.end()) layouts.push_back(place.layout);
  entry["layout"] = layouts.empty() ? "" : layouts.front();
  if (!layouts.empty()) layouts.erase(layouts.begin());
  entry["uses"] = layouts;
  add_reasons(entry, found);
  entry["reshards"] = reshard_list(found.reshards);
  return entry;
}

}  // namespace

Json layouts_json(const Program& program) {
  std::map<std::string, int64_t> bytes;
  for (const StateInfo& state : program.states()) bytes[state.tensor.name] = state.bytes;
  Json list = Json::array();
  Blocks blocks;
  std::map<std::string, size_t> known;  // by all that entries say
  for (const Explanation& found : program.explanations()) {
    Json entry = entry_of(found, found.parameter.empty() ? "" : blocks.of(found.parameter), bytes);
    const auto [at, fresh] = known.try_emplace(entry.dump(-1, ' ', false, Json::error_handler_t::replace), list.size());
    if (fresh) list.push_back(std::move(entry));
    Json& count = list[at->second]["count"];
    count = count.get<int64_t>() + 1;
  }
  return list;
}

}  // namespace tessera::cli
