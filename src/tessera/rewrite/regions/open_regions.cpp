#include "tessera/rewrite/regions/open_regions.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/ir/flow.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/one_program.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/lower/lists.h"
#include "tessera/rewrite/regions/loop_form.h"

namespace tessera::rewrite {
namespace {

int64_t count_nodes(const Graph& graph) {
  int64_t count = 0;
  for (const auto& node : graph.nodes()) {
    ++count;
    for (const Graph* region : node->regions()) count += count_nodes(*region);
  }
  return count;
}

// A tensor that a run computes or receives; other values are known or stored.
bool is_run_value(const Value& value) {
  return value.kind == ValueKind::result || value.kind == ValueKind::input;
}

std::optional<int64_t> number_of(const Value* value) {
  const auto known = numbers(value);
  return known && known->size() == 1 ? std::optional(known->front()) : std::nullopt;
}

// Some bodies take the iteration's number as a list of one element.
bool is_plain_number(const Value& iteration) {
  return !iteration.has_shape() || iteration.rank() == 0;
}

std::string within(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "/" + name;
}

// While a body is visited, passes may replace its outputs. A node that reads them keeps track of them.
class OutputsOfBody {
 public:
  OutputsOfBody(Graph& graph, const Graph& body, const std::map<const Value*, Value*>& copies, const Node* before)
      : graph_(graph) {
    std::vector<Value*> outputs;
    for (const Value* output : body.outputs) outputs.push_back(copies.at(output));
    holder_ = graph.add_node("Outputs", outputs, {}, flow::kDomain, before);
  }
  ~OutputsOfBody() { graph_.erase(holder_); }
  OutputsOfBody(const OutputsOfBody&) = delete;
  OutputsOfBody& operator=(const OutputsOfBody&) = delete;

  Value* at(size_t index) const { return holder_->inputs.at(index); }

 private:
  Graph& graph_;
  Node* holder_ = nullptr;
};

// Sets `around` while nodes of a region are visited, and restores it.
class Within {
 public:
  Within(Value*& around, Value* region) : around_(around), before_(std::exchange(around, region)) {}
  ~Within() { around_ = before_; }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;

 private:
  Value*& around_;
  Value* before_;
};

// While a node is visited that will replace a result, it has the result's name, so that errors have the user's name.
class NamedAs {
 public:
  NamedAs(Graph& graph, Value* made, Value* result)
      : graph_(graph), made_(made), result_(result), own_(made->name), name_(result->name) {
    exchange(own_, name_);
  }
  ~NamedAs() { exchange(name_, own_); }
  NamedAs(const NamedAs&) = delete;
  NamedAs& operator=(const NamedAs&) = delete;

 private:
  void exchange(const std::string& of_result, const std::string& of_made) {
    graph_.rename(result_, of_result + "_before");
    graph_.rename(made_, of_made);
    graph_.rename(result_, of_result);
  }

