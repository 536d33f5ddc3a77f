#include "tessera/report/inputs.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/io/json_text.h"
#include "tessera/io/mapped_file.h"

namespace tessera::report {
namespace {

// Keys of which every answer that a report shows has one: of a run, a dry run, a simulation or a plan.
constexpr const char* kSections[] = {"predicted", "measured", "collectives", "latency_ms", "best", "layouts", "memory"};

bool is_answer(const Json& object) {
  return object.is_object() && object.contains("model") &&
         std::any_of(std::begin(kSections), std::end(kSections), [&](const char* key) { return object.contains(key); });
}

std::vector<double> numbers_at(const Json& object, const char* key, size_t count) {
  std::vector<double> numbers;
  for (const Json& each : list_at(object, key)) numbers.push_back(each.is_number() ? each.get<double>() : 0);
  numbers.resize(count);
  return numbers;
}

void read_memory(const Json& memory, const std::string& file, Inputs& inputs) {
  MemoryPlan plan{file, static_cast<int64_t>(number_at(memory, "rank")), {}, {}, {}, {}, {}};
  for (const Json& each : list_at(memory, "operations"))
    plan.operations.push_back(each.is_string() ? each.get<std::string>() : "");
  const size_t count = plan.operations.size();
  if (count == 0) return;
  plan.states = numbers_at(memory, "states", count);
  plan.activations = numbers_at(memory, "activations", count);
  plan.gradients = numbers_at(memory, "gradients", count);
  plan.buffers = numbers_at(memory, "buffers", count);
  inputs.memory.push_back(std::move(plan));
}

void read_file(const std::filesystem::path& path, Inputs& inputs) {
  const std::string file = path.string();
  Json object = parse_json("report", MappedFile::open(path, "report")->view(), file);
  if (object.is_object() && object.contains("error"))
    fail("report", "{} is the answer of a command that failed: {}", file, text_at(object, "error"));
  const bool traced = read_trace(object.is_array() ? object : list_at(object, "traceEvents"), file, inputs);
  const bool answers = is_answer(object);
  if (!traced && !answers)
    fail("report",
         "{} is JSON, but neither the answer of a run, a dry run, a simulation or a plan (`json`) nor a trace of one; "
         "name what tessera wrote",
         file);
  if (!answers) return;
  if (object.contains("memory")) read_memory(object["memory"], file, inputs);
  object.erase("traceEvents");
  inputs.answers.push_back({file, std::move(object)});
}

}  // namespace

const Json* Inputs::find(std::string_view path) const {
  for (const Answer& answer : answers) {
    const Json* at = &answer.object;
    for (std::string_view rest = path; at && !rest.empty();) {
      const size_t slash = rest.find('/');
      const std::string key(rest.substr(0, slash));
      rest = slash == std::string_view::npos ? std::string_view{} : rest.substr(slash + 1);
      at = at->is_object() && at->contains(key) ? &(*at)[key] : nullptr;
    }
    if (at && !at->is_null()) return at;
  }
  return nullptr;
}

Inputs read_inputs(const std::vector<std::filesystem::path>& files) {
  Inputs inputs;
  for (const std::filesystem::path& path : files) read_file(path, inputs);
  return inputs;
}

double number_at(const Json& object, const char* key, double otherwise) {
  if (!object.is_object()) return otherwise;
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : otherwise;
}

std::string text_at(const Json& object, const char* key) {
  if (!object.is_object()) return "";
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

const Json& list_at(const Json& object, const char* key) {
  static const Json& none = *new Json(Json::array());
  if (!object.is_object()) return none;
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? *found : none;
}

const Json& object_at(const Json& object, const char* key) {
  static const Json& none = *new Json(Json::object());
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_object() ? *found : none;
}

std::string axes_of(const Json& object) {
  std::string axes;
  for (const Json& axis : list_at(object, "axes"))
    if (axis.is_string()) axes += (axes.empty() ? "" : ",") + axis.get<std::string>();
  return axes;
}

}  // namespace tessera::report
