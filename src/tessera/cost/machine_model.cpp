#include "tessera/cost/machine_model.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "tessera/base/error.h"
#include "tessera/io/json_text.h"

namespace tessera {
inline namespace v1 {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kStage = "machine";

/// An object of the file, with its place for messages: "h100.json: 'products.bfloat16'".
class Reader {
 public:
  Reader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) fail(kStage, "{} has type {}, but must be an object", where_, json.type_name());
  }

  std::string text(const char* key, std::string otherwise = "") {
    const Json* value = find(key);
    if (!value) return otherwise;
    if (!value->is_string()) fail(kStage, "{} has type {}, but must be a string", place(key), value->type_name());
    return value->get<std::string>();
  }
  /// A finite number of at least `least`.
  double number(const char* key, double least, std::optional<double> otherwise = std::nullopt) {
    const Json* value = find(key);
    if (!value) {
      if (!otherwise) fail(kStage, "{} has no '{}'; add it", where_, key);
      return *otherwise;
    }
    return number_of(*value, place(key), least);
  }
  static double number_of(const Json& value, const std::string& place, double least) {
    if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < least)
      fail(kStage, "{} is {}, but must be a number of at least {}", place, value.dump(), least);
    return value.get<double>();
  }
  int64_t whole(const char* key, int64_t least, int64_t otherwise) {
    const Json* value = find(key);
    if (!value) return otherwise;
    if (!value->is_number_integer() || value->get<int64_t>() < least)
      fail(kStage, "{} is {}, but must be a whole number of at least {}", place(key), value->dump(), least);
    return value->get<int64_t>();
  }
  bool flag(const char* key) {
    const Json* value = find(key);
    if (!value) return false;
    if (!value->is_boolean()) fail(kStage, "{} is {}, but must be true or false", place(key), value->dump());
    return value->get<bool>();
  }
  void each_in_list(const char* key, const std::function<void(const Json&, const std::string& place)>& read) {
    const Json* value = find(key);
    if (!value) return;
    if (!value->is_array()) fail(kStage, "{} has type {}, but must be a list", place(key), value->type_name());
    for (size_t i = 0; i < value->size(); ++i) read((*value)[i], fmt::format("{}[{}]", place(key), i));
  }
  void each_in_object(const char* key,
                      const std::function<void(const std::string& name, const Json&, const std::string& place)>& read) {
    const Json* value = find(key);
    if (!value) return;
    if (!value->is_object()) fail(kStage, "{} has type {}, but must be an object", place(key), value->type_name());
    for (const auto& [name, each] : value->items()) read(name, each, place(key) + "." + name);
  }
  std::map<std::string, std::string> texts(const char* key) {
    std::map<std::string, std::string> all;
    each_in_object(key, [&](const std::string& name, const Json& value, const std::string& place) {
      if (!value.is_string()) fail(kStage, "{} has type {}, but must be a string", place, value.type_name());
      all[name] = value.get<std::string>();
    });
    return all;
  }
  /// Rejects keys that have not been read.
  void require_known() const {
    for (const auto& [key, value] : json_.items())
      if (std::find(asked_.begin(), asked_.end(), key) == asked_.end())
        fail(kStage, "{} has no key '{}'; its keys are: {}", where_, key, fmt::join(asked_, ", "));
  }

 private:
  const Json* find(const char* key) {
    asked_.emplace_back(key);
    const auto found = json_.find(key);
    return found == json_.end() ? nullptr : &*found;
  }
  std::string place(const char* key) const { return fmt::format("{}: '{}'", where_, key); }

  const Json& json_;
  std::string where_;
  std::vector<std::string> asked_;
};

MachineModel::Product read_product(const Json& json, const std::string& place) {
  Reader reader(json, place);
  MachineModel::Product product;
  product.flops = reader.number("flops", 1);
  size_t extent = 0;
  reader.each_in_list("half", [&](const Json& value, const std::string& at) {
    if (extent == 3) fail(kStage, "{}: 'half' has three numbers: of rows, columns and depth", place);
    product.half[extent++] = Reader::number_of(value, at, 0);
  });
  if (extent != 0 && extent != 3) fail(kStage, "{}: 'half' has three numbers: of rows, columns and depth", place);
  product.multiple = reader.whole("multiple", 1, product.multiple);
  product.otherwise = reader.number("otherwise", 1e-9, product.otherwise);
  if (product.otherwise > 1) fail(kStage, "{}: 'otherwise' is {}; it is a share, at most 1", place, product.otherwise);
  reader.require_known();
  return product;
}

MachineModel::Bandwidth read_bandwidth(const Json& json, const std::string& place) {
  Reader reader(json, place);
  MachineModel::Bandwidth level;
  level.up_to = reader.number("up_to", 1, level.up_to);
  level.bytes_per_second = reader.number("bytes_per_second", 1);
  reader.require_known();
  return level;
}

