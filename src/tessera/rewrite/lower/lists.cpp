#include "tessera/rewrite/lower/lists.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "tessera/base/counted.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/one_program.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/lower/lower.h"
#include "tessera/rewrite/regions/open_regions.h"

// ONNX's sequences, as lists whose tensors are known one by one:
//
//   s = SequenceInsert (SequenceConstruct (a, b), c);  y = ConcatFromSequence <axis = 0> (s)
//   → y = Concat <axis = 0> (a, b, c)
namespace tessera::rewrite {
namespace {

using ops::fail_node;
using Values = std::vector<Value*>;

constexpr std::string_view kList = "List", kListDomain = "tessera.list";

const Value* before_copies(const Value* value) {
  while (value->producer && value->producer->is("Identity") && value->producer->input(0))
    value = value->producer->inputs[0];
  return value;
}

std::set<std::string> symbols_in(const Expr& extent) {
  std::set<std::string> symbols;
  extent.collect_symbols(symbols);
  return symbols;
}

Values list_of(const Lowerer& l, Values tensors) {
  for (const Value* tensor : tensors) {
    if (!tensor) fail_node(l.node, "a tensor of its sequence is missing; the file is damaged");
    if (is_list(*tensor)) fail_node(l.node, "'{}' is a sequence, but must be a tensor", tensor->name);
    if (tensor->dtype() != tensors.front()->dtype())
      fail_node(l.node, "a sequence holds tensors of one type, but '{}' is {}, and '{}' is {}", tensors.front()->name,
                name_of(tensors.front()->dtype()), tensor->name, name_of(tensor->dtype()));
  }
  return {add_list(l.b.graph, std::move(tensors), &l.node, l.node.outputs.at(0)->name)};
}

Values tensors_of(const Lowerer& l) {
  const Value* list = l.in(0);
  if (!is_list(*list))
    fail_node(l.node,
              "the tensors of the sequence '{}' are not known one by one, since a branch, a loop or the caller gives "
              "it; export the model without sequences there",
              list->name);
  return list->producer->inputs;
}

// The position that the operand gives, in a list with this number of places.
size_t position_of(const Lowerer& l, size_t operand, size_t places) {
  const auto given = numbers(l.in(operand));
  if (!given || given->size() != 1)
    fail_node(l.node, "the position '{}' in its sequence is not known before the run; export the model with a constant",
              l.in(operand)->name);
  const auto count = static_cast<int64_t>(places);
  const int64_t tensors = static_cast<int64_t>(tensors_of(l).size());
  const int64_t at = given->front() < 0 ? given->front() + tensors : given->front();
  if (at < 0 || at >= count)
    fail_node(l.node, "position {} is outside its sequence of {}", given->front(), counted(tensors, "tensor"));
  return static_cast<size_t>(at);
}

// The tensors stacked along a new dimension.
Value* stacked(const Lowerer& l, const Values& tensors, int64_t axis) {
  Values rows;
  for (Value* tensor : tensors) rows.push_back(l.b.emit("Unsqueeze", {tensor, l.b.graph.constant_int64({axis})}));
  return rows.size() == 1 ? rows[0] : l.b.emit("Concat", rows, {attribute("axis", axis)});
}

Values empty_list(Lowerer& l) {
  return list_of(l, {});
}

Values constructed_list(Lowerer& l) {
  return list_of(l, l.node.inputs);
}

Values list_with(Lowerer& l) {
  Values tensors = tensors_of(l);
  const size_t at = l.has(2) ? position_of(l, 2, tensors.size() + 1) : tensors.size();
  tensors.insert(tensors.begin() + static_cast<std::ptrdiff_t>(at), l.in(1));
  return list_of(l, std::move(tensors));
}

Values list_without(Lowerer& l) {
  Values tensors = tensors_of(l);
  if (tensors.empty()) fail_node(l.node, "its sequence is empty");
  const size_t at = l.has(1) ? position_of(l, 1, tensors.size()) : tensors.size() - 1;
  tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(at));
  return list_of(l, std::move(tensors));
}

Values length_of_list(Lowerer& l) {
  return {l.b.graph.constant_int64({static_cast<int64_t>(tensors_of(l).size())}, true)};
}

// If only the run knows the position, tensors of one type are stacked, and it is looked up.
Values tensor_at(Lowerer& l) {
  const Values tensors = tensors_of(l);
  const auto is_like_first = [&](const Value* tensor) {
    return tensor->has_shape() && tensor->type == tensors.front()->type;
  };
  if (!numbers(l.in(1)) && !tensors.empty() && std::all_of(tensors.begin(), tensors.end(), is_like_first))
    return {l.b.emit("Gather", {stacked(l, tensors, 0), l.b.as_number(l.in(1))}, {attribute("axis", int64_t{0})})};
  return {tensors.at(position_of(l, 1, tensors.size()))};
}

Values concatenated_list(Lowerer& l) {
  const Values tensors = tensors_of(l);
  if (tensors.empty()) fail_node(l.node, "its sequence is empty");
  const int64_t added = l.node.get_int("new_axis", 0);
  if (added != 0 && added != 1) fail_node(l.node, "its new_axis is {}; it must be 0 or 1", added);
  if (!l.node.find_attribute("axis")) fail_node(l.node, "its axis is missing");
  if (!tensors.front()->has_shape())
    fail_node(l.node, "the shape of '{}' is not known; declare it in the model", tensors.front()->name);
  const size_t rank = tensors.front()->rank() + static_cast<size_t>(added);
  const int64_t axis = axis_of(l.node, "axis", 0, rank);
  if (added) return {stacked(l, tensors, axis)};
  return {tensors.size() == 1 ? tensors[0] : l.b.emit("Concat", tensors, {attribute("axis", axis)})};
}

// The sizes of pieces, or one size for all. Unlike other lists whose elements are followed, it may be long.
std::optional<std::vector<int64_t>> pieces_of(const Value* split) {
  if (const auto few = numbers(split)) return few;
  const bool is_known = split && split->kind == ValueKind::constant && is_integer(split->dtype()) && split->rank() == 1;
  return is_known ? std::optional(split->data.to_int64()) : std::nullopt;
}

// A Split has at most kMaxContent pieces, so that shape computation can follow their sizes; more are pieces of pieces.
Values pieces_along(const Lowerer& l, Value* x, int64_t axis, const std::vector<int64_t>& sizes) {
  constexpr auto kMost = static_cast<size_t>(ops::kMaxContent);
  const size_t each = (sizes.size() + kMost - 1) / kMost;
  std::vector<std::vector<int64_t>> groups;
  std::vector<int64_t> extents;
  for (size_t i = 0; i < sizes.size(); i += each) {
    const auto begin = sizes.begin() + static_cast<std::ptrdiff_t>(i);
    groups.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(std::min(each, sizes.size() - i)));
    extents.push_back(std::accumulate(groups.back().begin(), groups.back().end(), int64_t{0}));
  }
  const Values parts = emit_node(l.b.graph, "Split", {x, l.b.graph.constant_int64(extents)}, &l.node,
                                 {attribute("axis", axis)}, l.node.outputs.at(0)->name, extents.size())
                           ->outputs;
  if (each == 1) return parts;
  Values pieces;
  for (size_t g = 0; g < groups.size(); ++g)
    for (Value* piece : pieces_along(l, parts[g], axis, groups[g])) pieces.push_back(piece);
  return pieces;
}

