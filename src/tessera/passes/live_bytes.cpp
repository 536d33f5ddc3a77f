#include "tessera/passes/live_bytes.h"

#include <algorithm>
#include <unordered_set>

#include "tessera/ops/op.h"

namespace tessera::passes {
namespace {

bool lies_in_operand(const Node& node) {
  return node.operand_count() > 0 && ops::moves_of(node) == ops::Moves::in_order && node.input(0) &&
         node.input(0)->dtype() == node.output()->dtype();
}

void add_once(std::vector<const Value*>& list, const Value* value) {
  if (value && std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
}

}  // namespace

LiveBytes::LiveBytes(const spmd::Program& program) {
  for (const auto& node : program.graph->nodes())
    for (const Value* result : node->outputs) {
      if (!result) continue;
      if (lies_in_operand(*node)) {
        homes_[result] = home(node->input(0));
        continue;
      }
      homes_[result] = result;
      bytes_[result] = result->next_of > 0 ? 0
                                           : spmd::hinted(product(result->shape()), program.hints) *
                                                 static_cast<double>(bits_of(result->dtype())) / 8;
    }
  std::unordered_set<const Value*> known;
  const auto keep = [&](const Value* result) {
    const Value* at = home(result);
    if (at && known.insert(at).second) kept_.push_back(at);
  };
  for (const auto& value : program.graph->values())
    if (value->next) keep(value->next);
  for (const Value* output : program.graph->outputs) keep(output);
}

const Value* LiveBytes::home(const Value* value) const {
  const auto* found = homes_.find(value);
  return found ? *found : nullptr;
}

std::vector<const Value*> LiveBytes::read_by(const Node& node) const {
  std::vector<const Value*> homes;
  for (const Value* operand : node.inputs) add_once(homes, home(operand));
  return homes;
}

std::vector<const Value*> LiveBytes::made_by(const Node& node) const {
  std::vector<const Value*> homes;
  for (const Value* result : node.outputs)
    if (result && home(result) == result) homes.push_back(result);
  return homes;
}

double LiveBytes::peak(const std::vector<Node*>& order) const {
  ValueMap<int> uses;  // remaining uses
  for (const Node* node : order)
    for (const Value* home : read_by(*node)) ++uses[home];
  for (const Value* home : kept_) ++uses[home];
  double now = 0, most = 0;
  for (const Node* node : order) {
    for (const Value* home : made_by(*node)) now += of(home);
    most = std::max(most, now);
    for (const Value* home : made_by(*node))
      if (!uses.contains(home)) now -= of(home);
    for (const Value* home : read_by(*node))
      if (--uses[home] == 0) now -= of(home);
  }
  return most;
}

}  // namespace tessera::passes
