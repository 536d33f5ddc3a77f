#include "tessera/proof/meaning.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/dialect/numbering.h"
#include "tessera/dialect/schema.h"
#include "tessera/ir/always_equal.h"
#include "tessera/mesh/axis_bounds.h"
#include "tessera/mesh/axis_use.h"
#include "tessera/ops/library/infer.h"
#include "tessera/proof/step.h"

namespace tessera::proof {
namespace {

uint32_t shortened(const Number& number) {
  return static_cast<uint32_t>(number.low & 0xffffff);
}

class Numbers {
 public:
  Numbers(const spmd::Program& program, const std::vector<int>& ranks) : program_(program), ranks_(ranks) {
    for (const auto& node : program.graph->nodes()) number(*node);
  }

  /// The computation of each node, in the program's order.
  const std::vector<std::pair<Number, const Node*>>& steps() const { return steps_; }

  Number whole() {
    Mixer mixer;
    mixer.add(program_.mesh.str());
    for (const spmd::Port& port : program_.inputs) mixer.add(port_number(port));
    for (const spmd::Port& port : program_.outputs) mixer.add(port_number(port)).add(of(port.value));
    std::vector<Number> others = communications_;
    for (const auto& value : program_.graph->values())
      if (value->next) others.push_back(Mixer().add("next").add(of(value.get())).add(of(value->next)).number());
    std::sort(others.begin(), others.end());
    for (const Number& number : others) mixer.add(number);
    return mixer.number();
  }

 private:
  Number of(const Value* value) {
    if (!value) return {};
    auto [known, fresh] = of_.try_emplace(value);
    if (fresh) known->second = source(*value);
    return known->second;
  }

  // The number of a value that no node makes.
  Number source(const Value& value) {
    Mixer mixer;
    if (const auto elements = ops::content_of(&value)) {
      mixer.add("elements").add(name_of(value.dtype())).add(value.rank());
      for (const Expr& element : *elements) mixer.add(number_of(element));
    } else if (value.kind == ValueKind::constant) {
      mixer.add("constant").add(dialect::literal_text(value.data));
    } else {
      mixer.add(value.kind != ValueKind::state ? "input"
                : value.changing               ? "changing state"
                                               : "state")
          .add(value.name)
          .add(layout_of(&value));
    }
    return mixer.number();
  }

  // An expression counts by its values on all ranks that differ in the indices that it depends on; if these are many,
  // by its text.
  Number number_of(const Expr& expr) {
    auto [known, fresh] = of_expressions_.try_emplace(expr);
    if (fresh) known->second = fresh_number_of(expr);
    return known->second;
  }

  Number fresh_number_of(const Expr& expr) const {
    const Expr used = without_idle_axes(expr, program_.mesh, ranks_);
    const std::vector<size_t> axes = mentioned_axes({used}, program_.mesh);
    const auto settings = settings_of(axes, program_.mesh, kMostSettings);
    Mixer mixer;
    if (!settings) return mixer.add(with_axis_bounds(used, program_.mesh).str()).number();
    for (size_t axis : axes) mixer.add(program_.mesh.axes()[axis].name);
    for (const std::vector<int64_t>& at : *settings)
      mixer.add(fingerprint(axes.empty() ? used : bind_rank(used, program_.mesh, at)));
    return mixer.number();
  }

  Number layout_of(const Value* value) const {
    auto placed = program_.placements.find(value);
    if (placed == program_.placements.end()) return {};
    const spmd::Placement& placement = placed->second;
    return Mixer()
        .add(placement.name)
        .add(name_of(placement.global.dtype))
        .add(to_string(*placement.global.shape))
        .add(placement.sharding.str(program_.mesh))
        .number();
  }

  Number port_number(const spmd::Port& port) const {
    return Mixer().add(port.name).add(port.value ? layout_of(port.value) : Number()).number();
  }

  void number(const Node& node) {
    const Number step = dialect::communicates(node) ? communication(node) : operation(node);
    steps_.emplace_back(step, &node);
    for (size_t r = 0; r < node.outputs.size(); ++r)
      if (node.outputs[r]) of_[node.outputs[r]] = result_number(step, r);
  }

  // The number of a node's statement covers its peer and the shape that it expects, but not its operand.
  Number communication(const Node& node) {
    const bool receives = dialect::kind_of(node) == comm::Kind::recv;
    Mixer stated = Step(node).begun();
    for (size_t i = receives ? 0 : 1; i < node.inputs.size(); ++i) stated.add(of(node.inputs[i]));
    const uint64_t before = alike_[stated.number()]++;
    stated.add(before);
    if (!receives) stated.add(of(node.input(0)));
    communications_.push_back(stated.number());
    return stated.number();
  }

  Number operation(const Node& node) {
    std::vector<Number> operands;
    for (const Value* operand : node.inputs) operands.push_back(of(operand));
    return Step(node).of(std::move(operands));
  }

  const spmd::Program& program_;
  const std::vector<int>& ranks_;
  std::map<Expr, Number> of_expressions_;
  std::unordered_map<const Value*, Number> of_;
  std::vector<std::pair<Number, const Node*>> steps_;
  std::vector<Number> communications_;
  std::map<Number, uint64_t> alike_;  // number of communications with the same statement so far
};

}  // namespace

Meaning meaning_of(const spmd::Program& program, const std::vector<int>& ranks) {
  Numbers numbers(program, ranks);
  Meaning meaning{numbers.whole(), {}};
  for (const auto& [number, node] : numbers.steps()) meaning.steps.push_back(shortened(number));
  std::sort(meaning.steps.begin(), meaning.steps.end());
  meaning.steps.erase(std::unique(meaning.steps.begin(), meaning.steps.end()), meaning.steps.end());
  return meaning;
}

std::optional<spmd::Departure> departure(const spmd::Program& program, const Meaning& was,
                                         const std::vector<int>& ranks) {
  Numbers numbers(program, ranks);
  if (numbers.whole() == was.whole) return std::nullopt;
  for (const auto& [number, node] : numbers.steps())
    if (!std::binary_search(was.steps.begin(), was.steps.end(), shortened(number)))
      return spmd::Departure{node->label(),
                             fmt::format("not proved from here on: {} does not match any node of the program as it was "
                                         "written",
                                         node->label())};
  return spmd::Departure{"", "not proved: the program's outputs or communications differ from those that were written"};
}

}  // namespace tessera::proof
