#include "tessera/generate/run_positions.h"

#include "tessera/base/error.h"
#include "tessera/rewrite/edit.h"

namespace tessera::generate {
namespace {

const Node* node_behind(const Graph& graph, const Value* value) {
  const auto& nodes = graph.nodes();
  for (size_t i = 0; i + 1 < nodes.size(); ++i)
    if (nodes[i].get() == value->producer) return nodes[i + 1].get();
  return nullptr;
}

}  // namespace

ops::NodeBuilder RunPositions::at_front() {
  return {graph_, "generate", graph_.nodes().empty() ? nullptr : graph_.nodes().front().get()};
}

// 0, 1, …, sequence - 1
Value* RunPositions::index(ops::NodeBuilder& b) {
  Value* range = b.range(Expr::symbol(sequence_));
  own_.insert(range);
  return range;
}

Value* RunPositions::of_rows() {
  ops::NodeBuilder b = at_front();
  if (!of_rows_) of_rows_ = b.add(b.reshape(held_, {batch_, 1}), b.reshape(index(b), {1, Expr::symbol(sequence_)}));
  return of_rows_;
}

Value* RunPositions::of_all() {
  ops::NodeBuilder b = at_front();
  if (!of_all_) of_all_ = b.add(index(b), b.emit("Gather", {held_, graph_.constant_int64({0}, true)}));
  return of_all_;
}

void RunPositions::replace_input(Value* input, Value* positions) {
  if (input->dtype() != DType::int64)
    positions = rewrite::emit(graph_, "Cast", {positions}, node_behind(graph_, positions),
                              {rewrite::attribute("to", static_cast<int64_t>(input->dtype()))});
  graph_.replace_uses(input, positions);
  graph_.erase(input);
}

void RunPositions::replace_ranges(const Expr& first, bool by_rows) {
  graph_.erase_dead();
  for (Node* node : rewrite::nodes_of(graph_)) {
    if (!node->is("Range") || made(node->outputs[0])) continue;
    const auto start = rewrite::contents(node->input(0)), step = rewrite::contents(node->input(2));
    if (!start || start->size() != 1 || node->outputs[0]->shape()[0] != Expr::symbol(sequence_) ||
        node->outputs[0]->dtype() != DType::int64 || !step || !step->front().is(1))
      continue;
    const auto shift = (start->front() - first).constant();
    if (!shift) continue;
    Value* range = node->outputs[0];
    if (by_rows)
      replace_by_rows(range, *shift);
    else
      graph_.replace_uses(range, shifted(of_all(), *shift, node));
  }
}

Value* RunPositions::shifted(Value* positions, int64_t by, const Node* before) {
  if (by == 0) return positions;
  return ops::NodeBuilder(graph_, "generate", before).add(positions, static_cast<double>(by));
}

// Each text has positions of its own where its place in the batch has a dimension: [sequence] viewed as
// [1, sequence, 1] becomes [batch, sequence, 1].
void RunPositions::replace_by_rows(Value* range, int64_t shift) {
  for (const Use& use : std::vector<Use>(range->uses)) {
    const Shape viewed = use.node->is("Reshape") ? use.node->outputs[0]->shape() : Shape{};
    if (viewed.size() < 2 || !viewed[0].is(1))
      fail("generate", "{} takes the positions of one text for all", use.node->label());
    Shape shape = viewed;
    shape[0] = batch_;
    graph_.set_input(use.node, 0, shifted(of_rows(), shift, use.node));
    graph_.set_input(use.node, 1, rewrite::shape_operand(graph_, shape));
  }
}

}  // namespace tessera::generate