Values list_of_pieces(Lowerer& l) {
  Value* x = l.in(0);
  if (!x->has_shape()) fail_node(l.node, "the shape of '{}' is not known; declare it in the model", x->name);
  const int64_t axis = axis_of(l.node, "axis", 0, x->rank());
  const auto extent = x->shape().at(static_cast<size_t>(axis)).constant();
  const auto given = pieces_of(l.in(1));
  std::vector<int64_t> sizes;
  if (given && l.in(1)->rank() == 1) {
    sizes = *given;
  } else {
    const int64_t piece = given ? given->at(0) : 1;
    if (l.has(1) && !given) fail_node(l.node, "its operand split, '{}', is not known before the run", l.in(1)->name);
    if (piece < 1) fail_node(l.node, "its pieces have {}; they must have at least 1", counted(piece, "element"));
    if (!extent)
      refuse_unknown_size(l.node, fmt::format("dimension {} of '{}', which it takes apart,", axis, x->name),
                          x->shape().at(static_cast<size_t>(axis)));
    for (int64_t left = *extent; left > 0; left -= piece) sizes.push_back(std::min(piece, left));
  }
  // ONNX ignores keepdims where `split` is given; ONNX Runtime does not if that is the number 1.
  const bool drops = !l.has(1) && l.node.get_int("keepdims", 1) == 0;
  if (sizes.empty()) return list_of(l, {});
  Values pieces = pieces_along(l, x, axis, sizes);
  if (drops)
    for (Value*& piece : pieces) piece = l.b.emit("Squeeze", {piece, l.b.graph.constant_int64({axis})});
  return list_of(l, std::move(pieces));
}

}  // namespace