MachineModel::Link read_link(const Json& json, const std::string& place) {
  Reader reader(json, place);
  MachineModel::Link link;
  link.name = reader.text("name");
  link.size = reader.whole("size", 1, 0);
  link.alpha = reader.number("alpha", 0);
  link.bandwidth = reader.number("bandwidth", 1);
  reader.require_known();
  return link;
}

MachineModel::Kernel read_kernel(const Json& json, const std::string& place) {
  Reader reader(json, place);
  MachineModel::Kernel kernel;
  kernel.seconds = reader.number("seconds", 0);
  kernel.scatter = reader.number("scatter", 0, 0);
  kernel.flops = reader.number("flops", 0, 0);
  kernel.bytes = reader.number("bytes", 0, 0);
  kernel.uncertain = reader.flag("uncertain");
  reader.require_known();
  return kernel;
}

MachineModel::Overlap read_overlap(Reader& reader) {
  return {reader.number("slows_computation", 1, 1), reader.number("slowed_by_computation", 1, 1)};
}

Json overlap_json(const MachineModel::Overlap& overlap) {
  return {{"slows_computation", overlap.slows_computation}, {"slowed_by_computation", overlap.slowed_by_computation}};
}

MachineModel::Collective read_collective(const Json& json, const std::string& place) {
  Reader reader(json, place);
  MachineModel::Collective collective;
  collective.engine = reader.text("engine");
  collective.kind = reader.text("kind");
  collective.members = reader.whole("members", 1, 1);
  collective.ranks = reader.whole("ranks", 1, collective.members);
  reader.each_in_list("points", [&](const Json& value, const std::string& at) {
    if (!value.is_array() || value.size() != 2) fail(kStage, "{} must be a pair [bytes, seconds]", at);
    collective.points.emplace_back(Reader::number_of(value[0], at, 0), Reader::number_of(value[1], at, 0));
  });
  if (collective.points.empty()) fail(kStage, "{} has no 'points'; give pairs of bytes and seconds", place);
  if (!std::is_sorted(collective.points.begin(), collective.points.end()))
    fail(kStage, "{}: 'points' must be in ascending order of bytes", place);
  reader.require_known();
  return collective;
}

}  // namespace

MachineModel MachineModel::from_json(std::string_view text, std::string_view source) {
  const Json json = parse_json(kStage, text, source);
  Reader reader(json, std::string(source));
  MachineModel model;
  model.source = source;
  model.name = reader.text("name", model.source);
  model.device = reader.text("device", model.device);
  if (model.device != "cpu" && model.device != "simulated")
    fail(kStage, "{}: 'device' is '{}', but must be cpu, or simulated (for accelerators)", source, model.device);
  model.processor = reader.text("processor");
  reader.each_in_list("instruction_sets", [&](const Json& value, const std::string& place) {
    if (!value.is_string()) fail(kStage, "{} has type {}, but must be a string", place, value.type_name());
    model.instruction_sets.push_back(value.get<std::string>());
  });
  model.libraries = reader.texts("libraries");
  model.date = reader.text("date");
  model.cores = static_cast<int>(reader.whole("cores", 1, 0));
  model.memory = reader.number("memory", 0, 0);
  model.kernel = reader.number("kernel", 0, 0);
  reader.each_in_object("products", [&](const std::string& name, const Json& value, const std::string& place) {
    const DType dtype = dtype_named(name);
    if (dtype == DType::undefined) fail(kStage, "{}: there is no element type '{}'", place, name);
    model.products[dtype] = read_product(value, place);
  });
  reader.each_in_object("rates", [&](const std::string& name, const Json& value, const std::string& place) {
    model.rates[name] = Reader::number_of(value, place, 1e-9);
  });
  reader.each_in_list("bandwidths", [&](const Json& value, const std::string& place) {
    model.bandwidths.push_back(read_bandwidth(value, place));
    const size_t count = model.bandwidths.size();
    if (count > 1 && model.bandwidths[count - 1].up_to <= model.bandwidths[count - 2].up_to)
      fail(kStage, "{}: bandwidths must be in ascending order of 'up_to', each once", place);
  });
  if (model.bandwidths.empty()) fail(kStage, "{} has no 'bandwidths'; give at least that of main memory", source);
  reader.each_in_list("links", [&](const Json& value, const std::string& place) {
    if (!model.links.empty() && model.links.back().size == 0)
      fail(kStage, "{}: the level before it has no 'size', so it joins all ranks; give it a size", place);
    model.links.push_back(read_link(value, place));
  });
  const std::string progress = reader.text("progress", "background");
  if (progress != "background" && progress != "at_wait")
    fail(kStage, "{}: 'progress' is '{}', but must be background or at_wait", source, progress);
  model.progress = progress == "at_wait" ? Progress::at_wait : Progress::background;
  model.overlap = read_overlap(reader);
  reader.each_in_object("overlaps", [&](const std::string& name, const Json& value, const std::string& place) {
    Reader entry(value, place);
    model.overlaps[name] = read_overlap(entry);
    entry.require_known();
  });
  reader.each_in_object("kernels", [&](const std::string& name, const Json& value, const std::string& place) {
    model.kernels[name] = read_kernel(value, place);
  });
  reader.each_in_list("collectives", [&](const Json& value, const std::string& place) {
    model.collectives.push_back(read_collective(value, place));
  });
  model.sources = reader.texts("sources");
  reader.require_known();
  return model;
}

