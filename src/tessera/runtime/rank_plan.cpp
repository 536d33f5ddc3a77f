#include "tessera/runtime/rank_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "tessera/base/error.h"
#include "tessera/ops/op.h"
#include "tessera/runtime/plan_frame.h"
#include "tessera/runtime/row_pieces.h"

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

// Of a communication: whether its result may lie where its operand does.
bool takes_over_operand(const Node& node) {
  return is_communication(node) && node.op_type == "AllReduce";
}

}  // namespace

RankPlan::RankPlan(RankState& rank, std::shared_ptr<const RankPrograms> programs, const Symbols& symbols,
                   const PlanOptions& options)
    : rank_(rank),
      programs_(std::move(programs)),
      program_(programs_->of(rank.rank())),
      symbols_(symbols),
      options_(options),
      frame_(std::make_shared<Frame>()) {
  const Graph& graph = *program_.graph;
  Frame& frame = *frame_;
  frame.symbols = symbols;
  for (const Value* output : graph.outputs) bound(output->shape());  // refuses sizes that no input gives
  const kernels::Bound values{[this](const Value* value) { return desc(value); },
                              [this](const Value* value) { return known_ints(value); }};
  kernels::Grouping grouping =
      options.keep_all ? kernels::single_nodes(graph, values) : kernels::group_nodes(graph, values);
  frame.groups = std::move(grouping.groups);
  frame.views = std::move(grouping.views);
  frame.blocked = std::move(grouping.blocked);
  frame.again = std::move(grouping.again);
  if (!options.keep_all) place_outputs();
  place_states();
  for (size_t g = 0; g < frame.groups.size(); ++g) steps_.push_back(std::make_shared<Step>());
  frame.asked.resize(steps_.size());
  for (size_t g = 0; g < frame.groups.size(); ++g)
    if (is_communication(*frame.groups[g].root)) {
      prepare_communication_of(static_cast<int>(g));
      frame.communicates = true;
    }
  frame.actions = order();
  frame.spans = spans_of(frame.actions, steps_.size());
  note_uses();
  place_sources();
  frame.infos->resize(frame.actions.size());
  int under_way = 0;  // communications
  for (size_t a = 0; a < frame.actions.size(); ++a) {
    const auto [step, phase] = frame.actions[a];
    StepInfo& info = (*frame.infos)[a];
    if (phase == Phase::wait) {
      info = steps_[step]->info;
      info.started = frame.spans[step].begin;
      --under_way;
    } else {
      steps_[step]->meanwhile = under_way > 0;
      prepare(frame.groups[step], frame.spans[step], *steps_[step]);
      info = steps_[step]->info;
      if (phase == Phase::start) ++under_way;
    }
  }
  for (const Value* output : graph.outputs) locate(output);
  for (const Frame::Exchange& exchange : frame.exchanges)
    if (exchange.copied) locate(exchange.copied);
  if (options.keep_all)
    for (const auto& [value, view] : frame.views) locate(value);
  for (size_t g = 0; g < frame.groups.size(); ++g)
    for (const auto* values : {&frame.groups[g].inputs, &frame.groups[g].outputs})
      for (const Value* value : *values) {
        if (!value) continue;
        frame.steps_of[value].push_back(static_cast<int>(g));
        if (home(value) != value) frame.steps_of[home(value)].push_back(static_cast<int>(g));
      }
  frame.dims = std::exchange(dims_, {});
  frame.locations = std::exchange(locations_, {});
  frame.bound_expressions = std::exchange(bound_expressions_, {});
  frame.lifetimes = lifetimes_;
  frame.copies = copies_;
  frame.steps = steps_;
  memory_ = plan_memory(lifetimes_);
}

std::vector<NamedBytes> RankPlan::pieces() const {
  std::vector<NamedBytes> all(lifetimes_.size());
  for (size_t i = 0; i < all.size(); ++i) all[i].bytes = lifetimes_[i].bytes;
  for (const auto& step : steps_)
    if (step->scratch >= 0)
      all[static_cast<size_t>(step->scratch)].name =
          fmt::format("scratch memory of {} '{}'", step->info.op, step->info.name);
  for (const auto& [value, location] : frame_->locations)
    if (location.where == Where::arena && all[location.offset].name.empty() && !frame_->views.contains(value))
      all[location.offset].name = fmt::format("'{}'", value->name);
  return all;
}

