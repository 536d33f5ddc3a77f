#include "tessera/compiler/device_faults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/ir/glob.h"
#include "tessera/ir/text.h"
#include "tessera/rewrite/pipeline.h"

namespace tessera::compiler {

DefaultDevices::DefaultDevices(const Graph& graph, const DeviceConfiguration& configuration) {
  for (int64_t device = 0; device < configuration.num_devices; ++device) all_.push_back(device);
  std::map<int64_t, std::set<int64_t>> named;
  for (const auto& node : graph.nodes())
    for (const NodeDevices& annotation : device_annotations(*node)) {
      if (annotation.configuration != configuration.name || !annotation.stage) continue;
      auto& devices = named[*annotation.stage];
      for (const ShardingSpec& spec : annotation.specs)
        for (const auto& holders : holders_of(spec, {})) devices.insert(holders.begin(), holders.end());
    }
  const auto stages = static_cast<int64_t>(named.size());
  int64_t index = 0;
  for (const auto& [stage, devices] : named) {
    auto& list = of_stage_[stage];
    list.assign(devices.begin(), devices.end());
    const int64_t count = configuration.num_devices;
    const int64_t begin = index * count / stages, end = (index + 1) * count / stages;
    if (list.empty())
      for (int64_t device = begin; device < std::max(begin + 1, end) && device < count; ++device)
        list.push_back(device);
    ++index;
  }
}

const std::vector<int64_t>& DefaultDevices::of(const NodeDevices& annotation) const {
  const auto stage = annotation.stage ? of_stage_.find(*annotation.stage) : of_stage_.end();
  return stage == of_stage_.end() ? all_ : stage->second;
}

std::vector<std::vector<int64_t>> holders_of(const ShardingSpec& spec, const std::vector<int64_t>& otherwise) {
  std::vector<std::vector<int64_t>> holders;
  for (int64_t entry : spec.devices.empty() ? otherwise : spec.devices) {
    auto group = std::find_if(spec.groups.begin(), spec.groups.end(),
                              [&](const DeviceGroup& candidate) { return candidate.key == entry; });
    holders.push_back(group == spec.groups.end() ? std::vector<int64_t>{entry} : group->devices);
    std::sort(holders.back().begin(), holders.back().end());
  }
  return holders;
}

int64_t shards_of(const ShardingSpec& spec) {
  int64_t shards = 1;
  for (const ShardedAxis& axis : spec.axes)
    for (const ShardedFactor& factor : axis.factors)
      if (__builtin_mul_overflow(shards, factor.shards, &shards)) return std::numeric_limits<int64_t>::max();
  return shards;
}

std::optional<Expr> size_of(const ShardedFactor& factor, const Expr& extent) {
  if (factor.size) return Expr(*factor.size);
  std::set<std::string> symbols;
  extent.collect_symbols(symbols);
  return symbols.contains(factor.symbol) ? std::optional(Expr::symbol(factor.symbol)) : std::nullopt;
}

std::map<std::string, Shape> shapes_of(const OnnxModel& model, const std::set<std::string>& names) {
  std::map<std::string, Shape> shapes;
  auto read = [&](const Graph& graph) {
    for (const std::string& name : names)
      if (const Value* value = graph.find(name); value && value->has_shape()) shapes.emplace(name, value->shape());
  };
  read(*model.graph);
  if (shapes.size() == names.size()) return shapes;
  if (const auto rewritten = rewrite::rewritten_if_possible(model, names)) read(*rewritten->graph);
  return shapes;
}

namespace {

class FaultFinder {
 public:
  FaultFinder(const OnnxModel& model, const std::string& only)
      : model_(model), only_(only), configurations_(device_configurations(model)) {}

  std::vector<DeviceFault> run() {
    if (configurations_.empty() && count_annotated(model_) == 0) return {};
    look_at_configurations();
    find_shapes();
    look_at(*model_.graph, true);
    for (const Function& function : model_.functions) look_at(*function.body, false);
    return std::move(faults_);
  }

 private:
  static constexpr int64_t kMostDevices = 1 << 20;

  static bool is_possible(const DeviceConfiguration& configuration) {
    return configuration.num_devices >= 1 && configuration.num_devices <= kMostDevices;
  }

  template <typename... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    std::string where = node_.empty() ? "" : node_ + ", ";
    where += fmt::format("configuration '{}'", configuration_);
    if (!tensor_.empty()) where += fmt::format(", '{}'", tensor_);
    faults_.push_back({node_, fmt::format("{}: {}", where, fmt::format(format, std::forward<Args>(args)...))});
  }

  const DeviceConfiguration* declared(const std::string& name) const {
    const auto found = std::find_if(configurations_.begin(), configurations_.end(),
                                    [&](const DeviceConfiguration& candidate) { return candidate.name == name; });
    return found == configurations_.end() ? nullptr : &*found;
  }

  // A configuration that the model does not declare is a fault whichever one is requested, since it cannot be requested
  // by name.
  bool is_asked(const std::string& configuration) const {
    return only_.empty() || only_ == configuration || !declared(configuration);
  }

