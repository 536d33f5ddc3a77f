#include "tessera/ir/graph.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/float16.h"

namespace tessera {

const Shape& Value::shape() const {
  if (!type.shape) check(false, fmt::format("the shape of '{}' is known", name));
  return *type.shape;
}

Region::Region(std::unique_ptr<Graph> graph) : graph_(std::move(graph)) {
  check(graph_ != nullptr, "a region has a graph");
}
Region::Region(const Region& other) : graph_(other.graph_->clone()) {}
Region::Region(Region&&) noexcept = default;
Region& Region::operator=(const Region& other) {
  if (this != &other) graph_ = other.graph_->clone();
  return *this;
}
Region& Region::operator=(Region&&) noexcept = default;
Region::~Region() = default;

std::vector<Graph*> Node::regions() const {
  std::vector<Graph*> graphs;
  for (const Attribute& attribute : attributes)
    if (const auto* region = std::get_if<Region>(&attribute.value)) graphs.push_back(&**region);
  return graphs;
}

const Attribute* Node::find_attribute(std::string_view attribute) const {
  for (const Attribute& candidate : attributes)
    if (candidate.name == attribute) return &candidate;
  return nullptr;
}

int64_t Node::get_int(std::string_view attribute, int64_t otherwise) const {
  const auto* found = get<int64_t>(attribute);
  return found ? *found : otherwise;
}

float Node::get_float(std::string_view attribute, float otherwise) const {
  const auto* found = get<float>(attribute);
  return found ? *found : otherwise;
}

std::string Node::get_string(std::string_view attribute, std::string_view otherwise) const {
  const auto* found = get<std::string>(attribute);
  return found ? *found : std::string(otherwise);
}

std::vector<int64_t> Node::get_ints(std::string_view attribute, std::vector<int64_t> otherwise) const {
  const auto* found = get<std::vector<int64_t>>(attribute);
  return found ? *found : otherwise;
}

void Node::set(std::string_view attribute, AttributeValue value) {
  for (Attribute& candidate : attributes)
    if (candidate.name == attribute) {
      // The file's extra fields for a value of one kind do not fit another kind.
      if (candidate.value.index() != value.index()) candidate.extra.clear();
      candidate.value = std::move(value);
      return;
    }
  attributes.push_back({std::string(attribute), std::move(value), ""});
}

void Node::remove_attribute(std::string_view attribute) {
  std::erase_if(attributes, [&](const Attribute& candidate) { return candidate.name == attribute; });
}

std::string Node::label() const {
  std::string type = domain.empty() ? op_type : domain + "." + op_type;
  if (!name.empty()) return fmt::format("{} '{}'", type, name);
  for (const Value* result : outputs)
    if (result) return fmt::format("{} producing '{}'", type, result->name);
  return type;
}

std::vector<Value*> Graph::values_of(ValueKind kind) const {
  std::vector<Value*> found;
  for (const auto& value : values_)
    if (value->kind == kind) found.push_back(value.get());
  return found;
}

Value* Graph::find(std::string_view value_name) const {
  auto found = by_name_.find(value_name);
  return found == by_name_.end() ? nullptr : found->second;
}

std::string Graph::fresh_name(std::string_view wanted) {
  if (!wanted.empty() && !by_name_.contains(wanted)) return std::string(wanted);
  std::string base(wanted.empty() ? "value" : wanted);
  int& suffix = next_suffix_[base];
  std::string candidate;
  do candidate = fmt::format("{}_{}", base, ++suffix);
  while (by_name_.contains(candidate));
  return candidate;
}

Value* Graph::add_value(std::string_view value_name, ValueKind kind, TensorType type) {
  auto value = std::make_unique<Value>();
  value->name = fresh_name(value_name);
  value->kind = kind;
  value->type = std::move(type);
  value->number = made_++;
  values_.push_back(std::move(value));
  ++edits_;
  Value* added = values_.back().get();
  by_name_.emplace(added->name, added);
  return added;
}

Value* Graph::add_input(std::string_view value_name, TensorType type) {
  Value* value = add_value(value_name, ValueKind::input, std::move(type));
  inputs.push_back(value);
  return value;
}

namespace {
TensorType type_of(const Tensor& data) {
  return {data.dtype, Shape(data.dims.begin(), data.dims.end())};
}
}  // namespace

Value* Graph::add_constant(std::string_view value_name, Tensor data) {
  Value* value = add_value(value_name, ValueKind::constant, type_of(data));
  value->data = std::move(data);
  return value;
}

Value* Graph::add_state(std::string_view value_name, Tensor data) {
  Value* value = add_value(value_name, ValueKind::state, type_of(data));
  value->data = std::move(data);
  return value;
}

Value* Graph::add_expression(std::string_view value_name, std::vector<Expr> elements, bool scalar) {
  check(!scalar || elements.size() == 1, "a scalar expression has one element");
  Shape shape = scalar ? Shape{} : Shape{static_cast<int64_t>(elements.size())};
  Value* value = add_value(value_name, ValueKind::expression, {DType::int64, std::move(shape)});
  value->content = std::move(elements);
  return value;
}

Value* Graph::constant_int64(std::vector<int64_t> elements, bool scalar) {
  Dims dims = scalar ? Dims{} : Dims{static_cast<int64_t>(elements.size())};
  return add_constant("const", Tensor::of(DType::int64, std::move(dims), elements));
}

Value* Graph::constant_scalar(DType dtype, double value) {
  switch (dtype) {
    case DType::float32:
      return add_constant("const", Tensor::of<float>(dtype, {}, {static_cast<float>(value)}));
    case DType::float64:
      return add_constant("const", Tensor::of<double>(dtype, {}, {value}));
    case DType::int64:
      return add_constant("const", Tensor::of<int64_t>(dtype, {}, {static_cast<int64_t>(value)}));
    case DType::int32:
      return add_constant("const", Tensor::of<int32_t>(dtype, {}, {static_cast<int32_t>(value)}));
    case DType::boolean:
      return add_constant("const", Tensor::of<uint8_t>(dtype, {}, {static_cast<uint8_t>(value != 0)}));
    case DType::bfloat16:
      return add_constant("const", Tensor::of<uint16_t>(dtype, {}, {BFloat16(static_cast<float>(value)).bits}));
    case DType::float16:
      return add_constant("const", Tensor::of<uint16_t>(dtype, {}, {Float16(static_cast<float>(value)).bits}));
    case DType::int8:
    case DType::uint8:
      return add_constant("const", Tensor::of<uint8_t>(dtype, {}, {static_cast<uint8_t>(static_cast<int64_t>(value))}));
    case DType::int16:
    case DType::uint16:
      return add_constant("const",
                          Tensor::of<uint16_t>(dtype, {}, {static_cast<uint16_t>(static_cast<int64_t>(value))}));
    case DType::uint32:
      return add_constant("const", Tensor::of<uint32_t>(dtype, {}, {static_cast<uint32_t>(value)}));
    case DType::uint64:
      return add_constant("const", Tensor::of<uint64_t>(dtype, {}, {static_cast<uint64_t>(value)}));
    default:
      fail("graph", "no scalar constants of type {}", name_of(dtype));
  }
}

Node* Graph::add_node(std::string_view op_type, std::vector<Value*> operands, const std::vector<std::string>& results,
                      std::string_view domain, const Node* before) {
  auto node = std::make_unique<Node>();
  node->op_type = op_type;
  node->domain = domain;
  node->inputs = std::move(operands);
  for (const std::string& result : results)
    node->outputs.push_back(add_value(result.empty() ? op_type : result, ValueKind::result));
  return adopt_node(std::move(node), before);
}

namespace {
/// The owner of `wanted` in a list, searched outwards from `near`, which becomes its index.
template <typename List, typename T>
auto found_near(List& list, const T* wanted, size_t& near) {
  const size_t start = std::min(near, list.size());
  for (size_t distance = 0; distance <= std::max(start, list.size() - start); ++distance)
    for (size_t place : {start - distance, start + distance})  // a place before the first one wraps around
      if (place < list.size() && list[place].get() == wanted) {
        near = place;
        return list.begin() + static_cast<ptrdiff_t>(place);
      }
  check(false, "what is looked for is in the graph");
  return list.end();
}
}  // namespace

Node* Graph::adopt_node(std::unique_ptr<Node> node, const Node* before) {
  Node* added = node.get();
  added->number = made_nodes_++;
  ++edits_;
  for (size_t i = 0; i < added->inputs.size(); ++i)
    if (added->inputs[i]) added->inputs[i]->uses.push_back({added, i});
  for (Value* result : added->outputs)
    if (result) {
      if (result->producer) check(false, fmt::format("'{}' has one producer", result->name));
      result->producer = added;
    }
  auto at = nodes_.end();
  if (before) at = found_near(nodes_, before, near_node_);
  nodes_.insert(at, std::move(node));
  return added;
}

namespace {
// From the end: nodes mostly go in reverse order, and uses stand in that in which they came.
void drop_use(Value* value, const Node* node, size_t index) {
  auto& uses = value->uses;
  auto found =
      std::find_if(uses.rbegin(), uses.rend(), [&](const Use& use) { return use.node == node && use.index == index; });
  if (found == uses.rend()) check(false, fmt::format("'{}' lists its uses", value->name));
  uses.erase(std::next(found).base());
}
}  // namespace

void Graph::set_input(Node* node, size_t index, Value* value) {
  ++edits_;
  if (index >= node->inputs.size()) node->inputs.resize(index + 1, nullptr);
  if (node->inputs[index]) drop_use(node->inputs[index], node, index);
  node->inputs[index] = value;
  if (value) value->uses.push_back({node, index});
}

void Graph::replace_uses(Value* from, Value* to) {
  if (from == to) return;
  ++edits_;
  for (const Use& use : from->uses) {
    use.node->inputs[use.index] = to;
    to->uses.push_back(use);
  }
  from->uses.clear();
  for (Value*& output : outputs)
    if (output == from) output = to;
  if (from->next_of == 0) return;
  for (Value* state : stepped_)
    if (state->next == from) state->next = to;
  to->next_of += std::exchange(from->next_of, 0);
}

void Graph::set_next(Value* state, Value* next) {
  ++edits_;
  if (state->next) {
    std::erase(stepped_, state);
    --state->next->next_of;
  }
  if (next) {
    stepped_.push_back(state);
    ++next->next_of;
  }
  state->next = next;
  state->changing |= next != nullptr;
}

void Graph::rename(Value* value, std::string_view new_name) {
  if (value->name == new_name) return;
  ++edits_;
  by_name_.erase(value->name);
  value->name = fresh_name(new_name);
  by_name_.emplace(value->name, value);
}

namespace {
void unlink(Node* node) {
  for (size_t i = node->inputs.size(); i-- > 0;)
    if (node->inputs[i]) drop_use(node->inputs[i], node, i);
}
}  // namespace

void Graph::erase(Node* node) {
  ++edits_;
  for (Value* result : node->outputs) {
    if (!result) continue;
    if (!result->uses.empty() || is_output(result))
      check(false, fmt::format("'{}' is unused when its node goes", result->name));
    by_name_.erase(result->name);
    values_.erase(found_near(values_, result, near_value_));
  }
  unlink(node);
  nodes_.erase(found_near(nodes_, node, near_node_));
}

void Graph::erase(Value* source) {
  ++edits_;
  check(!source->producer && !source->next && source->uses.empty() && !is_output(source),
        fmt::format("'{}' is unused when it goes", source->name));
  std::erase(inputs, source);
  by_name_.erase(source->name);
  values_.erase(found_near(values_, source, near_value_));
}

void Graph::erase_dead(bool states) {
  std::vector<bool> kept(made_), dead(made_nodes_);  // by number
  for (const Value* output : outputs) kept[output->number] = true;
  std::vector<size_t> lost(made_);  // uses by dead nodes, of which many may be of one value
  bool any_dead = false;
  const auto is_used = [&](const Value* result) {
    return result->uses.size() > lost[result->number] || result->next_of > 0 || kept[result->number];
  };
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    const std::vector<Value*>& results = (*node)->outputs;
    const bool used =
        std::any_of(results.begin(), results.end(), [&](auto* result) { return result && is_used(result); });
    if (used || results.empty()) continue;  // a node without results is there for its effect
    for (Value* operand : (*node)->inputs)
      if (operand) ++lost[operand->number];
    dead[(*node)->number] = any_dead = true;
  }
  if (any_dead)
    for (const auto& value : values_)
      if (lost[value->number] > 0) std::erase_if(value->uses, [&](const Use& use) { return dead[use.node->number]; });
  auto removable = [&](const Value& value) {
    if (value.producer) return static_cast<bool>(dead[value.producer->number]);
    if (!value.uses.empty() || value.next_of > 0 || kept[value.number]) return false;
    return value.kind == ValueKind::constant || value.kind == ValueKind::expression ||
           (states && value.kind == ValueKind::state && !value.next);
  };
  for (const auto& value : values_)
    if (removable(*value)) by_name_.erase(value->name);
  const size_t removed = std::erase_if(values_, [&](const auto& value) { return removable(*value); });
  if (removed > 0 || any_dead) ++edits_;
  if (any_dead) std::erase_if(nodes_, [&](const auto& node) { return dead[node->number]; });
}

