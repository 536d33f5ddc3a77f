#include "tessera/spmd/layout/sizes.h"

#include <algorithm>
#include <limits>
#include <set>

#include "tessera/base/error.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/require.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/raise/affine.h"
#include "tessera/spmd/layout/equal_extents.h"

// First the equalities: each one that can be solved for a symbol that nobody gave defines that symbol. Then the demands
// for a least size, one after the other: until the demand is met, one of its free symbols is doubled or halved,
// whichever helps with the smallest change. Demands are in the order of nodes, so that upstream sizes grow first.
namespace tessera::spmd {
namespace {

class DemandReader {
 public:
  explicit DemandReader(const Graph& graph) : graph_(graph), affine_(graph) {}

  SizeDemands read() {
    for (const Value* input : graph_.inputs) not_empty(*input, "input '" + input->name + "'", false);
    for (const auto& node : graph_.nodes()) {
      const std::string label = node->label();
      const ops::OpDef& op = ops::op_of(*node);
      for (ExtentEquality& equality : equal_extents_of(*node, op.rule(*node)))
        demands_.equal.push_back(std::move(equality));
      requires_equal(*node);
      for (const Value* result : node->outputs)
        if (result) not_empty(*result, label, op.windows);  // other operators take empty tensors
      if (op.table && op.indices) covers_all(*node, op.indices(*node));
    }
    return std::move(demands_);
  }

 private:
  // The demands that inference raises. It runs on results of its own, since those of the graph already have names.
  void requires_equal(const Node& node) {
    Graph scratch;
    Node twin = node;
    for (Value*& result : twin.outputs)
      if (result) result = scratch.add_value(result->name, ValueKind::result, result->type);
    const ops::EqualityNotes required;
    ops::op_of(node).infer(twin);
    for (const auto& [a, b, broadcasts] : required.all()) demands_.equal.push_back({a, b, node.label(), broadcasts});
  }

  void not_empty(const Value& value, const std::string& label, bool needed) {
    if (!value.has_shape()) return;
    for (const Expr& extent : value.shape()) at_least({extent, 1, label, needed});
  }

  void at_least(SizeDemands::AtLeast demand) {
    auto low = ops::least(demand.value);
    if (demand.value.is_constant() || (low && *low >= demand.least)) return;
    if (known_.insert(demand.value.str()).second) demands_.at_least.push_back(std::move(demand));
  }

  // Indices of known positions are below the extent that they index.
  void covers(const Node& node, const Expr& extent, const rewrite::Affine* index, const Value* shaped) {
    if (!index || !shaped->has_shape()) return;
    Expr last = index->offset;
    for (size_t d = 0; d < index->strides.size(); ++d) {
      auto low = ops::least(index->strides[d]);
      if (low && *low >= 0) last = last + index->strides[d] * (shaped->shape()[d] - 1);
    }
    at_least({extent - 1 - last, 0, node.label(), true, true});
  }

  void covers_all(const Node& node, const ops::Indices& indices) {
    const Value* value = node.input(indices.operand);
    if (!indices.components) {
      for (const Expr& extent : indices.extents) covers(node, extent, affine_.of(value), value);
      return;
    }
    auto components = affine_.components(value);
    for (size_t c = 0; components && c < components->size() && c < indices.extents.size(); ++c)
      covers(node, indices.extents[c], &(*components)[c], value);
  }

  const Graph& graph_;
  rewrite::AffineAnalysis affine_;
  SizeDemands demands_;
  std::set<std::string> known_;
};

class Solver {
 public:
  Solver(const SizeDemands& demands, const Hints& given, const Hints& wished)
      : demands_(demands), given_(given), sizes_(wished) {
    for (const auto& [symbol, size] : given) sizes_[symbol] = size;
  }

  Sizes run() {
    for (const ExtentEquality& equality : demands_.equal) define(equality);
    settle();
    for (const auto& [symbol, value] : defined_) unsolved_.push_back({value, 1, symbol, true, false});
    // A change for one demand may break another.
    constexpr int kMostRounds = 3;
    for (int round = 0; round < kMostRounds && (round == 0 || !unmet().empty()); ++round) {
      for (const SizeDemands::AtLeast& demand : unsolved_) raise(demand);
      for (bool needed : {true, false})
        for (const SizeDemands::AtLeast& demand : demands_.at_least)
          if (demand.needed == needed) raise(demand);
    }
    return {sizes_, unmet()};
  }

 private:
  static constexpr int64_t kLargest = int64_t{1} << 20;

  bool is_free(const std::string& symbol) const {
    return sizes_.contains(symbol) && !given_.contains(symbol) && !defined_.contains(symbol);
  }

  // The expression with all given and defined symbols substituted.
  Expr reduced(const Expr& expr) const {
    return expr.substitute([&](std::string_view name) -> std::optional<Expr> {
      if (auto given = given_.find(name); given != given_.end()) return Expr(given->second);
      auto defined = defined_.find(std::string(name));
      return defined == defined_.end() ? std::nullopt : std::optional(defined->second);
    });
  }

  static int negative_terms(const Expr& expr) {
    int count = 0;
    for (const Expr::Term& term : expr.terms()) count += term.coefficient < 0;
    return count;
  }

