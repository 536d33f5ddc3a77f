#include <fmt/format.h>

#include "tessera/ir/flow.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/recurrent_cell.h"
#include "tessera/ops/local/form.h"

/// RNN, GRU and LSTM whose hidden units are split over ranks: each rank has the rows of its units in every gate, and
/// their part of the states. A loop over time gathers the hidden state at the begin of each step:
///
///   h = Carry (h0, step)                    # [n, own units]
///   all = AllGather (h)                     # [n, units]
///   gates = Item (x · Wᵀ, step) + all · Rᵀ  # [n, gates · own units]
///
/// A GRU that resets its state before the last gate's product gathers that, too.
namespace tessera::ops {
namespace {

class SplitRecurrence {
 public:
  explicit SplitRecurrence(Localizer& local)
      : local_(local),
        b_(local.graph, name_of_first(local.node)),
        type_(SplitForm::wide(local.inputs[0]->dtype())),
        batch_first_(local.node.get_int("layout", 0) != 0),
        width_(local.extents[local.factor("h")]),
        sequences_(local.extents[local.factor("n")]) {
    for (size_t i = 0; i < local.inputs.size(); ++i) {
      Value* given = local.inputs[i];
      operands_.push_back(given && i != RecurrentCell::kLengths ? b_.cast(given, type_) : given);
    }
  }

  std::vector<Value*> run() {
    Value*& x = operands_[RecurrentCell::kSequence];
    if (batch_first_) x = b_.transpose(x, {1, 0, 2});
    times_ = x->shape()[0];
    const std::vector<bool> backwards = RecurrentCell::backwards_of(local_.node);
    for (size_t d = 0; d < backwards.size(); ++d) run_direction(d, backwards[d]);
    std::vector<Value*> results = {joined(all_, batch_first_ ? 2 : 1), joined(last_hidden_, batch_first_ ? 1 : 0)};
    if (local_.node.is("LSTM")) results.push_back(joined(last_cell_, batch_first_ ? 1 : 0));
    results.resize(local_.node.outputs.size());
    for (size_t r = 0; r < results.size(); ++r)
      if (results[r]) results[r] = b_.cast(results[r], local_.outputs[r].dtype);
    return results;
  }

 private:
  static std::string name_of_first(const Node& node) {
    for (const Value* result : node.outputs)
      if (result) return result->name;
    return node.op_type;
  }

  std::vector<Value*> flow(std::string_view type, std::vector<Value*> operands, std::vector<Attribute> attributes = {},
                           size_t results = 1) {
    return b_.emit_all(flow::kDomain, type, std::move(operands), std::move(attributes), results);
  }

  // The state [n, units] of all ranks. It is a value of its own in each direction and place of a step.
  Value* gathered(Value* state, size_t d, const char* what) {
    Shape shape;
    std::vector<int> alone = {local_.factor("h")};
    for (const DimFactors& dim : local_.rule.results[first_result()]) {
      const std::string& name = local_.rule.factors[dim.front()].name;
      shape.push_back(name == "h" ? width_ : name == "n" ? sequences_ : Expr(1));
      if (name != "h" && name != "n") alone.push_back(dim.front());
    }
    // The units are dealt out in blocks, the first piece.
    const std::vector<Localizer::Piece>& pieces = local_.pieces[local_.factor("h")];
    Expr block = 1;
    for (size_t p = 1; p < pieces.size(); ++p) block = block * pieces[p].size;
    Value* all = local_.gather(b_.reshape(state, shape), alone, shape.size() - 1, pieces.front().size, block,
                               fmt::format("{}.{}", what, d));
    const Expr& units = local_.rule.factors[local_.factor("h")].size;
    return b_.reshape(all, {sequences_, units});
  }

  size_t first_result() const {
    size_t first = 0;
    while (!local_.node.output(first)) ++first;
    return first;
  }

  void run_direction(size_t d, bool backwards) {
    RecurrentCell cell(b_, local_.node, operands_, d, width_,
                       [&](Value* state, const char* what) { return gathered(state, d, what); });
    std::vector<Attribute> order;
    if (backwards) order.push_back({"reverse", int64_t{1}, ""});
    Value* projected = cell.projected(operands_[RecurrentCell::kSequence]);
    const RecurrentCell::State initial = cell.initial(sequences_);
    Value* iteration = flow("Loop", {local_.graph.add_expression("times", {times_}, true)})[0];
    if (local_.around) local_.graph.set_input(iteration->producer, 2, local_.around);
    const auto carry = [&](Value* value) { return value ? flow("Carry", {value, iteration})[0] : nullptr; };
    const RecurrentCell::State before{carry(initial.hidden), carry(initial.cell)};
    Value* item = flow("Item", {projected, iteration}, order)[0];
    const RecurrentCell::Step step =
        RecurrentCell::kept(b_, cell.advanced(item, before), before, is_within(iteration, backwards));
    std::vector<Value*> end = {iteration, nullptr};
    for (const auto& [next, carried] :
         {std::pair(step.state.hidden, before.hidden), std::pair(step.state.cell, before.cell)})
      if (next) end.push_back(flow("Next", {next, iteration, carried}, {}, 2)[1]);
    Value* again = flow("Again", end)[0];
    // Each with its direction as a dimension.
    if (local_.node.output(0)) {
      Value* all = flow("Stack", {step.result, again}, order)[0];  // [t, n, h]
      if (batch_first_) all = b_.transpose(all, {1, 0, 2});
      Shape shape = all->shape();
      shape.insert(shape.begin() + (batch_first_ ? 2 : 1), Expr(1));
      all_.push_back(b_.reshape(all, shape));
    }
    const auto last = [&](size_t result, Value* carried, std::vector<Value*>& into) {
      if (!local_.node.output(result)) return;
      const Shape shape = batch_first_ ? Shape{sequences_, 1, width_} : Shape{1, sequences_, width_};
      into.push_back(b_.reshape(flow("Last", {carried, again})[0], shape));
    };
    last(1, before.hidden, last_hidden_);
    last(2, before.cell, last_cell_);
  }

  // [n, 1]: which sequences reach the time of an iteration; null: all do.
  Value* is_within(Value* iteration, bool backwards) {
    if (operands_.size() <= RecurrentCell::kLengths || !operands_[RecurrentCell::kLengths]) return nullptr;
    Value* lengths = b_.cast(operands_[RecurrentCell::kLengths], DType::int64);
    Value* time = backwards ? b_.sub(b_.scalar(DType::int64, times_ - 1), iteration) : iteration;
    return b_.emit("Greater", {b_.reshape(lengths, {sequences_, 1}), time});
  }

  Value* joined(const std::vector<Value*>& directions, int64_t axis) {
    if (directions.empty()) return nullptr;
    return directions.size() == 1 ? directions[0] : b_.emit("Concat", directions, {{"axis", axis, ""}});
  }

  Localizer& local_;
  NodeBuilder b_;
  const DType type_;
  const bool batch_first_;
  const Expr width_, sequences_;
  Expr times_;
  std::vector<Value*> operands_;
  std::vector<Value*> all_, last_hidden_, last_cell_;  // by direction
};

}  // namespace

std::vector<Value*> localize_recurrent(Localizer& local) {
  const int units = local.factor("h");
  return local.split[units] ? SplitRecurrence(local).run() : local.same();
}

}  // namespace tessera::ops