void Graph::sort() {
  // Visits depth first from each node in the present order: a node is placed right after its last producer, unless it
  // already has a place.
  std::vector<size_t> position(made_nodes_, nodes_.size());  // by number
  for (size_t i = 0; i < nodes_.size(); ++i) position[nodes_[i]->number] = i;
  std::vector<uint8_t> mark(nodes_.size(), 0);         // 0 new, 1 on the stack, 2 placed
  std::vector<size_t> next_operand(nodes_.size(), 0);  // earlier ones have been visited
  std::vector<size_t> order, stack;
  for (size_t start = 0; start < nodes_.size(); ++start) {
    if (mark[start]) continue;
    stack.push_back(start);
    while (!stack.empty()) {
      size_t at = stack.back();
      if (mark[at] == 2) {
        stack.pop_back();
        continue;
      }
      bool ready = true;
      for (size_t& next = next_operand[at]; next < nodes_[at]->inputs.size(); ++next) {
        const Value* operand = nodes_[at]->inputs[next];
        if (!operand || !operand->producer) continue;
        const size_t number = operand->producer->number;
        const size_t before = number < made_nodes_ ? position[number] : nodes_.size();
        if (before == nodes_.size() || nodes_[before].get() != operand->producer)
          check(false, fmt::format("the producer of '{}' is in the graph", operand->name));
        if (mark[before] == 2) continue;
        if (mark[before] == 1)
          fail("graph", "the nodes form a cycle through {} and {}; a graph must be acyclic", nodes_[at]->label(),
               nodes_[before]->label());
        if (ready) mark[at] = 1;
        ready = false;
        stack.push_back(before);
        break;
      }
      if (!ready) continue;
      mark[at] = 2;
      order.push_back(at);
      stack.pop_back();
    }
  }
  if (std::is_sorted(order.begin(), order.end())) return;
  ++edits_;
  std::vector<std::unique_ptr<Node>> sorted;
  sorted.reserve(nodes_.size());
  for (size_t at : order) sorted.push_back(std::move(nodes_[at]));
  nodes_ = std::move(sorted);
}

