#include "tessera/runtime/rank_plan.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/runtime/collective.h"

namespace tessera::runtime {
namespace {

const kernels::KernelEntry* kernel_of(const Node& node) {
  return kernels::find_kernel(node.op_type, node.domain);
}

size_t element_bytes(const Value* value) {
  return static_cast<size_t>(bits_of(value->dtype())) / 8;
}

bool is_communication(const Node& node) {
  return node.domain == spmd::kCommDomain;
}

}  // namespace

RankPlan::RankPlan(RankState& rank, const Symbols& symbols, bool keep_all)
    : rank_(rank), symbols_(symbols), keep_all_(keep_all) {
  const Graph& graph = *rank.program().graph;
  const kernels::Bound values{[this](const Value* value) { return desc(value); },
                              [this](const Value* value) { return known_ints(value); }};
  kernels::Grouping grouping = keep_all ? kernels::single_nodes(graph, values) : kernels::group_nodes(graph, values);
  views_ = std::move(grouping.views);
  const int end = static_cast<int>(grouping.groups.size()) + 1;
  for (int n = 0; n < end - 1; ++n)
    for (const Value* operand : grouping.groups[n].inputs)
      if (operand) last_use_[home(operand)] = n + 1;
  for (const Value* output : graph.outputs) last_use_[home(output)] = end;
  for (const auto& value : graph.values())
    if (value->next) last_use_[home(value->next)] = end;
  if (keep_all)
    for (const auto& value : graph.values()) last_use_[home(value.get())] = end;

  place_sources();
  if (!keep_all) place_outputs();
  blocked_ = std::move(grouping.blocked);
  for (int n = 0; n < end - 1; ++n) prepare(grouping.groups[n], n + 1);
  for (const Value* output : graph.outputs) locate(output);
  if (keep_all)
    for (const auto& [value, view] : views_) locate(value);
  memory_ = plan_memory(lifetimes_);
}

std::optional<int64_t> RankPlan::lookup(std::string_view name) const {
  return look_up(name, symbols_, rank_.program().mesh, rank_.coordinates());
}

std::vector<int64_t> RankPlan::bound(const std::vector<Expr>& expressions) const {
  std::vector<int64_t> numbers;
  for (const Expr& expression : expressions)
    numbers.push_back(expression.evaluate([&](std::string_view name) { return lookup(name); }));
  return numbers;
}

Dims RankPlan::bound_dims(const Shape& shape) const {
  Dims dims = bound(shape);
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d] < 0)
      fail("bind", "the extent {} is {} for the shapes given; no dimension can be negative", shape[d].str(), dims[d]);
  return dims;
}

std::optional<std::vector<int64_t>> RankPlan::known_ints(const Value* value) const {
  if (value->kind == ValueKind::constant) return value->data.to_int64();
  if (value->kind == ValueKind::expression) return bound(*value->content);
  return std::nullopt;
}

kernels::TensorDesc RankPlan::desc(const Value* value) const {
  if (!value) return {};
  kernels::TensorDesc desc{value->dtype(), bound_dims(value->shape())};
  if (auto block = blocked_.find(value); block != blocked_.end()) desc.block = block->second;
  if (auto view = views_.find(value); view != views_.end()) desc.strides = view->second.strides;
  return desc;
}

// The value whose memory this one lies in.
const Value* RankPlan::home(const Value* value) const {
  auto view = views_.find(value);
  return view == views_.end() ? value : view->second.base;
}

// States are sliced only where they are used as they are: most weights are wanted packed.
const RankPlan::Location& RankPlan::locate(const Value* value) {
  auto known = locations_.find(value);
  if (known != locations_.end()) return known->second;
  if (auto view = views_.find(value); view != views_.end()) {
    Location location = locate(view->second.base);
    location.skip += static_cast<size_t>(view->second.offset) * element_bytes(value);
    return locations_[value] = location;
  }
  check(value->kind == ValueKind::state, fmt::format("'{}' is placed before its use", value->name));
  return locations_[value] = {Where::fixed, 0, rank_.shard(value).data, 0};
}