std::optional<int64_t> RankPlan::lookup(std::string_view name) const {
  if (auto size = look_up(name, symbols_, rank_.mesh(), rank_.coordinates())) return size;
  refuse_unknown(name);
}

// A size that no input has is one that the model declares for what depends on data.
void RankPlan::refuse_unknown(std::string_view name) const {
  std::vector<std::string> known;
  for (const auto& [symbol, size] : symbols_) known.push_back(symbol);
  for (const auto& node : program_.graph->nodes())
    for (const Value* result : node->outputs) {
      if (!result || !result->has_shape()) continue;
      for (const Expr& extent : result->shape()) {
        std::set<std::string> symbols;
        extent.collect_symbols(symbols);
        if (!symbols.contains(std::string(name))) continue;
        fail("bind",
             "{}: the extent '{}' of '{}' depends on data, so that no size of an input gives it (these are: {}); "
             "compute it from shapes, or declare it in these",
             node->label(), name, result->name, known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
      }
    }
  fail("bind", "nothing gives the size '{}'; the sizes of the inputs are: {}", name, fmt::join(known, ", "));
}

std::vector<int64_t> RankPlan::bound(const std::vector<Expr>& expressions) const {
  std::vector<int64_t> numbers;
  for (const Expr& expression : expressions)
    numbers.push_back(expression.evaluate([&](std::string_view name) { return lookup(name); }));
  return numbers;
}

std::string RankPlan::sizes() const {
  std::string text;
  for (const auto& [symbol, size] : symbols_) text += fmt::format("{}{}={}", text.empty() ? "" : ",", symbol, size);
  return text;
}

Dims RankPlan::bound_dims(const Value* value) const {
  const Shape& shape = value->shape();
  Dims dims = bound(shape);
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d] < 0)
      fail("bind", "{}: dimension {} of '{}' is {} = {} where {}; no dimension can be negative, so give other sizes",
           value->producer ? value->producer->label() : "the model", d, value->name, shape[d].str(), dims[d], sizes());
  return dims;
}

// A convolution or pooling of something has at least one window.
void RankPlan::require_windows(const Node& node) const {
  const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
  if (!op || !op->windows) return;
  const Dims from = bound_dims(node.inputs[0]), to = bound_dims(node.outputs[0]);
  for (size_t d = 2; d < from.size() && d < to.size(); ++d)
    if (from[d] > 0 && to[d] == 0)
      fail("bind", "{}: its windows do not fit into the {} elements of dimension {}{}; give larger sizes", node.label(),
           from[d], d, symbols_.empty() ? "" : " where " + sizes());
}

std::optional<std::vector<int64_t>> RankPlan::known_ints(const Value* value) const {
  if (value->kind == ValueKind::constant) return value->data.to_int64();
  if (value->kind == ValueKind::expression) return bound(*value->content);
  return std::nullopt;
}

// Row-major.
kernels::TensorDesc RankPlan::plain_desc(const Value* value) const {
  if (!value) return {};
  auto known = dims_.find(value);
  if (known == dims_.end()) {
    if (auto same = frame_->dims.find(value); same != frame_->dims.end()) return {value->dtype(), same->second};
    Dims dims = bound_dims(value);
    require_countable(value->dtype(), dims, value->name);
    known = dims_.emplace(value, std::move(dims)).first;
  }
  return {value->dtype(), known->second};
}

kernels::TensorDesc RankPlan::desc(const Value* value) const {
  kernels::TensorDesc desc = plain_desc(value);
  if (!value) return desc;
  if (auto block = frame_->blocked.find(value); block != frame_->blocked.end()) desc.block = block->second;
  if (const kernels::Placed* view = view_of(value)) desc.strides = view->strides;
  return desc;
}

// Null: it is none.
const kernels::Placed* RankPlan::view_of(const Value* value) const {
  if (auto view = views_.find(value); view != views_.end()) return &view->second;
  auto view = frame_->views.find(value);
  return view == frame_->views.end() ? nullptr : &view->second;
}