void Graph::arrange(const std::vector<Node*>& order) {
  check(order.size() == nodes_.size(), "an order names each node once");
  ++edits_;
  std::unordered_map<const Node*, std::unique_ptr<Node>> owned;
  for (auto& node : nodes_) owned.emplace(node.get(), std::move(node));
  for (size_t i = 0; i < order.size(); ++i) {
    nodes_[i] = std::move(owned.at(order[i]));
    check(nodes_[i] != nullptr, "an order names each node once");
  }
}

bool Graph::is_output(const Value* value) const {
  return std::find(outputs.begin(), outputs.end(), value) != outputs.end();
}

void Graph::verify(std::string_view stage) const {
  auto require = [&](bool holds, std::string_view what, const Value& value) {
    if (!holds) fail_running(stage, "graph '{}': {} for '{}'; this is a bug in tessera", name, what, value.name);
  };
  struct Seen {
    const Value* value = nullptr;
    size_t uses = 0, next_of = 0;
    bool defined = false, steps = false;
  };
  std::vector<Seen> owned(made_);
  for (const auto& value : values_) {
    require(value->number < made_ && !owned[value->number].value, "the number is not its own", *value);
    owned[value->number].value = value.get();
  }
  const auto find_owned = [&](const Value* value) -> Seen* {
    const bool is_owned = value && value->number < made_ && owned[value->number].value == value;
    return is_owned ? &owned[value->number] : nullptr;
  };
  for (const Value* state : stepped_)
    if (Seen* found = find_owned(state)) {
      found->steps = true;
      if (Seen* next = find_owned(state->next)) ++next->next_of;
    }
  // If each name is that of an owned value, and there are as many, each value has its own; that takes no search.
  const bool all_named =
      by_name_.size() == values_.size() && std::all_of(by_name_.begin(), by_name_.end(), [&](const auto& named) {
        return find_owned(named.second) && named.second->name == named.first;
      });
  for (const auto& value : values_) {
    if (!all_named) require(find(value->name) == value.get(), "the name is not its own", *value);
    require((value->kind == ValueKind::result) == (value->producer != nullptr), "kind and producer disagree", *value);
    if (value->has_data() && value->data.dtype != DType::undefined) {
      require(value->data.dtype == value->type.dtype, "data and type disagree", *value);
      require(value->has_shape() && constants_of(value->shape()) == value->data.dims, "data and shape disagree",
              *value);
    }
    if (value->kind == ValueKind::expression) require(value->content.has_value(), "there are no elements", *value);
    if (value->content && value->has_shape()) {
      require(value->rank() <= 1, "contents of rank above 1", *value);
      const auto count = static_cast<int64_t>(value->content->size());
      require(value->rank() == 0 ? count == 1 : value->shape()[0].is(count), "contents and shape disagree", *value);
    }
  }
  for (const auto& node : nodes_) {
    for (const Value* operand : node->inputs) {
      if (!operand) continue;
      Seen* found = find_owned(operand);
      if (!found) fail_running(stage, "{} has an operand of another graph", node->label());
      require(!operand->producer || found->defined, "a use comes before the definition", *operand);
      ++found->uses;
    }
    for (const Value* result : node->outputs) {
      if (!result) continue;
      Seen* found = find_owned(result);
      if (!found) fail_running(stage, "{} has a result of another graph", node->label());
      require(result->producer == node.get(), "the producer is another", *result);
      found->defined = true;
    }
  }
  for (const auto& value : values_) {
    const Seen& seen = owned[value->number];
    require(value->uses.size() == seen.uses, "uses are miscounted", *value);
    for (const Use& use : value->uses)
      require(use.node->input(use.index) == value.get(), "a listed use is not one", *value);
    if (value->next) require(find_owned(value->next) != nullptr, "the next value is of another graph", *value);
    require(value->next_of == seen.next_of, "the states whose next value it is are miscounted", *value);
    require(seen.steps == (value->next != nullptr), "the next value was not set by the graph", *value);
  }
  for (const Value* output : outputs)
    if (!find_owned(output)) fail_running(stage, "graph '{}' has an output of another graph", name);
}

