#include "tessera/program_io/lowered_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tessera/program_io/lowering.h"
#include "tessera/program_io/rank_model.h"

namespace tessera::program_io {
namespace {

class CallReader {
 public:
  CallReader(const OnnxModel& model, const Manifest& manifest, const Manifest::RankFile& file,
             const std::string& source, dialect::FunctionCheck& functions)
      : model_(model), manifest_(manifest), file_(file), source_(source), functions_(functions) {
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

  // A graph within another may use outer values by name.
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

  static bool is_from_around(const Value& value, const Graph& graph) {
    return value.kind == ValueKind::input &&
           std::find(graph.inputs.begin(), graph.inputs.end(), &value) == graph.inputs.end();
  }

  void read(const Graph& graph, Names around) {
    for (const auto& node : graph.nodes()) {
      if (const Function* function = dialect::called_by(*node, model_.functions);
          function && dialect::states_or_communicates(*function, model_.functions))
        read_call(*node, *function, around);
      for (const Graph* region : node->regions()) {
        Names inside = around;
        for (const auto& value : graph.values())
          if (!is_from_around(*value, graph) || !inside.contains(value->name)) inside[value->name] = value.get();
        read(*region, std::move(inside));
      }
    }
  }

  // Whether a value is the number of the rank that runs the model, in any form.
  bool is_own_rank(const Value* value, const Names& around) const {
    if (!value) return false;
    const Node* maker = value->producer;
    if (maker && maker->is("Identity")) return is_own_rank(maker->input(0), around);
    if (maker && maker->is("RankId", spmd::kCommDomain)) return true;
    const auto* literal = maker && maker->is("Constant") ? maker->get<Tensor>("value") : nullptr;
    if (value->kind == ValueKind::constant) literal = &value->data;
    if (literal)
      return literal->dtype == DType::int64 && literal->count() == 1 && file_.ranks.size() == 1 &&
             literal->to_int64().front() == file_.ranks.front();
    if (maker || value->kind != ValueKind::input) return false;
    if (value->name == kRankInput) return true;
    const auto outer = around.find(value->name);
    return outer != around.end() && outer->second != value && is_own_rank(outer->second, around);
  }

  void read_call(const Node& call, const Function& function, const Names& around) {
    std::string flaw = flaw_of(function);
    std::unique_ptr<Node> statement = dialect::collective_of(call, function);
    if (!statement && flaw.empty()) return;
    if (!statement) {
      statement = std::make_unique<Node>();
      statement->op_type = call.op_type;
      statement->domain = call.domain;
      statement->name = call.name;
    }
    const Value* operand = nullptr;
    if (flaw.empty()) {
      const size_t operands = dialect::operand_count(function);
      if (operands > 0) operand = call.input(0);
      if (!is_own_rank(call.input(operands), around))
        flaw = fmt::format("the function '{}' is called with '{}' in place of the rank's own number", function.name,
                           call.input(operands) ? call.input(operands)->name : "nothing");
    }
    found_.push_back({std::move(statement), operand ? operand->name : "", placement_of(operand, around),
                      placement_of(call.output(0), around), flaw});
  }

  const OnnxModel& model_;
  const Manifest& manifest_;
  const Manifest::RankFile& file_;
  const std::string& source_;
  dialect::FunctionCheck& functions_;
  std::map<std::string, spmd::Placement> ports_;  // by the value's name
  std::map<const Function*, std::string> flaws_;
  std::vector<spmd::LoweredCollective> found_;
};

}  // namespace

std::vector<spmd::LoweredCollective> lowered_collectives(const OnnxModel& model, const Manifest& manifest,
                                                         const Manifest::RankFile& file, const std::string& source,
                                                         dialect::FunctionCheck& functions) {
  return CallReader(model, manifest, file, source, functions).run();
}

}  // namespace tessera::program_io