// The value whose memory this one lies in.
const Value* RankPlan::home(const Value* value) const {
  const kernels::Placed* view = view_of(value);
  return view ? view->base : value;
}

// Null: it has no place yet.
const RankPlan::Location* RankPlan::located(const Value* value) const {
  if (auto known = locations_.find(value); known != locations_.end()) return &known->second;
  auto known = frame_->locations.find(value);
  return known == frame_->locations.end() ? nullptr : &known->second;
}

// States are sliced only where they are used as they are: most weights are wanted packed.
const RankPlan::Location& RankPlan::locate(const Value* value) {
  if (const Location* known = located(value)) return *known;
  if (const kernels::Placed* view = view_of(value)) {
    Location location = locate(view->base);
    location.skip += static_cast<size_t>(view->offset) * element_bytes(value);
    return locations_[value] = location;
  }
  if (auto slot = frame_->slot_of.find(value); slot != frame_->slot_of.end())
    return locations_[value] = {Where::state, slot->second, nullptr, 0};
  if (value->kind != ValueKind::state) check(false, fmt::format("'{}' is placed before its use", value->name));
  return locations_[value] = {Where::fixed, 0, rank_.shard(*programs_, value).data, 0};
}

int RankPlan::new_buffer(size_t bytes, const Span& span) {
  lifetimes_.push_back({bytes, span.begin, span.end});
  return static_cast<int>(lifetimes_.size()) - 1;
}

// The action that is the last use of a value; -1: it has none.
int RankPlan::last_use(const Value* value) const {
  int last = -1;
  if (auto uses = frame_->uses.find(home(value)); uses != frame_->uses.end())
    for (const Span& use : uses->second) last = std::max(last, use.end);
  return last;
}

// Before the order, which must know what they need.
void RankPlan::prepare_communication_of(int step) {
  auto& asked = frame_->asked[step];
  steps_[step]->communication = prepare_communication(
      *frame_->groups[step].root, rank_,
      [&](std::string_view name) {
        asked.emplace(name);
        return lookup(name);
      },
      steps_[step]->info);
}

std::vector<Action> RankPlan::order() const {
  const std::vector<kernels::NodeGroup>& groups = frame_->groups;
  std::map<const Value*, int> numbers;
  std::vector<Memory> memories;
  auto number_of = [&](const Value* value) {
    const Value* root = home(value);
    if (auto over = frame_->over.find(root); over != frame_->over.end()) root = over->second;
    auto [known, fresh] = numbers.emplace(root, static_cast<int>(memories.size()));
    if (!fresh) return known->second;
    Memory& memory = memories.emplace_back();
    if (root->kind == ValueKind::result) {
      const size_t bytes = desc(root).bytes();
      if (const MemoryLimit* limit = rank_.memory_limit()) limit->require(bytes, root->name);
      if (!frame_->direct.contains(root)) memory.bytes = bytes;
    }
    return known->second;
  };
  std::vector<Task> tasks;
  for (size_t g = 0; g < groups.size(); ++g) {
    const kernels::NodeGroup& group = groups[g];
    Task& task = tasks.emplace_back();
    task.communicates = is_communication(*group.root);
    task.at_once = group.root->op_type == "Barrier";
    task.in_place = takes_over_operand(*group.root);
    if (const auto& communication = steps_[g]->communication) task.scratch = communication->scratch_bytes();
    for (const Value* operand : group.inputs)
      if (operand && (operand->producer || operand->kind == ValueKind::input || operand->changing))
        task.reads.push_back(number_of(operand));
    for (const Value* result : group.outputs)
      if (result) task.writes.push_back(number_of(result));
  }
  for (const Value* output : program_.graph->outputs) memories[number_of(output)].kept = true;
  for (const auto& value : program_.graph->values())
    if (value->next) memories[number_of(value->next)].kept = true;
  for (const spmd::Port& input : program_.inputs)
    if (const Box part = box(input.value); !part.contiguous())
      memories[number_of(input.value)].bytes = bytes_of(input.value->dtype(), part.count());
  return options_.overlap ? schedule(tasks, memories, options_.prefetch) : as_given(tasks);
}