  Graph& graph_;
  Value *made_, *result_;
  std::string own_, name_;
};

}  // namespace

const Graph& region_of(const Node& node, std::string_view attribute) {
  const auto* region = node.get<Region>(attribute);
  if (!region) fail("flow", "{}: its graph '{}' is missing; the file is damaged", node.label(), attribute);
  return **region;
}

void map_captures(const Node& node, const Graph& body, std::map<const Value*, Value*>& known) {
  for (size_t c = 0; c < node.captures.size(); ++c)
    if (const Value* inside = body.find(node.captures[c])) known[inside] = node.inputs[node.operand_count() + c];
}

std::string first_result(const Node& node) {
  const auto found = std::find_if(node.outputs.begin(), node.outputs.end(), [](const Value* value) { return value; });
  return found == node.outputs.end() ? "" : (*found)->name;
}

std::string prefix_of(const Node& node) {
  if (!node.name.empty()) return node.name;
  const std::string result = first_result(node);
  return result.empty() ? node.op_type : result;
}

void refuse_random(const Graph& body, const Node& node) {
  for (const auto& inner : body.nodes()) {
    for (const Graph* region : inner->regions()) refuse_random(*region, node);
    const ops::OpDef* op = ops::find_op(inner->op_type, inner->domain);
    if ((op && op->counter) || inner->op_type.starts_with("Random") || inner->is("Bernoulli") ||
        inner->is("Multinomial"))
      fail("flow",
           "{}: its body draws random numbers ({}), which would be the same in every iteration; draw them before the "
           "loop, and take a row in each iteration",
           node.label(), inner->label());
  }
}

bool stays_true(const Value* condition, const Value* given) {
  while (condition != given && condition->producer && condition->producer->is("Identity"))
    condition = condition->producer->inputs[0];
  if (condition == given) return true;
  const Tensor* data = condition->has_data() ? &condition->data : nullptr;
  if (condition->producer && condition->producer->is("Constant")) data = condition->producer->get<Tensor>("value");
  return data && data->data && data->dtype == DType::boolean && data->count() == 1 && data->to_int64().front() != 0;
}

bool unroll_counted(Graph& graph, Node* loop, int64_t most_nodes) {
  const Graph& body = region_of(*loop, "body");
  const size_t operands = loop->operand_count();
  if (operands < 3 || body.inputs.size() != operands || body.outputs.size() != operands - 1) return false;
  const Value *trips = loop->inputs[0], *condition = loop->inputs[1];
  const auto stored = [](const Value* value) {
    const Tensor* data = value->is_fixed() ? &value->data : nullptr;
    if (value->producer && value->producer->is("Constant")) data = value->producer->get<Tensor>("value");
    return data && data->data && data->count() == 1 ? std::optional(data->to_int64().front()) : std::nullopt;
  };
  const auto count = trips && trips->dtype() == DType::int64 ? stored(trips) : std::nullopt;
  if (!count || *count <= 0 || *count > most_nodes / std::max<int64_t>(1, count_nodes(body))) return false;
  if ((condition && !stays_true(condition, nullptr)) || !stays_true(body.outputs[0], body.inputs[1])) return false;
  const std::string prefix = prefix_of(*loop);
  std::vector<Value*> carried(loop->inputs.begin() + 2, loop->inputs.begin() + static_cast<long>(operands));
  for (int64_t i = 0; i < *count; ++i) {
    std::map<const Value*, Value*> known;
    map_captures(*loop, body, known);
    known[body.inputs[0]] = graph.constant_int64({i}, is_plain_number(*body.inputs[0]));
    known[body.inputs[1]] = graph.constant_scalar(DType::boolean, 1);
    for (size_t c = 0; c < carried.size(); ++c) known[body.inputs[c + 2]] = carried[c];
    splice(graph, body, known, loop, fmt::format("{}/{}", prefix, i));
    for (size_t c = 0; c < carried.size(); ++c) carried[c] = known.at(body.outputs[c + 1]);
  }
  for (size_t c = 0; c < carried.size(); ++c) {
    Value* result = loop->output(c);
    if (!result) continue;
    Value* copy = graph.add_node("Identity", {carried[c]}, {""}, "", loop)->outputs[0];
    copy->type = result->type;
    const std::string name = result->name;
    graph.replace_uses(result, copy);
    graph.rename(result, name + "_before");
    graph.rename(copy, name);
  }
  graph.erase(loop);
  return true;
}

bool RegionOpener::open(Node* node) {
  if (!node->is("If") && !node->is("Loop") && !node->is("Scan")) return false;
  const std::string region = first_result(*node);
  try {
    if (node->is("If"))
      open_if(node);
    else
      open_loop(node->is("Loop") ? form_of_loop(node) : form_of_scan(graph_, node));
  } catch (const ops::NotInOneProgram& error) {
    if (!error.needs().symbols.empty()) throw;  // with numbers for them, a program may hold the region
    throw error.within(region);
  }
  graph_.erase(node);
  return true;
}

Node* RegionOpener::add(std::string_view type, std::vector<Value*> operands, const Node* before,
                        const std::string& name, const std::string& label) {
  Node* node = graph_.add_node(type, std::move(operands), {name}, flow::kDomain, before);
  node->name = label;
  return node;
}

// Replaces a result of the node by the value.
void RegionOpener::give(Node* node, size_t index, Value* value) {
  Value* result = node->output(index);
  if (!result) return;
  if (is_list(*value)) return graph_.replace_uses(result, value);
  const std::string name = result->name;
  const bool names_itself = value->kind == ValueKind::result && value->producer->domain == flow::kDomain;
  if (!graph_.is_output(result) && !names_itself) return graph_.replace_uses(result, value);
  if (!names_itself) {
    Value* copy = graph_.add_node("Identity", {value}, {""}, "", node)->outputs[0];
    copy->type = value->type;
    value = copy;
  }
  graph_.replace_uses(result, value);
  graph_.rename(result, name + "_before");
  graph_.rename(value, name);
  if (value->extra.empty()) value->extra = result->extra;
  if (!decides_) value->type = result->type;
}

void RegionOpener::open_if(Node* node) {
  const Graph* branches[] = {&region_of(*node, "else_branch"), &region_of(*node, "then_branch")};
  for (const Graph* branch : branches)
    if (branch->outputs.size() < node->outputs.size())
      fail("flow", "{}: its branch '{}' returns {} where {} are needed; the file is damaged", node->label(),
           branch->name, counted(branch->outputs.size(), "result"), node->outputs.size());
  const std::string prefix = prefix_of(*node);
  Value* condition = node->input(0);
  if (!condition) fail("flow", "{}: its condition is missing; the file is damaged", node->label());
  if (const auto known = decides_ ? number_of(condition) : std::nullopt) {
    const Graph& branch = *branches[*known != 0 ? 1 : 0];
    std::map<const Value*, Value*> values;
    map_captures(*node, branch, values);
    const std::vector<Node*> made = splice(graph_, branch, values, node, prefix);
    const OutputsOfBody outputs(graph_, branch, values, node);
    for (Node* inner : made) visit_(inner);
    for (size_t r = 0; r < node->outputs.size(); ++r) give(node, r, outputs.at(r));
    return;
  }
  std::vector<Node*> made[2];
  std::optional<OutputsOfBody> outputs[2];
  for (const int taken : {1, 0}) {
    const Graph& branch = *branches[taken];
    const std::string name = prefix + (taken ? "/then" : "/else");
    Node* begin = add("Branch", {condition}, node, name, node->name);
    if (around_) graph_.set_input(begin, 1, around_);
    begin->set("taken", int64_t{taken});
    made[taken].push_back(begin);
    std::map<const Value*, Value*> values, brought;
    map_captures(*node, branch, values);
    const std::function<Value*(Value*)> bring = [&](Value* outer) {
      if (!outer || !is_run_value(*outer)) return outer;
      Value*& twin = brought[outer];
      if (!twin && is_list(*outer)) {
        std::vector<Value*> tensors;
        for (Value* tensor : outer->producer->inputs) tensors.push_back(bring(tensor));
        return brought[outer] = add_list(graph_, std::move(tensors), node);
      }
      if (!twin) {
        made[taken].push_back(add("Bring", {outer, begin->outputs[0]}, node, name + "/" + outer->name, node->name));
        twin = made[taken].back()->outputs[0];
      }
      return twin;
    };
    for (const std::string& capture : node->captures)  // in their order, which is the same in all processes
      if (const Value* inside = branch.find(capture)) values.at(inside) = bring(values.at(inside));
    const std::vector<Node*> copies = splice(graph_, branch, values, node, decides_ ? name : "");
    made[taken].insert(made[taken].end(), copies.begin(), copies.end());
    outputs[taken].emplace(graph_, branch, values, node);
  }
  for (const int taken : {1, 0}) {
    const Within branch(around_, made[taken].front()->outputs[0]);
    for (Node* inner : made[taken]) visit_(inner);
  }
  Node* join =
      add("Join", {made[1].front()->outputs[0], made[0].front()->outputs[0]}, node, prefix + "/join", node->name);
  visit_(join);
  for (size_t r = 0; r < node->outputs.size(); ++r) {
    Value* result = node->outputs[r];
    if (!result) continue;
    const auto choose = [&](Value* then, Value* otherwise) {
      Node* chosen = add("Choose", {then, otherwise, join->outputs[0]}, node, result->name, node->name);
      const NamedAs named(graph_, chosen->outputs[0], result);
      visit_(chosen);
      return chosen->outputs[0];
    };
    Value *then = outputs[1]->at(r), *otherwise = outputs[0]->at(r);
    if (!is_list(*then) && !is_list(*otherwise)) {
      give(node, r, choose(then, otherwise));
      continue;
    }
    if (!is_list(*then) || !is_list(*otherwise))
      fail("flow", "{}: one of its branches gives a sequence as '{}', the other a tensor", node->label(), result->name);
    const size_t lengths[] = {then->producer->inputs.size(), otherwise->producer->inputs.size()};
    if (lengths[0] != lengths[1])
      fail("flow",
           "{}: its branches give sequences of different lengths as '{}', {} and {}; a branch that is chosen during "
           "the run must give tensors",
           node->label(), result->name, lengths[0], lengths[1]);
    std::vector<Value*> tensors;
    for (size_t i = 0; i < then->producer->inputs.size(); ++i)
      tensors.push_back(choose(then->producer->inputs[i], otherwise->producer->inputs[i]));
    give(node, r, add_list(graph_, std::move(tensors), node));
  }
}

void RegionOpener::open_loop(LoopForm form) {
  for (const Value* value : form.initial)
    if (!value) fail("flow", "{}: a carried value has no initial value; the file is damaged", form.node->label());
  if (form.node->outputs.size() > form.initial.size() + form.scanned.size())
    fail("flow", "{}: it has {}, but its body gives {}; the file is damaged", form.node->label(),
         counted(form.node->outputs.size(), "result"), form.initial.size() + form.scanned.size());
  if (!decides_) return keep_loop(form);
  if (const auto known = form.condition ? number_of(form.condition) : std::nullopt) {
    form.condition = nullptr;
    if (*known == 0) form.trips = graph_.constant_int64({0}, true);
  }
  int64_t trips = form.trips ? number_of(form.trips).value_or(-1) : -1;  // -1: it is not known
  if (form.trips && trips < 0 && number_of(form.trips)) form.trips = graph_.constant_int64({trips = 0}, true);
  const int64_t nodes = std::max<int64_t>(1, count_nodes(*form.body)), most_trips = kManyNodes / nodes;
  const auto unrolls = [&](int64_t most) {
    return trips > 0 && !form.condition && trips <= most / nodes && unroll(form, trips);
  };
  const bool carries_list =
      std::any_of(form.initial.begin(), form.initial.end(), [](auto* value) { return is_list(*value); });
  if (unrolls(carries_list || is_sum_over_parameters(form) ? kManyNodes : kFewNodes)) return;
  if (carries_list && trips == 0 && form.scanned.empty() && unroll(form, 0)) return;
  if (const auto count = contents(form.trips); carries_list && trips < 0 && count && count->size() == 1)
    refuse_unknown_size(*form.node, "the number of its iterations", count->front());
  if (carries_list)
    fail("flow",
         "{}: it carries a sequence of tensors, so its iterations must be unrolled, but {}; let it "
         "stack its tensors as a scan output",
         form.node->label(),
         trips > most_trips ? fmt::format("there are {}, and at most {} can be unrolled", trips, most_trips)
         : trips > 0        ? "a computed condition ends them"
         : trips == 0       ? "there are none, so its rows have no shape"
                            : "their number is not known before the run");
  refuse_random(*form.body, *form.node);
  try {
    keep_loop(form);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::user || !unrolls(kManyNodes)) throw;
  }
}