void refuse_unknown_size(const Node& node, std::string_view what, const Expr& extent) {
  const std::set<std::string> symbols = symbols_in(extent);
  throw ops::NotInOneProgram(
      "shape", node,
      fmt::format("{} is {}, but must be a number before the model is compiled, since it decides how many tensors a "
                  "sequence has; give it a size (`with_sizes` {}=SIZE)",
                  what, extent.str(), fmt::join(symbols, "=SIZE,")),
      {.symbols = symbols});
}

bool is_put_together(const Value& value) {
  static constexpr std::array kMakers = {"SequenceEmpty", "SequenceConstruct", "SequenceInsert", "SequenceErase",
                                         "SplitToSequence"};
  const Node* node = before_copies(&value)->producer;
  return node && std::any_of(kMakers.begin(), kMakers.end(), [&](std::string_view maker) { return node->is(maker); });
}

bool is_sequence(const Value& given) {
  if (is_put_together(given)) return true;
  const Value* value = before_copies(&given);
  if (!value->producer) return false;
  const Node& node = *value->producer;
  const auto found = std::find(node.outputs.begin(), node.outputs.end(), value);
  const auto result = static_cast<size_t>(found - node.outputs.begin());
  if (node.is("Loop")) {
    const Value* initial = result + 2 < node.operand_count() ? node.inputs[result + 2] : nullptr;
    return initial && is_sequence(*initial);
  }
  if (!node.is("If")) return false;
  const Graph& branch = region_of(node, "then_branch");
  if (result >= branch.outputs.size()) return false;
  std::map<const Value*, Value*> around;
  map_captures(node, branch, around);
  const Value* output = before_copies(branch.outputs[result]);
  const auto outside = around.find(output);
  return is_sequence(outside == around.end() ? *output : *outside->second);
}

Value* add_list(Graph& graph, std::vector<Value*> tensors, const Node* before, const std::string& name) {
  return graph.add_node(kList, std::move(tensors), {name}, kListDomain, before)->output();
}

bool is_list(const Value& value) {
  return value.producer && value.producer->is(kList, kListDomain);
}

void refuse_read_lists(const Graph& graph) {
  for (const auto& node : graph.nodes())
    if (node->is(kList, kListDomain) && !node->outputs[0]->uses.empty())
      fail("fold", "{} takes only tensors, but reads the sequence '{}'", node->outputs[0]->uses.front().node->label(),
           node->outputs[0]->name);
}

void refuse_list_outputs(const Graph& graph) {
  for (const Value* output : graph.outputs)
    if (is_list(*output))
      fail("fold",
           "the sequence '{}' would be an output of the model, or of a part of it, but outputs are tensors; let the "
           "model give its tensors one by one",
           output->name);
}

std::vector<Lowering> list_lowerings() {
  return {
      {"SequenceEmpty", 0, empty_list},
      {"SequenceConstruct", 1, constructed_list},
      {"SequenceInsert", 2, list_with, {2}},
      {"SequenceErase", 1, list_without, {1}},
      {"SequenceAt", 2, tensor_at},
      {"SequenceLength", 1, length_of_list},
      {"ConcatFromSequence", 1, concatenated_list},
      {"SplitToSequence", 1, list_of_pieces, {1}},
  };
}

}  // namespace tessera::rewrite