void RankPlan::note_uses() {
  const Graph& graph = *program_.graph;
  const std::vector<kernels::NodeGroup>& groups = frame_->groups;
  const std::vector<Span>& spans = frame_->spans;
  auto& uses = frame_->uses;
  for (size_t g = 0; g < groups.size(); ++g)
    for (const Value* operand : groups[g].inputs)
      if (operand) uses[home(operand)].push_back(spans[g]);
  const int end = static_cast<int>(frame_->actions.size());
  for (const Value* output : graph.outputs) uses[home(output)].push_back({end, end});
  for (const auto& value : graph.values()) {
    if (value->next) uses[home(value->next)].push_back({end, end});
    if (options_.keep_all) uses[home(value.get())].push_back({end, end});
  }
}

void RankPlan::place_sources() {
  for (size_t i = 0; i < program_.inputs.size(); ++i) {
    const Value* value = program_.inputs[i].value;
    Location location;
    size_t element = element_bytes(value);
    Box box = this->box(value);
    if (box.contiguous()) {
      location = {Where::input, i, nullptr, skip_of(box, value)};
    } else {
      constexpr int kBefore = -1;  // the first action
      int buffer = new_buffer(bytes_of(value->dtype(), box.count()), {kBefore, last_use(value)});
      location = {Where::arena, static_cast<size_t>(buffer), nullptr, 0};
      copies_.push_back({i, buffer, std::move(box), element});
    }
    locations_[value] = location;
  }
  for (const auto& value : program_.graph->values()) {
    if (value->kind == ValueKind::constant) {
      locations_[value.get()] = {Where::fixed, 0, value->data.data, 0};
    } else if (value->kind == ValueKind::expression) {
      std::vector<int64_t> elements = bound(*value->content);
      place_expression(value.get(), elements);
      frame_->elements.emplace(value.get(), std::move(elements));
    }
  }
}

void RankPlan::place_expression(const Value* value, const std::vector<int64_t>& elements) {
  Dims dims = value->rank() == 0 ? Dims{} : Dims{static_cast<int64_t>(elements.size())};
  Tensor tensor;
  if (value->dtype() == DType::int32)
    tensor = Tensor::of(DType::int32, dims, std::vector<int32_t>(elements.begin(), elements.end()));
  else if (value->dtype() == DType::boolean)
    tensor = Tensor::of(DType::boolean, dims, std::vector<uint8_t>(elements.begin(), elements.end()));
  else
    tensor = Tensor::of(DType::int64, dims, elements);
  bound_expressions_.push_back(tensor);
  locations_[value] = {Where::fixed, 0, tensor.data, 0};
}

// A result that is one piece of an output is made where the output lies, if this rank is the one that writes it.
void RankPlan::place_outputs() {
  for (size_t i = 0; i < program_.outputs.size(); ++i) {
    const Value* value = program_.outputs[i].value;
    if (!value) continue;  // it lives elsewhere
    const Value* root = home(value);
    if (root->kind != ValueKind::result || frame_->direct.contains(root) || !writes(value)) continue;
    const Box part = box(value);
    if (!part.contiguous()) continue;
    frame_->direct[root] = {Where::output, i, nullptr, skip_of(part, value)};
  }
}

