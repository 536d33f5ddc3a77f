#include "tessera/ir/append_copy.h"

#include <fmt/format.h>

namespace tessera {

void append_copy(Graph& to, const Graph& from, std::map<const Value*, Value*>& known, std::string_view suffix) {
  for (const auto& value : from.values()) {
    if (known.contains(value.get())) continue;
    if (value->kind == ValueKind::state)
      if (Value* shared = to.find(value->name)) {
        known[value.get()] = shared;
        continue;
      }
    const bool is_state = value->kind == ValueKind::state;
    Value* copy =
        to.add_value(is_state ? value->name : fmt::format("{}{}", value->name, suffix), value->kind, value->type);
    copy->data = value->data;
    copy->data_extra = value->data_extra;
    copy->content = value->content;
    copy->changing = value->changing;
    copy->origin = value->origin;
    copy->rows = value->rows;
    copy->extra = value->extra;
    known[value.get()] = copy;
  }
  const auto mapped = [&](const Value* value) { return value ? known.at(value) : nullptr; };
  for (const auto& node : from.nodes()) {
    auto copy = std::make_unique<Node>(*node);
    for (Value*& operand : copy->inputs) operand = mapped(operand);
    for (Value*& result : copy->outputs) result = mapped(result);
    if (!copy->name.empty()) copy->name += suffix;
    to.adopt_node(std::move(copy));
  }
}

}  // namespace tessera