void RegionOpener::keep_loop(const LoopForm& form) {
  Node* node = form.node;
  const std::string prefix = prefix_of(*node), names = decides_ ? prefix : "";
  std::vector<Node*> made;
  Node* loop = add("Loop", {form.trips, form.condition}, node,
                   decides_ || !form.iteration ? prefix + "/iteration" : form.iteration->name, node->name);
  if (around_) graph_.set_input(loop, 2, around_);
  made.push_back(loop);
  Value* iteration = loop->outputs[0];
  std::map<const Value*, Value*> known;
  map_captures(*node, *form.body, known);
  if (form.iteration) known[form.iteration] = iteration;
  if (form.iteration && !is_plain_number(*form.iteration)) {
    made.push_back(graph_.add_node("Unsqueeze", {iteration, graph_.constant_int64({0})}, {""}, "", node));
    known[form.iteration] = made.back()->outputs[0];
  }
  if (form.runs) known[form.runs] = graph_.constant_scalar(DType::boolean, 1);
  std::vector<Value*> carried;
  for (size_t i = 0; i < form.initial.size(); ++i) {
    const Value* inside = form.carried_input(i);
    made.push_back(add("Carry", {form.initial[i], iteration}, node, within(names, inside->name), node->name));
    made.back()->outputs[0]->extra = inside->extra;
    made.back()->outputs[0]->type = inside->type;
    carried.push_back(known[inside] = made.back()->outputs[0]);
  }
  for (size_t i = 0; i < form.sequences.size(); ++i) {
    const Value* inside = form.item_input(i);
    made.push_back(add("Item", {form.sequences[i].whole, iteration}, node, prefix + "/" + inside->name, node->name));
    if (form.sequences[i].reverse) made.back()->set("reverse", int64_t{1});
    known[inside] = made.back()->outputs[0];
  }
  const std::vector<Node*> copies = splice(graph_, *form.body, known, node, names);
  made.insert(made.end(), copies.begin(), copies.end());
  const OutputsOfBody outputs(graph_, *form.body, known, node);
  Node* again = nullptr;
  {
    const Within body(around_, iteration);
    for (Node* inner : made) visit_(inner);
    Value* runs = form.computes_condition ? outputs.at(0) : nullptr;
    if (const auto always = runs ? number_of(runs) : std::nullopt; always && *always != 0) runs = nullptr;
    if (!form.trips && !runs)
      fail("flow", "{}: it never ends: it has no trip count, and its condition stays true", node->label());
    std::vector<Value*> end{iteration, runs};
    for (size_t i = 0; i < carried.size(); ++i) {
      Node* next = graph_.add_node("Next", {outputs.at(form.carried_output(i)), iteration, carried[i]},
                                   {carried[i]->name + ".next", carried[i]->name + ".done"}, flow::kDomain, node);
      next->name = node->name;
      visit_(next);
      end.push_back(next->outputs[1]);
    }
    again = add("Again", end, node, prefix + "/again", node->name);
    visit_(again);
  }
  std::vector<Value*> results(node->outputs.size());
  for (size_t r = 0; r < results.size(); ++r) {
    if (!node->outputs[r]) continue;
    const bool is_last = r < carried.size();
    Value* value = is_last ? carried[r] : outputs.at(form.scanned_output(r - carried.size()));
    Node* leaving =
        add(is_last ? "Last" : "Stack", {value, again->outputs[0]}, node, node->outputs[r]->name, node->name);
    results[r] = leaving->outputs[0];
    if (is_last) {
      visit_(leaving);
      continue;
    }
    const LoopForm::Scanned& scanned = form.scanned[r - carried.size()];
    if (scanned.reverse) leaving->set("reverse", int64_t{1});
    {
      const NamedAs named(graph_, leaving->outputs[0], node->outputs[r]);
      visit_(leaving);
    }
    if (!decides_ && scanned.axis == 0) continue;
    if (!results[r]->has_shape())
      fail("flow", "{}: a scan output along a later axis has no known shape", node->label());
    const size_t axis = ops::normalize_axis(*node, scanned.axis, results[r]->rank(), "scan_output_axes");
    std::vector<int64_t> order(results[r]->rank());
    std::iota(order.begin(), order.end(), 0);
    std::rotate(order.begin(), order.begin() + 1, order.begin() + static_cast<long>(axis) + 1);
    results[r] = transposed(graph_, results[r], order, node);
  }
  for (size_t r = 0; r < results.size(); ++r)
    if (results[r]) give(node, r, results[r]);
}