void RankPlan::prepare(const kernels::NodeGroup& group, const Span& span, Step& made) {
  const Node& node = *group.root;
  require_windows(node);
  kernels::PrepareContext context{node, {}, {}, {}, rank_.threads(), group.followers};
  for (const Value* operand : group.inputs) {
    context.inputs.push_back(desc(operand));
    made.inputs.push_back(operand && operand->kind != ValueKind::state ? locate(operand) : Location{});
  }
  for (const Value* result : group.outputs) context.outputs.push_back(desc(result));
  std::vector<int> in_place;  // operands whose memory the first result may take over
  size_t scratch = 0;
  if (is_communication(node)) {
    settle_operands(group, made, context);
    if (takes_over_operand(node)) in_place = {0};
    scratch = made.communication->scratch_bytes();
  } else {
    made.info.name = !node.name.empty() || !node.output() ? node.name : node.output()->name;
    made.info.op = node.op_type;
    for (const kernels::Follower& follower : group.followers) made.info.op += "+" + follower.node->op_type;
    in_place = prepare_kernel(group, made, context);
    scratch = made.kernel->scratch_bytes();
  }
  for (const Location& operand : made.inputs)
    made.last_uses.push_back(operand.where == Where::arena ? lifetimes_[operand.offset].last : -1);
  if (before_) made.last_uses = before_->last_uses;
  place_results(group, span, in_place, context, made);
  if (before_) {
    made.scratch = before_->scratch;
    differs_ |= (scratch > 0) != (made.scratch >= 0);
    if (made.scratch >= 0) lifetimes_[made.scratch].bytes = scratch;
  } else if (scratch > 0) {
    made.scratch = new_buffer(scratch, span);
  }
  for (const Location& result : made.outputs) made.writes_state |= result.where == Where::state;
  made.in.resize(made.inputs.size());
  made.out.resize(group.outputs.size());
}

// Fills in the operands that are states, and what is known of all operands now.
void RankPlan::settle_operands(const kernels::NodeGroup& group, Step& made, kernels::PrepareContext& context) {
  context.known.resize(group.inputs.size(), nullptr);
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    const Value* operand = group.inputs[i];
    if (operand && made.inputs[i].where == Where::none) made.inputs[i] = locate(operand);
    bool known = operand && operand->kind != ValueKind::input && operand->producer == nullptr && !operand->changing;
    context.known[i] = known ? made.inputs[i].address : nullptr;
  }
}

// Gives the operands whose memory the first result may take over.
std::vector<int> RankPlan::prepare_kernel(const kernels::NodeGroup& group, Step& made,
                                          kernels::PrepareContext& context) {
  const Node& node = *group.root;
  std::optional<Node> packed_node;  // NB the operands stay those of the plain node
  if (const auto& layout = group.packed) {
    const Value* weight = node.input(1);
    packed_node = node;
    Node pack;
    pack.op_type = "PackWeight";
    pack.domain = "tessera.cpu";
    pack.attributes = layout->pack_attributes;
    pack.name = "pack " + weight->name;
    const Tensor& packed = rank_.packed(*programs_, weight, layout->key, pack, layout->bytes);
    packed_node->op_type = layout->op_type;
    packed_node->domain = "tessera.cpu";
    for (const Attribute& attribute : layout->use_attributes) packed_node->set(attribute.name, attribute.value);
    context.inputs[1] = {packed.dtype, packed.dims};
    made.inputs[1] = {Where::fixed, 0, packed.data, 0};
  }
  settle_operands(group, made, context);
  const kernels::KernelEntry* entry = kernel_of(packed_node ? *packed_node : node);
  if (!entry)
    fail("kernel", "{}: there is no CPU kernel for {}{}{}", node.label(), node.domain, node.domain.empty() ? "" : ".",
         node.op_type);
  kernels::PrepareContext of_packed{packed_node ? *packed_node : node,
                                    context.inputs,
                                    context.outputs,
                                    context.known,
                                    context.threads,
                                    context.followers};
  if (!entry->blocks)
    for (auto* descs : {&of_packed.inputs, &of_packed.outputs})
      for (kernels::TensorDesc& desc : *descs)
        if (desc.block) desc = {desc.dtype, desc.stored_dims()};
  if (made.meanwhile && rank_.advances_by_tests())
    made.kernel = in_row_pieces(*entry, of_packed, [this] { advance_communication(); });
  if (!made.kernel) {
    const auto prepared = [&] { return kernels::prepare_kernel(*entry, of_packed); };
    // What is bound lives as long as this plan.
    const bool of_rank = std::none_of(group.inputs.begin(), group.inputs.end(), [](const Value* operand) {
      return operand && operand->kind == ValueKind::expression;
    });
    made.kernel = of_rank && !group.outputs.empty() && group.outputs[0]
                      ? rank_.kernels().kernel(group.outputs[0], of_packed, prepared)
                      : prepared();
  }
  if (int operand = made.kernel->in_place_operand(); operand >= 0) return {operand};
  if (group.followers.empty()) return entry->in_place;
  std::vector<int> in_place(entry->elementwise ? group.inputs.size() : 0);
  std::iota(in_place.begin(), in_place.end(), 0);
  return in_place;
}