  // Solves the equality for the free symbol whose solution has the fewest negative terms: total = past + sequence, not
  // past = total - sequence.
  void define(const ExtentEquality& equality) {
    const Expr a = reduced(equality.a), b = reduced(equality.b);
    if (equality.broadcasts && (a.is(1) || b.is(1))) return;
    const Expr difference = a - b;
    std::optional<std::pair<std::string, Expr>> best;
    for (const Expr::Term& term : difference.terms()) {
      if (term.factors.size() != 1 || term.factors[0]->kind != Expr::AtomKind::symbol ||
          !is_free(term.factors[0]->name))
        continue;
      const std::string& symbol = term.factors[0]->name;
      const Expr alone = term.coefficient * Expr::symbol(symbol), rest = difference - alone;
      std::set<std::string> others;
      rest.collect_symbols(others);
      if (others.contains(symbol)) continue;
      const auto value_of = Expr::exact_divide(Expr(0) - rest, term.coefficient);
      if (!value_of) continue;
      const Expr value = *value_of;
      if (value.is_constant() && *value.constant() < 0) continue;
      if (!best || negative_terms(value) < negative_terms(best->second)) best.emplace(symbol, value);
    }
    if (!best) {
      // |a - b| is 0 if 0 - |a - b| is not negative.
      if (!difference.is_constant())
        unsolved_.push_back({min(difference, 0 - difference), 0, equality.node, true, true});
      return;
    }
    for (auto& [symbol, value] : defined_)
      value = value.substitute(
          [&](std::string_view name) { return name == best->first ? std::optional(best->second) : std::nullopt; });
    defined_.insert(*std::move(best));
  }

  // The sizes of defined symbols follow from the free ones.
  void settle() {
    for (const auto& [symbol, value] : defined_) sizes_[symbol] = evaluate(value);
  }

  // A demand whose expression overflows or is unknown cannot be met.
  int64_t evaluate(const Expr& expr) const {
    try {
      return expr.evaluate(sizes_);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::user) throw;
      return std::numeric_limits<int64_t>::min();
    }
  }

  bool is_known(const Expr& expr) const {
    std::set<std::string> symbols;
    expr.collect_symbols(symbols);
    return std::all_of(symbols.begin(), symbols.end(), [&](const std::string& name) { return sizes_.contains(name); });
  }

  // The conditions of a demand: its own least size, and that the symbols defined for it are valid sizes.
  int64_t missing(const SizeDemands::AtLeast& demand) const {
    auto short_of = [&](int64_t least, const Expr& value) {
      return std::max<int64_t>(0, least - std::clamp(evaluate(value), -kLargest, kLargest));
    };
    int64_t gap = short_of(demand.least, demand.value);
    for (const auto& [symbol, value] : defined_) gap += short_of(1, value);
    return gap;
  }

  void raise(const SizeDemands::AtLeast& demand) {
    if (!is_known(demand.value) || missing(demand) == 0) return;
    constexpr int kMostSteps = 100;
    const Hints before = sizes_;
    const bool met = unmet().empty();
    bool good = true;
    for (int step = 0; good && missing(demand) > 0; ++step) good = step < kMostSteps && improve(demand);
    // That a tensor is not empty is only a preference; the model's needs override it.
    if (!good || (!demand.needed && met && !unmet().empty())) sizes_ = before;
  }

  // The least change of one free symbol that brings the demand nearer to being met.
  bool improve(const SizeDemands::AtLeast& demand) {
    const Expr value = reduced(demand.value);
    std::set<std::string> symbols;
    value.collect_symbols(symbols);
    for (const auto& [symbol, expr] : defined_) expr.collect_symbols(symbols);
    std::erase_if(symbols, [&](const std::string& name) { return !is_free(name); });
    const int64_t gap = missing(demand);
    auto helps = [&](const std::string& symbol, int64_t size) {
      if (size < 1 || size > kLargest) return false;
      const Hints before = sizes_;
      sizes_[symbol] = size;
      settle();
      if (missing(demand) < gap) return true;
      sizes_ = before;
      return false;
    };
    if (demand.tight)
      for (const std::string& symbol : symbols)
        if (helps(symbol, sizes_.at(symbol) + gap)) return true;
    for (int64_t factor = 2; factor <= kLargest; factor *= 2)
      for (const std::string& symbol : symbols)
        if (helps(symbol, sizes_.at(symbol) * factor) ||
            (sizes_.at(symbol) % factor == 0 && helps(symbol, sizes_.at(symbol) / factor)))
          return true;
    return false;
  }

  std::string unmet() const {
    for (const auto& [symbol, value] : defined_)
      if (sizes_.at(symbol) < 0)
        return fmt::format("{} must be {}, which is {}", symbol, value.str(), sizes_.at(symbol));
    for (const ExtentEquality& equality : demands_.equal) {
      if (!is_known(equality.a) || !is_known(equality.b)) continue;
      const int64_t a = evaluate(equality.a), b = evaluate(equality.b);
      if (a != b && !(equality.broadcasts && (a == 1 || b == 1)))
        return fmt::format("{} needs {} = {}, which are {} and {}", equality.node, equality.a.str(), equality.b.str(),
                           a, b);
    }
    for (const SizeDemands::AtLeast& demand : demands_.at_least)
      if (is_known(demand.value) && evaluate(demand.value) < (demand.needed ? demand.least : 0))
        return fmt::format("{} needs {} to be {} or more, which is {}", demand.node, demand.value.str(), demand.least,
                           evaluate(demand.value));
    return "";
  }

  const SizeDemands& demands_;
  const Hints& given_;
  Hints sizes_;
  std::map<std::string, Expr> defined_;  // over free symbols
  std::vector<SizeDemands::AtLeast>
      unsolved_;  // equalities that define no symbol, and the conditions that defined symbols are valid sizes
};

}  // namespace

SizeDemands demands_of(const Graph& graph) {
  return DemandReader(graph).read();
}

Sizes sizes_that_run(const SizeDemands& demands, const Hints& given, const Hints& wished) {
  return Solver(demands, given, wished).run();
}

}  // namespace tessera::spmd
