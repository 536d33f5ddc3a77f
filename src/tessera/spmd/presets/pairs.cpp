#include "tessera/spmd/presets/pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tessera/spmd/presets/split_stored.h"

namespace tessera::spmd {
namespace {

// A vocabulary is worth splitting if every rank gets at least this many rows.
constexpr int64_t kRowsPerRank = 16;

bool comes_from_input(const Value* value) {
  while (value && value->producer && !value->producer->inputs.empty()) value = value->producer->inputs[0];
  return value && value->kind == ValueKind::input;
}

// Values that depend on the model's inputs; all others are computed from weights alone.
std::set<const Value*> values_of_inputs(const Graph& graph) {
  std::set<const Value*> found(graph.inputs.begin(), graph.inputs.end());
  for (const auto& node : graph.nodes())
    if (std::any_of(node->inputs.begin(), node->inputs.end(),
                    [&](const Value* operand) { return operand && found.contains(operand); }))
      found.insert(node->outputs.begin(), node->outputs.end());
  return found;
}

// A node that multiplies an activation (operand 0) by a weight (operand 1).
struct Product {
  const NodeLayout* node;
  int contraction_dim;                 // of operand 1
  int result_dim;                      // of operand 1
  std::set<int> contraction, results;  // components
};

class Finder {
 public:
  explicit Finder(const PresetContext& context)
      : context_(context), layout_(context.layout), of_inputs_(values_of_inputs(context.graph)) {}

  MegatronPlan run() {
    for (const NodeLayout& node : layout_.nodes) {
      collect(node);
      find_pair_within(node);
    }
    pair_up();
    find_lookups();
    find_heads();
    for (const Product& product : products_)
      refuse(weight_of(product.node->node->inputs[1]), *product.node,
             "is not paired with another product, which would sum over its split dimension");
    return std::move(plan_);
  }

 private:
  int component(const Place& place) const {
    return layout_.slots[place.slot].dims[place.dim].parts[place.part].component;
  }

  void collect(const NodeLayout& node) {
    if (node.node->inputs.size() < 2 || node.operand_slots[0] < 0 || node.operand_slots[1] < 0) return;
    if (!weight_of(node.node->inputs[1])) return;
    Product product{&node, -1, -1, {}, {}};
    for (const SubFactor& sub : node.subfactors) {
      const ops::Factor& factor = node.rule.factors[sub.factor];
      int activation = -1, weight = -1, result = -1;
      for (size_t p = 0; p < sub.places.size(); ++p) {
        const Place& place = sub.places[p];
        if (place.result)
          result = static_cast<int>(p);
        else if (place.tensor == 0)
          activation = static_cast<int>(p);
        else if (place.tensor == 1)
          weight = static_cast<int>(p);
      }
      if (weight < 0 || !sub.splittable) continue;
      const Place& place = sub.places[weight];
      bool open = !layout_.blocked[component(place)];
      if (factor.kind == ops::FactorKind::reduction && factor.reduction == Reduction::sum && activation >= 0) {
        product.contraction_dim = place.dim;
        if (open) product.contraction.insert(component(place));
      } else if (factor.kind == ops::FactorKind::pass && activation < 0 && result >= 0) {
        product.result_dim = place.dim;
        if (open) product.results.insert(component(place));
      }
    }
    bool contracts = std::any_of(node.rule.factors.begin(), node.rule.factors.end(), [](const ops::Factor& factor) {
      return factor.kind == ops::FactorKind::reduction && factor.reduction == Reduction::sum;
    });
    if (contracts && (product.contraction_dim >= 0 || product.result_dim >= 0)) products_.push_back(product);
  }

  // Notes why a weight stays whole, should it stay whole; the first reason counts.
  template <typename... Args>
  void refuse(const Value* weight, const NodeLayout& node, fmt::format_string<Args...> why, Args&&... args) {
    plan_.refused.emplace(weight, node.node->label() + " " + fmt::format(why, std::forward<Args>(args)...));
  }

  static bool meets(const std::set<int>& a, const std::set<int>& b) {
    return std::any_of(a.begin(), a.end(), [&](int component) { return b.contains(component); });
  }

  // A node whose own weights make a pair: it has activations, and sums over a factor that runs along weights alone.
  // Example: the hidden dimension of a mixture of experts.
  void find_pair_within(const NodeLayout& node) {
    const auto is_made_of_weights = [&](const Place& place) {
      return !place.result && !of_inputs_.contains(node.node->inputs[place.tensor]);
    };
    if (std::all_of(node.node->inputs.begin(), node.node->inputs.end(),
                    [](const Value* operand) { return !operand || weight_of(operand); }))
      return;
    for (const SubFactor& sub : node.subfactors) {
      const ops::Factor& factor = node.rule.factors[sub.factor];
      if (factor.kind != ops::FactorKind::reduction || factor.reduction != Reduction::sum || !sub.splittable ||
          sub.size.is(1) || !std::all_of(sub.places.begin(), sub.places.end(), is_made_of_weights))
        continue;
      // It is a whole dimension, or the major part of one and divides evenly, so that each rank's part is well defined.
      const bool is_even = Expr::exact_divide(factor.size, context_.axis.size).has_value();
      const auto place = std::find_if(sub.places.begin(), sub.places.end(), [&](const Place& at) {
        if (!weight_of(node.node->inputs[at.tensor])) return false;
        const ops::DimFactors& dim = node.rule.operands[at.tensor][at.dim];
        return dim.front() == sub.factor && (dim.size() == 1 || is_even) && !layout_.blocked[component(at)];
      });
      if (place == sub.places.end()) continue;
      split_.insert(component(*place));
      plan_.rows.push_back({&node, place->dim, static_cast<size_t>(place->tensor)});
      return;
    }
  }

