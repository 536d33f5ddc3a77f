#include "tessera/passes/init.h"

#include <algorithm>
#include <set>

#include "tessera/ir/flow.h"
#include "tessera/ops/op.h"
#include "tessera/spmd/partition/init.h"

namespace tessera::passes {
namespace {

using spmd::Program;

constexpr double kMostGrowth = 2;
constexpr double kShareOfStates = 1.0 / 20;
constexpr double kAlwaysRoom = double{1 << 20};

bool is_of_rank_only(const Expr& expr) {
  std::set<std::string> symbols;
  expr.collect_symbols(symbols);
  return std::all_of(symbols.begin(), symbols.end(), [](const std::string& name) { return name.starts_with('@'); });
}

bool are_of_rank_only(const std::vector<Expr>& expressions) {
  return std::all_of(expressions.begin(), expressions.end(), is_of_rank_only);
}

/// Whether the node only moves elements of its first operand to places that are known before any run.
bool is_movement(const Node& node) {
  if (ops::moves_of(node) == ops::Moves::nothing || !node.output() || !node.input(0)) return false;
  if (node.output()->dtype() != node.input(0)->dtype()) return false;
  for (size_t i = 1; i < node.inputs.size(); ++i)
    if (node.inputs[i] && !ops::reads_values(node, i) && ops::reads_elements(node, i)) return false;
  return true;
}

class InitMaker {
 public:
  explicit InitMaker(Program& program) : program_(program) {
    double states = 0;
    for (const Value* state : program.graph->values_of(ValueKind::state)) {
      states += bytes_of(state);
      growth_[state] = kMostGrowth * bytes_of(state);
    }
    room_ = std::max(kAlwaysRoom, states * kShareOfStates);
    for (const auto& value : program.graph->values())
      if (value->next) wanted_.insert(value->next);
    wanted_.insert(program.graph->outputs.begin(), program.graph->outputs.end());
    for (const auto& node : program.graph->nodes())
      if (can_run_once(*node)) note_sources(*node);
  }

  void move(const std::vector<std::string>& names) {
    std::vector<std::string> results;
    for (const std::string& name : names) {
      const Value* result = program_.graph->find(name);
      if (result && sources_.contains(result->producer) && program_.placements.contains(result))
        results.push_back(name);
    }
    spmd::move_to_init(program_, results);
  }

  void run() {
    std::vector<std::string> results;
    const auto& nodes = program_.graph->nodes();
    for (auto at = nodes.rbegin(); at != nodes.rend(); ++at) {
      const Node& node = **at;
      std::vector<Value*> read;  // in the step
      for (Value* result : node.outputs)
        if (result && wanted_.contains(result)) read.push_back(result);
      const bool once = sources_.contains(&node);
      if (once && std::all_of(read.begin(), read.end(), [&](const Value* result) { return is_worth_keeping(result); }))
        for (const Value* result : read) results.push_back(result->name);
      else if (!once || !read.empty())
        for (const Value* operand : node.inputs) wanted_.insert(operand);
    }
    std::reverse(results.begin(), results.end());
    spmd::move_to_init(program_, results);
  }

 private:
  double bytes_of(const Value* value) const {
    return spmd::hinted(product(value->shape()), program_.hints) * bits_of(value->dtype()) / 8;
  }

  bool is_known_once(const Value* value) const {
    if (!value) return true;
    if (value->producer) return sources_.contains(value->producer);
    return value->is_fixed() || (value->content && are_of_rank_only(*value->content));
  }

  bool can_run_once(const Node& node) const {
    const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
    if (!op || node.domain == spmd::kCommDomain || node.domain == flow::kDomain) return false;
    return std::all_of(node.inputs.begin(), node.inputs.end(), [&](const Value* v) { return is_known_once(v); }) &&
           std::all_of(node.outputs.begin(), node.outputs.end(),
                       [](const Value* result) { return !result || are_of_rank_only(result->shape()); });
  }

  void note_sources(const Node& node) {
    std::set<const Value*>& sources = sources_[&node];
    for (const Value* operand : node.inputs) {
      if (!operand) continue;
      if (operand->producer)
        sources.insert(sources_.at(operand->producer).begin(), sources_.at(operand->producer).end());
      else if (operand->kind == ValueKind::state)
        sources.insert(operand);
    }
  }

  // Values that do not stand for a tensor of the model, and terms of sums, cannot be states. Takes the bytes from the
  // sources' growth and from the room.
  bool is_worth_keeping(const Value* result) {
    const auto placed = program_.placements.find(result);
    if (placed == program_.placements.end() || placed->second.sharding.is_partial() || result->content) return false;
    if (bits_of(result->dtype()) % 8 != 0 || is_movement(*result->producer)) return false;
    double allowed = 0, needed = bytes_of(result);
    const std::set<const Value*>& sources = sources_.at(result->producer);
    for (const Value* source : sources) allowed += growth_.at(source);
    if (needed - allowed > room_) return false;
    for (const Value* source : sources) {
      const double taken = std::min(needed, growth_.at(source));
      growth_.at(source) -= taken;
      needed -= taken;
    }
    room_ -= needed;
    return true;
  }

  Program& program_;
  std::map<const Node*, std::set<const Value*>> sources_;  ///< of nodes that can run once: the states they depend on
  std::set<const Value*> wanted_;          ///< values that the step reads, or leaves as next values or outputs
  std::map<const Value*, double> growth_;  ///< by state: bytes that results made from it may still take
  double room_ = 0;                        ///< further bytes that all results together may take
};

}  // namespace

void init(Program& program, Context&) {
  InitMaker(program).run();
}

void move_to_init(Program& program, const std::vector<std::string>& results) {
  InitMaker(program).move(results);
}

}  // namespace tessera::passes