void RankPlan::place_results(const kernels::NodeGroup& group, const Span& span, const std::vector<int>& in_place,
                             const kernels::PrepareContext& context, Step& made) {
  for (size_t r = 0; r < group.outputs.size(); ++r) {
    if (!group.outputs[r]) {
      made.outputs.emplace_back();
      continue;
    }
    const Value* result = home(group.outputs[r]);
    if (frame_->direct.contains(result)) {
      if (!before_) locations_[result] = frame_->direct.at(result);
      made.outputs.push_back(*located(result));
      continue;
    }
    if (r == 0)
      for (int index : in_place) {
        if (!can_take_over(group, span, in_place, index, context, made)) continue;
        made.taken_over = index;
        break;
      }
    if (before_) {
      made.outputs.push_back(before_->outputs[r]);
      if (r > 0 || made.taken_over < 0) lifetimes_[made.outputs[r].offset].bytes = context.outputs[r].bytes();
      continue;
    }
    int buffer = r == 0 && made.taken_over >= 0 ? static_cast<int>(made.inputs[made.taken_over].offset) : -1;
    const int last = std::max(span.end, last_use(result));
    if (buffer < 0) buffer = new_buffer(context.outputs[r].bytes(), span);
    lifetimes_[buffer].last = std::max(lifetimes_[buffer].last, last);
    Location location{Where::arena, static_cast<size_t>(buffer), nullptr, 0};
    locations_[result] = location;
    made.outputs.push_back(location);
  }
  if (before_) differs_ |= made.taken_over != before_->taken_over;
}

// Whether the first result may be made in the memory of operand `index`, which the kernel allows.
bool RankPlan::can_take_over(const kernels::NodeGroup& group, const Span& span, const std::vector<int>& in_place,
                             int index, const kernels::PrepareContext& context, const Step& made) const {
  if (options_.keep_all || !context.outputs[0].strides.empty()) return false;
  if (index >= static_cast<int>(group.inputs.size()) || !group.inputs[index]) return false;
  const Location& operand = made.inputs[index];
  if (operand.where != Where::arena || operand.skip != 0) return false;
  const kernels::TensorDesc &given = context.inputs[index], &wanted = context.outputs[0];
  if (!given.strides.empty() || given.count() != wanted.count() || given.bytes() != wanted.bytes()) return false;
  const Lifetime& life = lifetimes_[operand.offset];
  if (made.last_uses[index] != span.end || life.bytes != wanted.bytes()) return false;
  // Nobody else reads it from now on, as a communication under way may.
  const std::vector<Span>& uses = frame_->uses.at(home(group.inputs[index]));
  if (std::any_of(uses.begin(), uses.end(),
                  [&](const Span& use) { return use.begin != span.begin && use.end >= span.begin; }))
    return false;
  // Another operand that reads the same memory does no harm only where it is the same value and both are read
  // element by element (Mul of x by x, but not a scatter of x into x).
  for (int other = 0; other < static_cast<int>(group.inputs.size()); ++other) {
    const Location& place = made.inputs[other];
    if (other == index || place.where != Where::arena || place.offset != operand.offset) continue;
    const bool element_by_element = std::find(in_place.begin(), in_place.end(), other) != in_place.end();
    if (!element_by_element || group.inputs[other] != group.inputs[index]) return false;
  }
  return true;
}

Dims RankPlan::global_dims(const Value* value) const {
  return bound(*program_.placement(value).global.shape);
}

Box RankPlan::box(const Value* value) const {
  return held_part(program_, value, rank_.coordinates(), symbols_);
}

// Bytes of the whole before the first of a contiguous part.
size_t RankPlan::skip_of(const Box& part, const Value* value) {
  return static_cast<size_t>(part.count() ? part.first() : 0) * element_bytes(value);
}

bool RankPlan::writes(const Value* value) const {
  return writes_part(program_, value, rank_.coordinates());
}

}  // namespace tessera::runtime