int RankPlan::new_buffer(size_t bytes, int step) {
  lifetimes_.push_back({bytes, step, step});
  return static_cast<int>(lifetimes_.size()) - 1;
}

void RankPlan::place_sources() {
  const spmd::Program& program = rank_.program();
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const Value* value = program.inputs[i].value;
    Location location;
    size_t element = element_bytes(value);
    Box box = this->box(value);
    if (box.contiguous()) {
      location = {Where::input, i, nullptr, static_cast<size_t>(box.count() ? box.first() : 0) * element};
    } else {
      int buffer = new_buffer(static_cast<size_t>(box.count()) * element, 0);
      lifetimes_[buffer].last = last_use_[home(value)];
      location = {Where::arena, static_cast<size_t>(buffer), nullptr, 0};
      copies_.push_back({i, buffer, std::move(box), element});
    }
    locations_[value] = location;
  }
  for (const auto& value : program.graph->values()) {
    if (value->kind == ValueKind::constant) {
      locations_[value.get()] = {Where::fixed, 0, value->data.data, 0};
    } else if (value->kind == ValueKind::expression) {
      const std::vector<int64_t> elements = bound(*value->content);
      Dims dims = value->rank() == 0 ? Dims{} : Dims{static_cast<int64_t>(elements.size())};
      Tensor tensor;
      if (value->dtype() == DType::int32)
        tensor = Tensor::of(DType::int32, dims, std::vector<int32_t>(elements.begin(), elements.end()));
      else if (value->dtype() == DType::boolean)
        tensor = Tensor::of(DType::boolean, dims, std::vector<uint8_t>(elements.begin(), elements.end()));
      else
        tensor = Tensor::of(DType::int64, dims, elements);
      bound_expressions_.push_back(tensor);
      locations_[value.get()] = {Where::fixed, 0, tensor.data, 0};
    }
  }
}

// A result that is one piece of an output is made where the output lies, if this rank is the one that writes it.
void RankPlan::place_outputs() {
  const spmd::Program& program = rank_.program();
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const Value* value = program.outputs[i].value;
    const Value* root = home(value);
    if (root->kind != ValueKind::result || direct_.contains(root) || !writes(value)) continue;
    const Box part = box(value);
    if (!part.contiguous()) continue;
    const size_t element = element_bytes(value);
    direct_[root] = {Where::output, i, nullptr, static_cast<size_t>(part.count() ? part.first() : 0) * element};
  }
}

void RankPlan::prepare(const kernels::NodeGroup& group, int step) {
  const Node& node = *group.root;
  Step made;
  infos_->emplace_back();
  infos_->back().name = !node.name.empty() || !node.output() ? node.name : node.output()->name;
  infos_->back().op = node.op_type;
  for (const kernels::Follower& follower : group.followers) infos_->back().op += "+" + follower.node->op_type;
  kernels::PrepareContext context{node, {}, {}, {}, rank_.threads(), group.followers};
  for (const Value* operand : group.inputs) {
    context.inputs.push_back(desc(operand));
    made.inputs.push_back(operand && operand->kind != ValueKind::state ? locate(operand) : Location{});
  }
  for (const Value* result : group.outputs) context.outputs.push_back(desc(result));
  prepare_group(group, step, made, context);

  auto scratch = made.kernel->scratch_bytes();
  if (scratch > 0) made.scratch = new_buffer(scratch, step);
  made.in.resize(made.inputs.size());
  made.out.resize(group.outputs.size());
  steps_.push_back(std::move(made));
}

// Fills in the operands that are states, and what is known of all operands now.
void RankPlan::settle_operands(const kernels::NodeGroup& group, Step& made, kernels::PrepareContext& context) {
  context.known.resize(group.inputs.size(), nullptr);
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    const Value* operand = group.inputs[i];
    if (operand && made.inputs[i].where == Where::none) made.inputs[i] = locate(operand);
    bool known = operand && operand->kind != ValueKind::input && operand->producer == nullptr && !operand->next;
    context.known[i] = known ? made.inputs[i].address : nullptr;
  }
}

