#include <algorithm>
#include <map>

#include "tessera/base/error.h"
#include "tessera/dialect/group.h"
#include "tessera/dialect/schema.h"
#include "tessera/ir/always_equal.h"
#include "tessera/ir/kept_nodes.h"
#include "tessera/mesh/axis_bounds.h"
#include "tessera/mesh/axis_use.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/op.h"
#include "tessera/program_io/expression_nodes.h"
#include "tessera/program_io/lowering.h"
#include "tessera/program_io/misfit.h"
#include "tessera/program_io/rank_graph.h"
#include "tessera/proof/layouts.h"
#include "tessera/spmd/program.h"

namespace tessera::program_io {
namespace {

// The quotient of Div(x, y) if Div rounds like floordiv: if neither operand is negative, or if x = a - mod(a, y), the
// form in which ExpressionNodes writes other quotients.
std::optional<Expr> quotient_of(const Expr& x, const Expr& y) {
  if (auto exact = Expr::exact_divide(x, y)) return exact;
  auto low = x.lower_bound(), divisor_low = y.lower_bound();
  if (low && *low >= 0 && divisor_low && *divisor_low >= 0) return floordiv(x, y);
  for (const Expr::Term& term : x.terms()) {
    if (term.coefficient != -1 || term.factors.size() != 1) continue;
    const Expr::Atom& atom = *term.factors[0];
    if (atom.kind != Expr::AtomKind::mod || !(atom.arguments[1] == y)) continue;
    Expr whole = x + mod(atom.arguments[0], y);
    if (whole - mod(whole, y) == x) return floordiv(whole, y);
  }
  return std::nullopt;
}

std::optional<std::vector<Expr>> quotients_of(const Node& node) {
  auto x = ops::content_of(node.input(0)), y = ops::content_of(node.input(1));
  if (!x || !y || x->size() != y->size()) return std::nullopt;
  std::vector<Expr> result;
  for (size_t i = 0; i < x->size(); ++i) {
    auto quotient = (*y)[i].is(0) ? std::nullopt : quotient_of((*x)[i], (*y)[i]);
    if (!quotient) return std::nullopt;
    result.push_back(*quotient);
  }
  return result;
}

// Whether the elements of all operands are known.
bool results_are_known(const Node& node) {
  return !node.inputs.empty() && ops::find_op(node.op_type, node.domain) &&
         std::all_of(node.inputs.begin(), node.inputs.end(),
                     [](const Value* operand) { return !operand || ops::content_of(operand); });
}

// Whether the result follows from the operands' types alone.
bool results_follow_from_types(const Node& node) {
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (ops::reads_elements(node, i)) return false;
  return !node.inputs.empty();
}

// Whether all operands are constants of the model.
bool is_of_constants(const Node& node) {
  return std::none_of(node.inputs.begin(), node.inputs.end(),
                      [](const Value* operand) { return operand && operand->kind == ValueKind::expression; });
}

bool gives_size(const Node& node) {
  return std::all_of(node.outputs.begin(), node.outputs.end(),
                     [](const Value* result) { return !result || result->dtype() == DType::int64; });
}

void replace_by_expression(Graph& graph, Value* result, const std::vector<Expr>& content) {
  std::string name = result->name;
  graph.rename(result, name + ".nodes");
  Value* known = graph.add_expression(name, content, result->rank() == 0);
  known->type.dtype = result->dtype();
  graph.replace_uses(result, known);
}

// An operator of the dialect whose result is a number of this rank.
bool gives_rank_number(const Node& node) {
  return node.domain == spmd::kCommDomain && !dialect::communicates(node);
}

bool is_known(const TensorType& type) {
  return type.dtype != DType::undefined && type.shape.has_value();
}

bool is_untyped(const Node& node) {
  return std::any_of(node.outputs.begin(), node.outputs.end(),
                     [](const Value* result) { return result && !is_known(result->type); });
}

class ExpressionFolder {
 public:
  ExpressionFolder(Graph& graph, const Mesh& mesh, std::optional<int64_t> rank, const std::vector<int>& ranks)
      : graph_(graph), mesh_(mesh), rank_(rank), ranks_(ranks) {
    if (rank) coordinates_ = mesh.coordinates(*rank);
  }

  StatedTypes run() {
    take_position_inputs(graph_, mesh_, rank_);
    // The sizes of axes simplify quotients and remainders of axis indices.
    if (!rank_) replace_all([this](const Expr& expr) { return with_axis_bounds(expr, mesh_); });
    std::vector<Node*> nodes;
    for (const auto& node : graph_.nodes()) nodes.push_back(node.get());
    for (Node* node : nodes) visit(node);
    {
      const KeptNodes kept(graph_, dialect::communicates);
      graph_.erase_dead();
    }
    if (!rank_) replace_all([this](const Expr& expr) { return without_axis_bounds(expr, mesh_); });
    return std::move(stated_);
  }

 private:
  Expr bind(const Expr& expr) const {
    return coordinates_ ? bind_rank(expr, mesh_, *coordinates_) : with_axis_bounds(expr, mesh_);
  }

