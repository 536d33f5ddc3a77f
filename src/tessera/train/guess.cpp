#include "tessera/train/guess.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/ir/aligned.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"

namespace tessera::train {
namespace {

// The operators that compute with a value, through those that only move its elements.
std::set<std::string> readers_of(const Value& value) {
  std::set<std::string> readers;
  std::vector<const Value*> left = {&value};
  while (!left.empty()) {
    const Value* next = left.back();
    left.pop_back();
    for (const Use& use : next->uses) {
      const bool moves = use.index == 0 && ops::moves_of(*use.node) >= ops::Moves::part;
      if (moves && use.node->output())
        left.push_back(use.node->output());
      else
        readers.insert(use.node->op_type);
    }
  }
  return readers;
}

// Whether a mask's number is among the elements: nothing else is that low.
bool hides(const Tensor& data) {
  constexpr float kLow = -1e9F;
  if (data.dtype != DType::float32 || !data.data) return false;
  const Tensor read = aligned(data);
  const auto elements = read.as<float>();
  return std::any_of(elements.begin(), elements.end(), [](float element) { return element <= kLow; });
}

}  // namespace

std::map<std::string, std::string> read_before_runs(const OnnxModel& model) {
  OnnxModel upgraded = model.clone();  // operands' places are those of the newest forms
  rewrite::inline_functions(upgraded);
  rewrite::upgrade(upgraded);
  std::map<std::string, std::string> found;
  std::set<const Value*> seen;
  for (const Node* node : rewrite::nodes_of(*upgraded.graph))
    for (size_t i = 0; i < node->operand_count(); ++i) {
      if (!node->inputs[i] || !ops::reads_values(*node, i)) continue;
      std::vector<const Value*> left = {node->inputs[i]};
      while (!left.empty()) {
        const Value* next = left.back();
        left.pop_back();
        if (!seen.insert(next).second) continue;
        if (next->has_data()) found.emplace(next->name, node->label());
        const Node* maker = next->producer;
        for (size_t k = 0; maker && k < maker->operand_count(); ++k)
          if (maker->inputs[k] && ops::reads_elements(*maker, k)) left.push_back(maker->inputs[k]);
      }
    }
  return found;
}

std::optional<std::string> looks_constant(const Value& initializer) {
  static const std::set<std::string> factors = {"Mul", "Div", "Pow", "Where"};
  static const std::set<std::string> terms = {"Add", "Sub", "Mul", "Where", "Min", "Max"};
  const Dims& dims = initializer.data.dims;
  const bool is_table = std::count_if(dims.begin(), dims.end(), [](int64_t extent) { return extent > 1; }) > 1;
  if (!is_table) return std::nullopt;
  const std::set<std::string> readers = readers_of(initializer);
  const auto all_in = [&](const std::set<std::string>& some) {
    return !readers.empty() && std::includes(some.begin(), some.end(), readers.begin(), readers.end());
  };
  if (all_in(factors)) return fmt::format("only {} reads it, element by element", fmt::join(readers, " and "));
  if (all_in(terms) && hides(initializer.data)) return "it hides positions, as a mask does";
  return std::nullopt;
}

}  // namespace tessera::train