void RankPlan::prepare_group(const kernels::NodeGroup& group, int step, Step& made, kernels::PrepareContext& context) {
  const Node& node = *group.root;
  std::vector<int> in_place;
  if (is_communication(node)) {
    settle_operands(group, made, context);
    made.kernel = prepare_collective(
        node, rank_, [this](std::string_view name) { return lookup(name); }, infos_->back());
    if (node.op_type == "AllReduce") in_place = {0};
  } else {
    Node packed_node = node;  // NB the operands stay those of the plain node
    if (const auto& layout = group.packed) {
      const Value* weight = node.input(1);
      Node pack;
      pack.op_type = "PackWeight";
      pack.domain = "tessera.cpu";
      pack.attributes = layout->pack_attributes;
      pack.name = "pack " + weight->name;
      const Tensor& packed = rank_.packed(weight, layout->key, pack, layout->bytes);
      packed_node.op_type = layout->op_type;
      packed_node.domain = "tessera.cpu";
      for (const Attribute& attribute : layout->use_attributes) packed_node.set(attribute.name, attribute.value);
      context.inputs[1] = {packed.dtype, packed.dims};
      made.inputs[1] = {Where::fixed, 0, packed.data, 0};
    }
    settle_operands(group, made, context);
    const kernels::KernelEntry* entry = kernel_of(packed_node);
    if (!entry)
      fail("kernel", "{}: there is no CPU kernel for {}{}{}", node.label(), node.domain, node.domain.empty() ? "" : ".",
           node.op_type);
    kernels::PrepareContext of_packed{packed_node,   context.inputs,  context.outputs,
                                      context.known, context.threads, context.followers};
    if (!entry->blocks)
      for (auto* descs : {&of_packed.inputs, &of_packed.outputs})
        for (kernels::TensorDesc& desc : *descs)
          if (desc.block) desc = {desc.dtype, desc.stored_dims()};
    made.kernel = kernels::prepare_kernel(*entry, of_packed);
    if (group.followers.empty()) {
      in_place = entry->in_place;
    } else if (entry->elementwise) {
      in_place.resize(group.inputs.size());
      std::iota(in_place.begin(), in_place.end(), 0);
    }
    if (int operand = made.kernel->in_place_operand(); operand >= 0) in_place = {operand};
  }
  for (size_t r = 0; r < group.outputs.size(); ++r) {
    if (!group.outputs[r]) {
      made.outputs.emplace_back();
      continue;
    }
    const Value* result = home(group.outputs[r]);
    if (auto direct = direct_.find(result); direct != direct_.end()) {
      locations_[result] = direct->second;
      made.outputs.push_back(direct->second);
      continue;
    }
    int last = std::max(step, last_use_.contains(result) ? last_use_.at(result) : step);
    int buffer = -1;
    if (r == 0 && !keep_all_ && context.outputs[0].strides.empty())
      for (int index : in_place) {
        if (index >= static_cast<int>(group.inputs.size()) || !group.inputs[index]) continue;
        const Location& operand = made.inputs[index];
        if (operand.where != Where::arena || lifetimes_[operand.offset].last != step) continue;
        const kernels::TensorDesc &given = context.inputs[index], &wanted = context.outputs[0];
        if (operand.skip != 0 || !given.strides.empty()) continue;
        if (given.count() != wanted.count() || given.bytes() != wanted.bytes()) continue;
        if (lifetimes_[operand.offset].bytes != wanted.bytes()) continue;
        // Another operand that reads the same memory does no harm only where it is the same value and both are read
        // element by element (Mul of x by x, but not a scatter of x into x).
        bool shared = false;
        for (int other = 0; other < static_cast<int>(group.inputs.size()); ++other) {
          bool same_memory =
              other != index && made.inputs[other].where == Where::arena && made.inputs[other].offset == operand.offset;
          bool element_by_element = std::find(in_place.begin(), in_place.end(), other) != in_place.end() &&
                                    group.inputs[other] == group.inputs[index];
          shared |= same_memory && !element_by_element;
        }
        if (!shared) {
          buffer = static_cast<int>(operand.offset);
          break;
        }
      }
    if (buffer < 0) buffer = new_buffer(context.outputs[r].bytes(), step);
    lifetimes_[buffer].last = std::max(lifetimes_[buffer].last, last);
    Location location{Where::arena, static_cast<size_t>(buffer), nullptr, 0};
    locations_[result] = location;
    made.outputs.push_back(location);
  }
}