  void look_at_configurations() {
    std::set<std::string> names;
    for (const DeviceConfiguration& configuration : configurations_) {
      if (!is_asked(configuration.name)) continue;
      configuration_ = configuration.name;
      if (!names.insert(configuration.name).second) say("the model has two of this name; give each its own");
      if (configuration.name.empty()) say("it has no name; give it one");
      if (!is_possible(configuration))
        say("it has {} devices; give it 1 to {}", configuration.num_devices, kMostDevices);
      else if (!configuration.devices.empty() &&
               static_cast<int64_t>(configuration.devices.size()) != configuration.num_devices)
        say("it has {} devices, but names {}; name all or none", configuration.num_devices,
            configuration.devices.size());
    }
  }

  // The shapes of the tensors whose axes are annotated.
  void find_shapes() {
    std::set<std::string> names;
    for (const auto& node : model_.graph->nodes())
      for (const NodeDevices& annotation : device_annotations(*node))
        for (const ShardingSpec& spec : annotation.specs)
          if (is_asked(annotation.configuration) && !spec.axes.empty() && model_.graph->find(spec.tensor))
            names.insert(spec.tensor);
    if (!names.empty()) shapes_ = shapes_of(model_, names);
  }

  void look_at(const Graph& graph, bool main) {
    for (const auto& node : graph.nodes()) {
      std::set<std::string> seen;
      for (const NodeDevices& annotation : device_annotations(*node)) {
        if (!is_asked(annotation.configuration)) continue;
        node_ = node->label();
        configuration_ = annotation.configuration;
        tensor_.clear();
        if (!seen.insert(configuration_).second) say("the node has two entries for it; merge them");
        look_at(*node, annotation, main);
      }
      for (const Graph* region : node->regions()) look_at(*region, false);
    }
    node_.clear();
    tensor_.clear();
  }

  void look_at(const Node& node, const NodeDevices& annotation, bool main) {
    const DeviceConfiguration* configuration = declared(annotation.configuration);
    if (!configuration) {
      std::vector<std::string> names;
      for (const DeviceConfiguration& known : configurations_) names.push_back("'" + known.name + "'");
      return say("the model does not declare this configuration, {}; declare it, or correct the name in the node",
                 names.empty() ? "nor any other" : fmt::format("but {}", fmt::join(names, ", ")));
    }
    if (!is_possible(*configuration)) return;
    if (annotation.stage && *annotation.stage < 0)
      say("{} is not a stage of a pipeline; number stages from 0", *annotation.stage);
    auto defaults = defaults_.find(configuration->name);
    if (defaults == defaults_.end())
      defaults = defaults_.emplace(configuration->name, DefaultDevices(*model_.graph, *configuration)).first;
    std::set<std::string> seen;
    for (const ShardingSpec& spec : annotation.specs) {
      tensor_ = spec.tensor;
      if (!seen.insert(spec.tensor).second) say("the node lays it out twice; do so once");
      look_at(node, spec, *configuration, defaults->second.of(annotation), main);
    }
    tensor_.clear();
  }

  void look_at(const Node& node, const ShardingSpec& spec, const DeviceConfiguration& configuration,
               const std::vector<int64_t>& otherwise, bool main) {
    std::vector<std::string_view> names;
    for (const Value* operand : node.inputs)
      if (operand) names.push_back(operand->name);
    for (const Value* result : node.outputs)
      if (result) names.push_back(result->name);
    if (std::find(names.begin(), names.end(), spec.tensor) == names.end())
      return say("it is neither an operand nor a result of the node{}", nearest_names(names, spec.tensor));
    look_at_devices(spec, configuration, otherwise);
    look_at_axes(spec, main ? known_shape(spec.tensor) : shape_in_body(node, spec.tensor));
  }

  const Shape* known_shape(const std::string& tensor) const {
    const auto shape = shapes_.find(tensor);
    return shape == shapes_.end() ? nullptr : &shape->second;
  }

  // The shape of the body's value, or of the outer one that the body captures.
  const Shape* shape_in_body(const Node& node, const std::string& tensor) const {
    for (const auto* values : {&node.inputs, &node.outputs})
      for (const Value* value : *values)
        if (value && value->name == tensor && value->has_shape()) return &value->shape();
    const Value* outer = model_.graph->find(tensor);
    return outer && outer->has_shape() ? &outer->shape() : nullptr;
  }

