#include "tessera/ops/einsum.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"

// An Einsum of two operands is a matrix product between changes of shape. Worked example, experts' weights:
//   bsd,edf→bsef   x [b, s, d] → [1, b·s, d];  MatMul with w [e, d, f] as it is → [e, b·s, f] → [e, b, s, f]
//                  → Transpose → [b, s, e, f]
// Labels of both operands and the result are batch dimensions; labels of both operands only are contracted; the others
// are rows (of the left operand) and columns (of the right). If one operand is a weight, it is the right one, and its
// labels before the contracted ones are batch dimensions along which the left operand broadcasts; so the weight stays
// as it is stored. More than two operands are multiplied from the left, two at a time.
namespace tessera::rewrite {
namespace {

using Labels = std::vector<std::string>;

/// A tensor and the labels of its dimensions.
struct Term {
  Value* value = nullptr;
  Labels labels;
};

bool has(const Labels& labels, const std::string& label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

template <typename Keep>
Labels chosen(const Labels& labels, Keep keep) {
  Labels result;
  std::copy_if(labels.begin(), labels.end(), std::back_inserter(result), keep);
  return result;
}

Labels operator+(Labels a, const Labels& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class EinsumLowering {
 public:
  EinsumLowering(Graph& graph, Node* node) : graph_(graph), node_(node), equation_(ops::read_equation(*node)) {}

  /// False if the Einsum is not a product: a label occurs twice in one operand, or a contracted dimension broadcasts.
  bool run() {
    for (size_t i = 0; i < equation_.operands.size(); ++i) {
      const Labels& labels = equation_.operands[i];
      if (std::set(labels.begin(), labels.end()).size() != labels.size()) return false;
      for (size_t d = 0; d < labels.size(); ++d)
        if (!has(equation_.result, labels[d]) && !(node_->inputs[i]->shape()[d] == equation_.extents.at(labels[d])))
          return false;
    }
    Term left = term(0);
    for (size_t i = 1; i < equation_.operands.size(); ++i) {
      Labels later = equation_.result;
      for (size_t j = i + 1; j < equation_.operands.size(); ++j) later = later + equation_.operands[j];
      Term right = term(i);
      left = summed(left, right.labels + later);
      right = summed(right, left.labels + later);
      left = product(left, right, later);
    }
    left = arranged(summed(left, equation_.result), equation_.result);
    if (left.value->kind != ValueKind::result) left.value = emit(graph_, "Identity", {left.value}, node_);
    return replace(graph_, node_->outputs[0], left.value);
  }

 private:
  Term term(size_t i) const { return {node_->inputs[i], equation_.operands[i]}; }

  Expr extent(const Term& term, const std::string& label) const {
    return term.value->shape()[std::find(term.labels.begin(), term.labels.end(), label) - term.labels.begin()];
  }

  Shape extents(const Term& term, const Labels& labels) const {
    Shape shape;
    for (const std::string& label : labels) shape.push_back(has(term.labels, label) ? extent(term, label) : Expr(1));
    return shape;
  }

  /// The sum over the labels that are not needed any more.
  Term summed(const Term& term, const Labels& needed) {
    std::vector<int64_t> axes;
    for (size_t d = 0; d < term.labels.size(); ++d)
      if (!has(needed, term.labels[d])) axes.push_back(static_cast<int64_t>(d));
    if (axes.empty()) return term;
    Value* sum = emit(graph_, "ReduceSum", {term.value, graph_.constant_int64(axes)}, node_,
                      {attribute("keepdims", int64_t{0})});
    return {sum, chosen(term.labels, [&](const std::string& label) { return has(needed, label); })};
  }

  /// The term with its dimensions in that order; missing labels become dimensions of extent 1.
  Term arranged(const Term& term, const Labels& order) {
    std::vector<int64_t> permutation;
    for (const std::string& label : order)
      if (has(term.labels, label))
        permutation.push_back(std::find(term.labels.begin(), term.labels.end(), label) - term.labels.begin());
    Value* turned = transposed(graph_, term.value, permutation, node_);
    return {reshaped(graph_, turned, extents(term, order), node_), order};
  }

  /// The product of two terms, summed over the labels that are not needed later.
  Term product(Term left, Term right, const Labels& later) {
    auto is_state = [](const Term& term) { return term.value->kind == ValueKind::state; };
    if (is_state(left) && !is_state(right)) std::swap(left, right);
    Labels batch = chosen(left.labels, [&](auto& label) { return has(right.labels, label) && has(later, label); });
    Labels inner = chosen(right.labels, [&](auto& label) { return has(left.labels, label) && !has(later, label); });
    Labels rows = chosen(left.labels, [&](auto& label) { return !has(right.labels, label); });
    Labels columns = chosen(right.labels, [&](auto& label) { return !has(left.labels, label); });
    if (inner.empty()) {
      Labels all = batch + rows + columns;
      Value* value = emit(graph_, "Mul", {arranged(left, all).value, arranged(right, all).value}, node_);
      return {value, all};
    }
    Labels outer;  // of the weight, before what is contracted
    for (const std::string& label : right.labels) {
      if (has(inner, label) || !is_state(right)) break;
      if (has(columns, label)) outer.push_back(label);
    }
    if (outer.size() == columns.size()) outer.clear();
    columns = chosen(columns, [&](auto& label) { return !has(outer, label); });

    const bool is_batched = !batch.empty() || !outer.empty();
    Shape a = extents(left, batch + outer), row_extents = extents(left, rows);
    if (is_batched || rows.empty())
      a.push_back(tessera::product(row_extents));
    else
      a.insert(a.end(), row_extents.begin(), row_extents.end());
    a.push_back(tessera::product(extents(left, inner)));
    Shape b = extents(right, batch + outer);
    b.push_back(tessera::product(extents(right, inner)));
    b.push_back(tessera::product(extents(right, columns)));
    Value* x = reshaped(graph_, arranged(left, batch + rows + inner).value, a, node_);
    Value* y = reshaped(graph_, arranged(right, batch + outer + inner + columns).value, b, node_);
    Value* result = emit(graph_, "MatMul", {x, y}, node_);
    Labels labels = batch + outer + rows + columns;
    Shape shape(result->shape().begin(), result->shape().begin() + static_cast<long>(batch.size()));
    for (const Shape& more : {extents(right, outer), row_extents, extents(right, columns)})
      shape.insert(shape.end(), more.begin(), more.end());
    return {reshaped(graph_, result, shape, node_), labels};
  }

  Graph& graph_;
  Node* node_;
  ops::Equation equation_;
};

}  // namespace

void lower_einsum(OnnxModel& model) {
  for (Node* node : nodes_of(*model.graph))
    if (node->is("Einsum") && is_float(node->outputs[0]->dtype())) EinsumLowering(*model.graph, node).run();
  model.graph->erase_dead();
}

}  // namespace tessera::rewrite