std::byte* RankPlan::resolve(const Location& location, std::byte* arena) const {
  switch (location.where) {
    case Where::none:
      return nullptr;
    case Where::arena:
      return arena + memory_.offsets[location.offset] + location.skip;
    case Where::fixed:
      return static_cast<std::byte*>(const_cast<void*>(location.address)) + location.skip;
    case Where::input:
      return static_cast<std::byte*>(const_cast<void*>(inputs_[location.offset])) + location.skip;
    case Where::output:
      return static_cast<std::byte*>(outputs_[location.offset]) + location.skip;
  }
  return nullptr;
}

void RankPlan::run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs, RankTimes* times) {
  if (times) {
    times->steps = infos_;
    times->end.resize(steps_.size());
    times->begin = RankTimes::Clock::now();
  }
  inputs_ = inputs;
  outputs_ = outputs;
  std::byte* arena = rank_.arena(memory_.bytes);
  if (name_of_step_.size() < steps_.size()) write_step_names();
  std::atomic<const char*>& step_name = rank_.flight().step;
  for (const InputCopy& copy : copies_)
    copy_from_whole(arena + memory_.offsets[copy.buffer], inputs[copy.input], copy.box, copy.element);
  if (times) times->inputs = RankTimes::Clock::now();
  for (size_t s = 0; s < steps_.size(); ++s) {
    Step& step = steps_[s];
    step_name.store(name_of_step_[s], std::memory_order_release);
    for (size_t i = 0; i < step.inputs.size(); ++i) step.in[i] = resolve(step.inputs[i], arena);
    for (size_t i = 0; i < step.outputs.size(); ++i) step.out[i] = resolve(step.outputs[i], arena);
    step.kernel->run({step.in, step.out, step.scratch < 0 ? nullptr : arena + memory_.offsets[step.scratch]});
    if (times) times->end[s] = RankTimes::Clock::now();
  }
  step_name.store(nullptr, std::memory_order_release);
  const spmd::Program& program = rank_.program();
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const Location& made = locations_.at(program.outputs[i].value);
    if (made.where != Where::output || made.offset != i) store(program.outputs[i].value, outputs[i]);
  }
  if (times) times->outputs = RankTimes::Clock::now();
}

void RankPlan::write_step_names() {
  std::string all;
  std::vector<size_t> starts;
  for (const StepInfo& info : *infos_) {
    starts.push_back(all.size());
    all += info.op + " '" + info.name + "'";
    all += '\0';
  }
  names_ = rank_.shared_memory(all.size() + 1, "names");
  std::memcpy(names_.get(), all.data(), all.size());
  for (size_t start : starts) name_of_step_.push_back(reinterpret_cast<const char*>(names_.get()) + start);
}

Dims RankPlan::global_dims(const Value* value) const {
  return bound_dims(*rank_.program().placement(value).global.shape);
}

Box RankPlan::box(const Value* value) const {
  return held_part(rank_.program(), value, rank_.coordinates(), symbols_);
}

bool RankPlan::writes(const Value* value) const {
  return writes_part(rank_.program(), value, rank_.coordinates());
}

void RankPlan::store(const Value* value, void* whole) const {
  if (!writes(value)) return;
  const std::byte* local = resolve(locations_.at(value), rank_.arena(memory_.bytes));
  copy_to_whole(whole, local, box(value), element_bytes(value));
}

}  // namespace tessera::runtime