std::string MachineModel::to_json() const {
  Json json = {{"name", name}, {"device", device}};
  if (!processor.empty()) json["processor"] = processor;
  if (!instruction_sets.empty()) json["instruction_sets"] = instruction_sets;
  if (!libraries.empty()) json["libraries"] = libraries;
  if (!date.empty()) json["date"] = date;
  if (cores > 0) json["cores"] = cores;
  if (memory > 0) json["memory"] = memory;
  json["kernel"] = kernel;
  for (const auto& [dtype, product] : products) {
    Json& entry = json["products"][std::string(name_of(dtype))];
    entry = {{"flops", product.flops}, {"half", product.half}};
    if (product.multiple > 1) entry.update({{"multiple", product.multiple}, {"otherwise", product.otherwise}});
  }
  if (!rates.empty()) json["rates"] = rates;
  for (const Bandwidth& level : bandwidths) {
    Json entry = Json::object();
    if (std::isfinite(level.up_to)) entry["up_to"] = level.up_to;
    entry["bytes_per_second"] = level.bytes_per_second;
    json["bandwidths"].push_back(entry);
  }
  for (const Link& link : links) {
    Json entry = {{"name", link.name}};
    if (link.size > 0) entry["size"] = link.size;
    entry["alpha"] = link.alpha;
    entry["bandwidth"] = link.bandwidth;
    json["links"].push_back(entry);
  }
  json["progress"] = progress == Progress::at_wait ? "at_wait" : "background";
  json.update(overlap_json(overlap));
  for (const auto& [engine, each] : overlaps) json["overlaps"][engine] = overlap_json(each);
  for (const Collective& each : collectives)
    json["collectives"].push_back({{"engine", each.engine},
                                   {"kind", each.kind},
                                   {"members", each.members},
                                   {"ranks", each.ranks},
                                   {"points", each.points}});
  for (const auto& [signature, each] : kernels) {
    Json& entry = json["kernels"][signature];
    entry = {{"seconds", each.seconds}, {"scatter", each.scatter}, {"flops", each.flops}, {"bytes", each.bytes}};
    if (each.uncertain) entry["uncertain"] = true;
  }
  if (!sources.empty()) json["sources"] = sources;
  return json.dump(1) + "\n";
}

const MachineModel::Overlap& MachineModel::overlap_on(const std::string& engine) const {
  const auto measured = overlaps.find(engine);
  return measured == overlaps.end() ? overlap : measured->second;
}

Topology MachineModel::topology(const Mesh& mesh) const {
  Topology topology;
  topology.source = source;
  if (links.empty()) return topology;
  size_t at = 0;     // the level
  int64_t used = 1;  // units of it that the axes so far take
  const auto& axes = mesh.axes();
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    Topology::Axis entry{axis->name, {}};
    int64_t left = axis->size;
    while (left > 1) {
      if (at == links.size())
        fail(kStage,
             "{} joins at most {} of the mesh's {} ranks; add a level of links to the file, or use a smaller mesh",
             source, mesh.size() / left, mesh.size());
      const Link& link = links[at];
      const int64_t room = link.size == 0 ? left : link.size / used;
      if (room <= 1) {
        ++at;
        used = 1;
        continue;
      }
      const int64_t here = std::min(room, left);
      if (left % here != 0)
        fail(kStage,
             "{}: axis '{}' of the mesh {} crosses the boundary of level '{}', whose {} units do not divide it; give "
             "the axis a size that is a multiple of {}",
             source, axis->name, mesh.str(), link.name, link.size, room);
      entry.levels.push_back({here, link.alpha, link.bandwidth, link.name});
      used *= here;
      left /= here;
    }
    if (entry.levels.empty()) entry.levels.push_back({axis->size, links.front().alpha, links.front().bandwidth, ""});
    topology.axes.insert(topology.axes.begin(), std::move(entry));
  }
  return topology;
}

}  // namespace v1
}  // namespace tessera
