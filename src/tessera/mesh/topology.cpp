#include "tessera/mesh/topology.h"

#include <algorithm>
#include <cmath>

#include "tessera/base/error.h"
#include "tessera/io/json_text.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kExample = R"({"axes": {"tp": [{"size": 4, "alpha": 1e-6, "bandwidth": 5e9}]}})";

// Reads one level; `where` names it in messages: "cluster.json: axis 'tp', level 0".
LinkLevel read_level(const Json& json, const std::string& where) {
  if (!json.is_object())
    fail("topology", "{} has type {}, but must be an object with size, alpha and bandwidth", where, json.type_name());
  LinkLevel level;
  for (const auto& [key, value] : json.items()) {
    auto number = [&, &key = key, &value = value] {
      if (!value.is_number())
        fail("topology", "{}: '{}' has type {}, but must be a number", where, key, value.type_name());
      return value.template get<double>();
    };
    if (key == "size") {
      if (!value.is_number_integer() || number() < 1)
        fail("topology", "{}: 'size' is {}, but must be a whole number of at least 1", where, value.dump());
      level.size = value.get<int64_t>();
    } else if (key == "alpha") {
      level.alpha = number();
      if (!std::isfinite(level.alpha) || level.alpha < 0)
        fail("topology", "{}: 'alpha' is {}; give a latency in seconds, at least 0", where, value.dump());
    } else if (key == "bandwidth") {
      level.bandwidth = number();
      if (!std::isfinite(level.bandwidth) || level.bandwidth <= 0)
        fail("topology", "{}: 'bandwidth' is {}; give bytes per second, more than 0", where, value.dump());
    } else if (key == "name") {
      if (!value.is_string())
        fail("topology", "{}: 'name' has type {}, but must be a string", where, value.type_name());
      level.name = value.get<std::string>();
    } else {
      fail("topology", "{} has no key '{}'; its keys are: size, alpha, bandwidth, name", where, key);
    }
  }
  for (std::string_view key : {"size", "alpha", "bandwidth"})
    if (!json.contains(key)) fail("topology", "{} has no '{}'; give it, as in {}", where, key, kExample);
  return level;
}

}  // namespace

const Topology::Axis* Topology::find(std::string_view axis) const {
  auto found = std::find_if(axes.begin(), axes.end(), [&](const Axis& entry) { return entry.name == axis; });
  return found == axes.end() ? nullptr : &*found;
}

void Topology::require_fits(const Mesh& mesh) const {
  for (const Axis& axis : axes) {
    auto index = mesh.find(axis.name);
    if (!index)
      fail("topology", "{}: the mesh '{}' has no axis '{}'; name its axes, or leave the entry out", source, mesh.str(),
           axis.name);
    int64_t size = 1;
    std::string product;
    for (const LinkLevel& level : axis.levels) {
      product += fmt::format("{}{}", product.empty() ? "" : " x ", level.size);
      size = level.size > (int64_t{1} << 24) / size ? -1 : size * level.size;
      if (size < 0) break;
    }
    const int64_t wanted = mesh.axes()[*index].size;
    if (size != wanted)
      fail("topology",
           "{}: the levels of axis '{}' join {} ranks, but the mesh has {}={}; their sizes must multiply to {}", source,
           axis.name, product, axis.name, wanted, wanted);
  }
}

Topology Topology::from_json(std::string_view text, std::string_view source) {
  const Json json = parse_json("topology", text, source);
  if (!json.is_object())
    fail("topology", "{}: a topology is an object, as {}, not {}", source, kExample, json.type_name());
  Topology topology;
  topology.source = source;
  for (const auto& [key, value] : json.items()) {
    if (key != "axes") fail("topology", "{}: a topology has no key '{}'; its only key is: axes", source, key);
    if (!value.is_object())
      fail("topology", "{}: 'axes' has type {}, but must map axes to levels, as {}", source, value.type_name(),
           kExample);
    for (const auto& [name, levels] : value.items()) {
      if (!levels.is_array() || levels.empty())
        fail("topology", "{}: axis '{}' must have a list of at least one level, as {}", source, name, kExample);
      Axis axis{name, {}};
      for (const Json& level : levels)
        axis.levels.push_back(
            read_level(level, fmt::format("{}: axis '{}', level {}", source, name, axis.levels.size())));
      topology.axes.push_back(std::move(axis));
    }
  }
  if (!json.contains("axes")) fail("topology", "{}: it has no 'axes'; give them, as in {}", source, kExample);
  return topology;
}

std::string Topology::to_json() const {
  Json all = Json::object();
  for (const Axis& axis : axes) {
    Json levels = Json::array();
    for (const LinkLevel& level : axis.levels) {
      Json entry = {{"size", level.size}, {"alpha", level.alpha}, {"bandwidth", level.bandwidth}};
      if (!level.name.empty()) entry["name"] = level.name;
      levels.push_back(std::move(entry));
    }
    all[axis.name] = std::move(levels);
  }
  return Json{{"axes", all}}.dump(2) + "\n";
}

}  // namespace tessera
