#include "tessera/api/lowered_calls.h"

#include <map>

#include "tessera/api/rank_model.h"

namespace tessera::api {
namespace {

class CallReader {
 public:
  CallReader(const OnnxModel& model, const Manifest& manifest, const std::string& source,
             dialect::FunctionCheck& functions)
      : model_(model), manifest_(manifest), source_(source), functions_(functions) {
    for (const Manifest::State& state : manifest.states) add_port(state);
    for (const Manifest::Tensor& input : manifest.inputs) add_port(input);
    for (const Manifest::Tensor& output : manifest.outputs) add_port(output);
  }

  std::vector<spmd::LoweredCollective> run() {
    read(*model_.graph, {});
    return std::move(found_);
  }

 private:
  using Names = std::map<std::string, const Value*>;

  void add_port(const Manifest::Tensor& tensor) {
    ports_[tensor.value] = {tensor.name, tensor.global, tensor.sharding};
  }

  // A graph within another may use the values around it, by name.
  std::optional<spmd::Placement> placement_of(const Value* value, const Names& around) const {
    if (!value) return std::nullopt;
    if (auto port = ports_.find(value->name); port != ports_.end()) return port->second;
    if (auto placed = stated_placement(*value, manifest_.mesh, source_)) return placed;
    auto outer = value->kind == ValueKind::input ? around.find(value->name) : around.end();
    return outer == around.end() ? std::nullopt : stated_placement(*outer->second, manifest_.mesh, source_);
  }

  const std::string& flaw_of(const Function& function) {
    auto [known, fresh] = flaws_.try_emplace(&function);
    if (fresh) known->second = functions_.flaw_of(function, model_.functions);
    return known->second;
  }

  void read(const Graph& graph, Names around) {
    for (const auto& node : graph.nodes()) {
      if (const Function* function = dialect::called_by(*node, model_.functions)) read_call(*node, *function, around);
      for (const Attribute& attribute : node->attributes) {
        const auto* held = std::get_if<std::shared_ptr<Graph>>(&attribute.value);
        if (!held || !*held) continue;
        Names inside = around;
        for (const auto& value : graph.values()) inside[value->name] = value.get();
        read(**held, std::move(inside));
      }
    }
  }

  void read_call(const Node& call, const Function& function, const Names& around) {
    const std::string& flaw = flaw_of(function);
    std::unique_ptr<Node> statement = dialect::collective_of(call, function);
    if (!statement && flaw.empty()) return;
    if (!statement) {
      statement = std::make_unique<Node>();
      statement->op_type = call.op_type;
      statement->domain = call.domain;
      statement->name = call.name;
    }
    const Value* operand = call.inputs.size() > 1 ? call.input(0) : nullptr;
    found_.push_back({std::move(statement), placement_of(operand, around), placement_of(call.output(0), around), flaw});
  }

  const OnnxModel& model_;
  const Manifest& manifest_;
  const std::string& source_;
  dialect::FunctionCheck& functions_;
  std::map<std::string, spmd::Placement> ports_;  // by the value's name
  std::map<const Function*, std::string> flaws_;
  std::vector<spmd::LoweredCollective> found_;
};

}  // namespace

std::vector<spmd::LoweredCollective> lowered_collectives(const OnnxModel& model, const Manifest& manifest,
                                                         const std::string& source, dialect::FunctionCheck& functions) {
  return CallReader(model, manifest, source, functions).run();
}

}  // namespace tessera::api