std::unique_ptr<Graph> Graph::clone(std::map<const Value*, Value*>* map) const {
  auto copy = std::make_unique<Graph>();
  std::vector<Value*> twins(made_);  // by number
  copy->name = name;
  copy->extra = extra;
  for (const auto& value : values_) {
    auto twin = std::make_unique<Value>(*value);
    twin->producer = nullptr;
    twin->uses.clear();
    twin->next = nullptr;
    twin->next_of = 0;
    twin->number = copy->made_++;
    twins[value->number] = twin.get();
    if (map) map->emplace(value.get(), twin.get());
    copy->by_name_.emplace(twin->name, twin.get());
    copy->values_.push_back(std::move(twin));
  }
  auto mapped = [&](const Value* value) { return value ? twins.at(value->number) : nullptr; };
  for (const Value* state : stepped_) copy->set_next(mapped(state), mapped(state->next));
  for (const auto& node : nodes_) {
    auto twin = std::make_unique<Node>(*node);
    for (Value*& operand : twin->inputs) operand = mapped(operand);
    for (Value*& result : twin->outputs) result = mapped(result);
    copy->adopt_node(std::move(twin));
  }
  for (const Value* value : inputs) copy->inputs.push_back(mapped(value));
  for (const Value* value : outputs) copy->outputs.push_back(mapped(value));
  return copy;
}

int64_t OnnxModel::opset() const {
  auto found = opset_imports.find("");
  if (found == opset_imports.end()) found = opset_imports.find("ai.onnx");
  return found == opset_imports.end() ? 1 : found->second;
}

OnnxModel OnnxModel::clone() const {
  OnnxModel copy;
  copy.ir_version = ir_version;
  copy.opset_imports = opset_imports;
  copy.graph = graph->clone();
  for (const Function& function : functions)
    copy.functions.push_back({function.domain, function.name, function.overload, function.body->clone(),
                              function.attributes, function.defaults, function.opset_imports, function.extra});
  copy.extra = extra;
  copy.source = source;
  return copy;
}

}  // namespace tessera
