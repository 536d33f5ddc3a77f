#include "tessera/cli/program_tables.h"

#include <algorithm>
#include <charconv>

namespace tessera::cli {

std::string kind_of(std::string_view op) {
  std::string kind;
  for (const char letter : op) {
    const bool upper = letter >= 'A' && letter <= 'Z';
    if (upper && !kind.empty()) kind += '_';
    kind += static_cast<char>(upper ? letter - 'A' + 'a' : letter);
  }
  return kind;
}

void print_collectives(const Console& console, const ProgramSummary& summary) {
  if (summary.collectives.empty()) return console.say("communication: none");
  console.say("communication per run:");
  Table table({"kind", "axes", "count", "starts", "bytes received by rank 0"});
  for (const CollectiveSummary& entry : summary.collectives)
    table.add({entry.kind, joined(entry.axes, ","), std::to_string(entry.count), std::to_string(entry.starts),
               bytes_text(static_cast<double>(entry.bytes))});
  table.print(console);
}

void print_reshards(const Console& console, const std::vector<ReshardSummary>& reshards, size_t most) {
  constexpr int64_t kLarge = 1 << 20;
  Table table({"tensor, and its use", "from, to", "steps, and why", "bytes"});
  size_t printed = 0, left = 0;
  for (const ReshardSummary& entry : reshards) {
    if (entry.bytes == 0) continue;  // slices are free
    if (printed >= most && entry.bytes < kLarge) {
      ++left;
      continue;
    }
    ++printed;
    table.add({entry.tensor, entry.from, joined(entry.steps, " + "), bytes_text(static_cast<double>(entry.bytes))});
    table.add({"  for " + entry.consumer, entry.to, entry.reason, ""});
  }
  if (table.empty()) return;
  console.say("layout changes:");
  table.print(console);
  if (left) console.say("  … and " + std::to_string(left) + " more (--json has all)");
}

Json collectives_json(const ProgramSummary& summary) {
  Json list = Json::array();
  for (const CollectiveSummary& entry : summary.collectives)
    list.push_back({{"kind", entry.kind},
                    {"axes", entry.axes},
                    {"count", entry.count},
                    {"starts", entry.starts},
                    {"bytes", entry.bytes}});
  return list;
}

Json reshards_json(const std::vector<ReshardSummary>& reshards) {
  Json list = Json::array();
  for (const ReshardSummary& entry : reshards)
    list.push_back({{"tensor", entry.tensor},
                    {"consumer", entry.consumer},
                    {"from", entry.from},
                    {"to", entry.to},
                    {"steps", entry.steps},
                    {"bytes", entry.bytes},
                    {"reason", entry.reason.empty() ? Json() : Json(entry.reason)}});
  return list;
}

namespace {
Json infos_json(const std::vector<StateInfo>& states) {
  Json list = Json::array();
  for (const StateInfo& state : states) {
    Json entry = port_json(state.tensor);
    entry["bytes"] = state.bytes;
    entry["storage"] = state.pieces.empty() ? Json(state.storage) : Json(nullptr);
    entry["compute"] = state.compute.empty() ? Json(nullptr) : Json(state.compute.front());
    entry["uses"] = state.compute;
    entry["changes"] = state.changes;
    if (!state.pieces.empty()) entry["pieces"] = infos_json(state.pieces);
    if (!state.begin.empty()) entry["begin"] = state.begin;
    list.push_back(std::move(entry));
  }
  return list;
}
}  // namespace

Json states_json(const Program& program) {
  return infos_json(program.states());
}

Json port_json(const TensorInfo& port) {
  Json shape = Json::array();
  for (const std::string& extent : port.shape) {
    int64_t number = 0;
    auto [end, error] = std::from_chars(extent.data(), extent.data() + extent.size(), number);
    const bool whole = error == std::errc() && end == extent.data() + extent.size();
    shape.push_back(whole ? Json(number) : Json(extent));
  }
  return {{"name", port.name}, {"dtype", name_of(port.dtype)}, {"shape", shape}};
}

Json ports_json(const std::vector<TensorInfo>& ports) {
  Json list = Json::array();
  for (const TensorInfo& port : ports) list.push_back(port_json(port));
  return list;
}

Json mesh_json(const Mesh& mesh) {
  Json object = Json::object();
  for (const MeshAxis& axis : mesh.axes()) object[axis.name] = axis.size;
  return object;
}

std::string mesh_text(const Mesh& mesh) {
  const std::string ranks = counted(mesh.size(), "rank");
  return mesh.axes().empty() ? ranks : mesh.str() + " (" + ranks + ")";
}

std::string peak_text(const std::vector<int64_t>& peaks, int64_t process_ranks, int64_t process_bytes) {
  const int64_t rank = *std::max_element(peaks.begin(), peaks.end());
  std::string text = "at its peak a rank needs " + bytes_text(static_cast<double>(rank));
  if (process_ranks > 1)
    text += "; a process, with " + std::to_string(process_ranks) + " ranks, needs " +
            bytes_text(static_cast<double>(process_bytes));
  return text;
}

Json process_json(int64_t process_ranks, int64_t process_bytes, int64_t resident_bytes) {
  Json object = {{"ranks", process_ranks}, {"peak_bytes", process_bytes}};
  if (resident_bytes > 0) object["resident_bytes"] = resident_bytes;
  return object;
}

}  // namespace tessera::cli