  template <typename Replace>
  void replace_all(Replace replace) {
    for (const auto& value : graph_.values()) {
      if (value->has_shape())
        for (Expr& extent : *value->type.shape) extent = replace(extent);
      if (value->content)
        for (Expr& element : *value->content) element = replace(element);
    }
  }

  // An edited file may have any fault in the node.
  void visit(Node* node) {
    const std::string label = node->label();
    try {
      derive(node);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::user) throw;
      fail("program", "{} cannot be followed: {}", label, error.what());
    } catch (const std::exception& error) {
      fail("program", "{} cannot be followed: {}", label, error.what());
    }
  }

  void derive(Node* node) {
    const bool untyped = is_untyped(*node);
    infer(node);
    if (node->domain != spmd::kCommDomain) {
      const bool of_types = results_follow_from_types(*node);
      const bool known = of_types || results_are_known(*node);
      if (!known && !untyped)
        for (Value* result : node->outputs)
          if (result) result->content.reset();
      // Values computed from constants alone are left to the model. Without types, int64 values count as sizes.
      if (known && !of_types && is_of_constants(*node) && !(untyped && gives_size(*node))) return;
    }
    for (Value* result : node->outputs) {
      if (!result || !result->content || graph_.is_output(result)) continue;
      if (rank_ || gives_rank_number(*node))
        for (Expr& element : *result->content) element = bind(element);
      replace_by_expression(graph_, result, *result->content);
    }
  }

  // Extents that ranks compute from their indices may turn out equal on all ranks, which operators may require.
  void settle(Value& result) {
    if (!result.has_shape()) return;
    for (Expr& extent : *result.type.shape) {
      if (extent.is_constant()) continue;
      auto [known, fresh] = settled_.try_emplace(extent);
      if (fresh) known->second = rank_ ? bind(extent) : without_idle_axes(extent, mesh_, ranks_);
      extent = known->second;
    }
  }

  // Infers the results' types, whatever the file states.
  void infer(Node* node) {
    std::vector<TensorType> stated;
    for (const Value* result : node->outputs) stated.push_back(result ? result->type : TensorType{});
    if (node->domain == spmd::kCommDomain)
      dialect::infer_node(*node, mesh_);
    else
      ops::infer_results(ops::op_of(*node), *node);
    for (size_t r = 0; r < stated.size(); ++r)
      if (Value* result = node->outputs[r]; result && !takes(*result, stated[r])) settle(*result);
    if (node->is("Div"))
      if (auto quotients = quotients_of(*node)) node->output()->content = quotients;
  }

  // Whether the result gets the extents in the file's form, because they are equal at all sizes. If that is not known,
  // they are left to the caller.
  bool takes(Value& result, const TensorType& stated) {
    if (!agrees(stated, result.type))
      throw Misfit(proof::misstated(result, stated, rank_.value_or(ranks_.empty() ? 0 : ranks_.front())));
    if (!stated.shape) return false;
    const bool same = equal_extents(*stated.shape, result.shape());
    if (same)
      result.type.shape = stated.shape;
    else
      stated_[result.name] = {result.dtype(), plain(*stated.shape)};
    return same;
  }

  bool equal_extents(const Shape& a, const Shape& b) const {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [&](const Expr& x, const Expr& y) { return x == y || always_equal(bind(x), bind(y)); });
  }

  Shape plain(Shape shape) const {
    if (!rank_)
      for (Expr& extent : shape) extent = without_axis_bounds(extent, mesh_);
    return shape;
  }

  Graph& graph_;
  const Mesh& mesh_;
  const std::optional<int64_t> rank_;
  const std::vector<int>& ranks_;
  std::optional<std::vector<int64_t>> coordinates_;
  std::map<Expr, Expr> settled_;
  StatedTypes stated_;
};

}  // namespace

void take_position_inputs(Graph& graph, const Mesh& mesh, std::optional<int64_t> rank) {
  std::erase_if(graph.inputs, [&](Value* input) {
    if (input->name == kRankInput) {
      input->content = {rank ? Expr(*rank) : dialect::rank_expression(mesh)};
      input->type = {DType::int64, Shape{}};  // a handle is also treated as a number
    } else if (input->name.starts_with(kSymbolPrefix)) {
      if (input->name.substr(kSymbolPrefix.size()).starts_with('@'))
        fail("program", "the input '{}' stands for the size of a symbol, and {} is an index; write the program again",
             input->name, input->name.substr(kSymbolPrefix.size()));
      input->content = {Expr::symbol(std::string_view(input->name).substr(kSymbolPrefix.size()))};
    } else {
      return false;
    }
    input->kind = ValueKind::expression;
    return true;
  });
}

StatedTypes fold_expression_nodes(Graph& graph, const Mesh& mesh, std::optional<int64_t> rank,
                                  const std::vector<int>& ranks) {
  return ExpressionFolder(graph, mesh, rank, ranks).run();
}

}  // namespace tessera::program_io