// False, and only unused nodes are added, if the number of iterations depends on data.
bool RegionOpener::unroll(const LoopForm& form, int64_t trips) {
  Node* node = form.node;
  const std::string prefix = prefix_of(*node);
  std::vector<Value*> carried = form.initial;
  std::vector<std::vector<Value*>> rows(form.scanned.size());
  for (int64_t i = 0; i < trips; ++i) {
    std::map<const Value*, Value*> known;
    map_captures(*node, *form.body, known);
    if (form.iteration) known[form.iteration] = graph_.constant_int64({i}, is_plain_number(*form.iteration));
    if (form.runs) known[form.runs] = graph_.constant_scalar(DType::boolean, 1);
    for (size_t c = 0; c < carried.size(); ++c) known[form.carried_input(c)] = carried[c];
    for (size_t s = 0; s < form.sequences.size(); ++s) {
      const int64_t row = form.sequences[s].reverse ? trips - 1 - i : i;
      known[form.item_input(s)] = emit(graph_, "Gather", {form.sequences[s].whole, graph_.constant_int64({row}, true)},
                                       node, {attribute("axis", int64_t{0})}, prefix + "/" + form.item_input(s)->name);
    }
    const std::vector<Node*> made = splice(graph_, *form.body, known, node, fmt::format("{}/{}", prefix, i));
    const OutputsOfBody outputs(graph_, *form.body, known, node);
    for (Node* inner : made) visit_(inner);
    const auto goes_on = form.computes_condition ? number_of(outputs.at(0)) : std::optional<int64_t>(1);
    if (!goes_on) return false;
    for (size_t c = 0; c < carried.size(); ++c) carried[c] = outputs.at(form.carried_output(c));
    for (size_t s = 0; s < rows.size(); ++s) rows[s].push_back(outputs.at(form.scanned_output(s)));
    if (*goes_on == 0) break;
  }
  for (size_t c = 0; c < carried.size(); ++c) give(node, c, carried[c]);
  for (size_t s = 0; s < rows.size(); ++s) {
    Value* result = node->output(carried.size() + s);
    if (!result) continue;
    if (form.scanned[s].reverse) std::reverse(rows[s].begin(), rows[s].end());
    Value* axis = graph_.constant_int64({form.scanned[s].axis});
    std::vector<Value*> lines;
    for (Value* row : rows[s]) lines.push_back(emit(graph_, "Unsqueeze", {row, axis}, node, {}, result->name + "_row"));
    Value* all = lines.size() == 1 ? lines[0]
                                   : emit(graph_, "Concat", lines, node, {attribute("axis", form.scanned[s].axis)},
                                          result->name + "_rows");
    give(node, carried.size() + s, all);
  }
  return true;
}

void open_regions(Graph& graph, const std::function<void(Node*, Value* around)>& note) {
  std::function<void(Node*)> visit;
  RegionOpener opener(
      graph, [&](Node* node) { visit(node); }, false);
  visit = [&](Node* node) {
    if (opener.open(node)) return;
    if (note && opener.around() && node->domain != flow::kDomain) note(node, opener.around());
    if (node->is("Identity") && ops::content_of(node->input(0))) ops::infer_results(ops::op_of(*node), *node);
  };
  for (Node* node : nodes_of(graph)) visit(node);
}

}  // namespace tessera::rewrite