  // By component: how many nodes besides products with weights reduce over it, within a local form or by their results.
  std::map<int, int64_t> other_reductions() const {
    std::set<const NodeLayout*> products;
    for (const Product& product : products_) products.insert(product.node);
    std::map<int, int64_t> counts;
    for (const NodeLayout& node : layout_.nodes)
      for (const SubFactor& sub : node.subfactors) {
        const ops::Factor& factor = node.rule.factors[sub.factor];
        if ((factor.makes_partial() || ops::traits_of(factor.kind).communicates()) && !products.contains(&node))
          ++counts[component(sub.places.front())];
      }
    return counts;
  }

  // If the residual stream were split, norms would have to reduce over ranks. So the products whose sums the fewest
  // other nodes share come first: those over heads and hidden dimensions.
  void pair_up() {
    std::map<int, int64_t> reductions = other_reductions();
    std::vector<std::pair<int64_t, const Product*>> rows;
    for (const Product& product : products_) {
      int64_t count = 0;
      for (int component : product.contraction) count += reductions[component];
      rows.emplace_back(count, &product);
    }
    std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [count, candidate] : rows) {
      const Product& row = *candidate;
      if (row.contraction.empty() || meets(row.results, split_)) continue;
      std::vector<const Product*> partners;
      bool clash = false;
      for (const Product& column : products_)
        if (&column != &row && meets(column.results, row.contraction)) {
          partners.push_back(&column);
          clash |= meets(column.contraction, split_) || meets(column.contraction, row.contraction);
        }
      if (partners.empty() || clash) continue;
      split_.insert(row.contraction.begin(), row.contraction.end());
      plan_.rows.push_back({row.node, row.contraction_dim});
      for (const Product* column : partners) {
        bool known = std::any_of(plan_.columns.begin(), plan_.columns.end(),
                                 [&](const SplitWeight& other) { return other.node == column->node; });
        if (!known) plan_.columns.push_back({column->node, column->result_dim});
      }
    }
  }

  void find_lookups() {
    for (const NodeLayout& node : layout_.nodes)
      for (const SubFactor& sub : node.subfactors) {
        if (node.rule.factors[sub.factor].kind != ops::FactorKind::lookup || !sub.splittable) continue;
        const Value* table = weight_of(node.node->inputs[0]);
        if (!table) continue;
        auto rows = node.rule.factors[sub.factor].size.constant();
        if (!rows || *rows < kRowsPerRank * context_.axis.size) {
          refuse(table, node, "looks it up, and its {} rows are fewer than {} for each rank", rows.value_or(0),
                 kRowsPerRank);
          continue;
        }
        if (!comes_from_input(node.node->inputs[1])) {
          refuse(table, node, "looks it up by indices that are not an input of the model");
          continue;
        }
        for (const Place& place : sub.places)
          if (!place.result && place.tensor == 0) plan_.lookups.push_back({&node, place.dim, 0});
      }
  }

  // Dimensions of outputs, or of operands of a loss: operators that normalize or look up along them have local forms
  // for parts.
  std::set<int> ends() const {
    std::set<int> components;
    for (const Value* output : context_.graph.outputs) {
      auto found = layout_.of_value.find(output);
      if (found == layout_.of_value.end()) continue;
      for (const DimState& dim : layout_.slots[found->second.front()].dims)
        for (const PartState& part : dim.parts) components.insert(part.component);
    }
    for (const NodeLayout& node : layout_.nodes)
      for (const SubFactor& sub : node.subfactors)
        if (ops::traits_of(node.rule.factors[sub.factor].kind).scores)
          for (const Place& place : sub.places) components.insert(component(place));
    return components;
  }

  void find_heads() {
    const std::set<int> ending = ends();
    for (const Product& product : products_) {
      bool is_row = std::any_of(plan_.rows.begin(), plan_.rows.end(),
                                [&](const SplitWeight& row) { return row.node == product.node; });
      if (is_row || meets(product.results, split_) || meets(product.contraction, split_)) continue;
      if (!meets(product.results, ending)) continue;
      auto width = product.node->node->inputs[1]->shape()[product.result_dim].constant();
      if (width && *width >= kRowsPerRank * context_.axis.size)
        plan_.heads.push_back({product.node, product.result_dim});
      else
        refuse(weight_of(product.node->node->inputs[1]), *product.node,
               "is a head, whose {} columns are fewer than {} for each rank", width.value_or(0), kRowsPerRank);
    }
  }

  const PresetContext& context_;
  const Layout& layout_;
  const std::set<const Value*> of_inputs_;
  std::vector<Product> products_;
  std::set<int> split_;
  MegatronPlan plan_;
};

}  // namespace

MegatronPlan find_megatron(const PresetContext& context) {
  return Finder(context).run();
}

}  // namespace tessera::spmd