  void look_at_devices(const ShardingSpec& spec, const DeviceConfiguration& configuration,
                       const std::vector<int64_t>& otherwise) {
    std::map<int64_t, const DeviceGroup*> groups;
    for (const DeviceGroup& group : spec.groups) {
      if (!groups.emplace(group.key, &group).second) say("the group {} is defined twice; define it once", group.key);
      if (group.devices.empty()) say("the group {} has no devices; name at least one", group.key);
      std::set<int64_t> members;
      for (int64_t device : group.devices) {
        if (device < 0 || device >= configuration.num_devices)
          say("the group {} has the device {}, but the configuration's devices are 0 to {}", group.key, device,
              configuration.num_devices - 1);
        if (!members.insert(device).second)
          say("the group {} names the device {} twice; name it once", group.key, device);
      }
    }
    std::set<int64_t> reported;
    for (int64_t entry : spec.devices)
      if (!groups.contains(entry) && (entry < 0 || entry >= configuration.num_devices) && reported.insert(entry).second)
        say("its list names {}, which is neither a device (0 to {}) nor the key of a group", entry,
            configuration.num_devices - 1);
    const auto holders = holders_of(spec, otherwise);
    std::map<int64_t, size_t> group_of;  // the first group of each device
    for (size_t g = 0; g < holders.size(); ++g) {
      const auto shared = std::find_if(holders[g].begin(), holders[g].end(), [&](int64_t device) {
        return holders[group_of.emplace(device, g).first->second] != holders[g];
      });
      if (shared == holders[g].end()) continue;
      say("the device {} is in two different groups, [{}] and [{}]; groups are equal or have no device in common",
          *shared, fmt::join(holders[group_of.at(*shared)], ", "), fmt::join(holders[g], ", "));
      break;
    }
    const int64_t shards = shards_of(spec);
    if (shards <= 1 || shards == static_cast<int64_t>(holders.size())) return;
    if (spec.devices.empty())
      say("it is split into {} shards and lists no devices, of which there are {}; list one device or group per shard",
          shards, holders.size());
    else
      say("it is split into {} shards, but its list has {} entries; list one device or group per shard", shards,
          holders.size());
  }

  void look_at_axes(const ShardingSpec& spec, const Shape* shape) {
    std::set<int64_t> seen;
    for (const ShardedAxis& axis : spec.axes) {
      const auto rank = static_cast<int64_t>(shape ? shape->size() : 0);
      if (shape && (axis.axis < -rank || axis.axis >= rank)) {
        say("it has no axis {}: it is {}", axis.axis, to_string(*shape));
        continue;
      }
      if (!seen.insert(shape && axis.axis < 0 ? axis.axis + rank : axis.axis).second)
        say("its axis {} is split twice; give all factors of an axis in one entry", axis.axis);
      look_at_factors(axis,
                      shape ? &(*shape)[static_cast<size_t>(axis.axis < 0 ? axis.axis + rank : axis.axis)] : nullptr);
    }
  }

  void look_at_factors(const ShardedAxis& axis, const Expr* extent) {
    if (axis.factors.empty()) say("its axis {} is listed, but not split; give the number of shards", axis.axis);
    int64_t product = 1;
    Expr symbols = 1;
    int unknown = 0;
    for (const ShardedFactor& factor : axis.factors) {
      if (factor.shards < 1) say("its axis {} is split into {} shards; give at least one", axis.axis, factor.shards);
      if (factor.size && (*factor.size < 0 || (*factor.size == 0 && !(extent && extent->is(0)))))
        return say("a factor of its axis {} has {} elements; give at least one", axis.axis, *factor.size);
      const auto size = extent ? size_of(factor, *extent) : std::nullopt;
      if (!size)
        ++unknown;
      else if (!size->is_constant())
        symbols = symbols * *size;
      else if (__builtin_mul_overflow(product, *size->constant(), &product))
        return say("the factors of its axis {} multiply to more than 64 bits hold", axis.axis);
    }
    if (!extent || axis.factors.empty()) return;
    if (unknown > 1) return say("two factors of its axis {} have no size; at most one can be derived", axis.axis);
    // A single factor is the whole axis, whichever symbol names it.
    if (axis.factors.size() == 1 && !(axis.factors.front().size && extent->is_constant())) return;
    const std::optional<Expr> rest = Expr::exact_divide(*extent, symbols);
    const std::optional<Expr> left = rest && product > 0 ? Expr::exact_divide(*rest, Expr(product)) : std::nullopt;
    const std::string known = (symbols.is(1) ? "" : symbols.str() + "*") + std::to_string(product);
    const bool is_nothing = product == 0 && extent->is(0);
    if (unknown == 0 && !(left && left->is(1)) && !is_nothing)
      say("the factors of its axis {} multiply to {}, but it has {} elements", axis.axis, known, extent->str());
    if (unknown == 1 && !left)
      say("the factors of its axis {}, {} in all, do not divide its {} elements", axis.axis, known, extent->str());
  }

  const OnnxModel& model_;
  const std::string& only_;
  const std::vector<DeviceConfiguration> configurations_;
  std::map<std::string, Shape> shapes_;
  std::map<std::string, DefaultDevices> defaults_;  // by configuration
  std::vector<DeviceFault> faults_;
  std::string configuration_, node_, tensor_;  // that are looked at
};

}  // namespace

std::vector<DeviceFault> device_faults(const OnnxModel& model, const std::string& configuration) {
  return FaultFinder(model, configuration).run();
}

void refuse_faults(const OnnxModel& model, const std::string& configuration) {
  if (const auto faults = device_faults(model, configuration); !faults.empty())
    fail("devices", "{}{}", faults.front().message,
         faults.size() == 1 ? ""
                            : fmt::format(" (and {} more faults; `check_annotations` names all)", faults.size() - 1));
}

}  // namespace tessera::compiler
