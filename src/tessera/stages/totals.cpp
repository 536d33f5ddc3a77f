#include "tessera/stages/totals.h"

#include <algorithm>

namespace tessera::stages {
namespace {

using Parts = std::vector<bool>;  // of which leaves; empty: the node is no scalar of this kind

int64_t count(const Parts& parts) {
  return std::count(parts.begin(), parts.end(), true);
}

void unite(Parts& with, const Parts& other) {
  if (with.size() < other.size()) with.resize(other.size());
  for (size_t i = 0; i < other.size(); ++i)
    if (other[i]) with[i] = true;
}

// States of more than one element that a node of the forward pass reads, and that the graph steps.
int64_t trained_states(const Graph& graph, const OneBatch& batch, const Roles& roles) {
  int64_t trained = 0;
  for (const Value* state : graph.values_of(ValueKind::state)) {
    if (!state->next) continue;
    trained += std::any_of(state->uses.begin(), state->uses.end(), [&](const Use& use) {
      const int reader = batch.index_of(*use.node);
      return reader >= 0 && roles.is_staged(reader);
    });
  }
  return trained;
}

// What a node's parts are found from.
struct Operands {
  bool gradients = false;  // it reads values that are computed from gradients, parameters, or what belongs to them
  bool only_parts = true;  // and of such values only parts
  bool tensors = false;    // and some with several elements
};

class Totaling {
 public:
  Totaling(const OneBatch& batch, const Roles& roles, const Measure& measure)
      : batch_(batch),
        roles_(roles),
        measure_(measure),
        parts_(static_cast<size_t>(batch.size())),
        varies_(parts_.size()) {
    totals_.of.assign(parts_.size(), Totals::Kind::none);
  }

  Totals run(int64_t trained) {
    for (int i = 0; i < batch_.size(); ++i)
      if (!roles_.is_forward(i)) find_parts(i);
    int64_t most = 0;
    for (const Parts& each : parts_) most = std::max(most, count(each));
    if (2 * most <= trained) return std::move(totals_);  // of some gradients only, as a ratio of two norms
    for (int i = 0; i < batch_.size(); ++i) find_totals(i, most);
    return std::move(totals_);
  }

 private:
  static size_t at(int node) { return static_cast<size_t>(node); }

  bool is_scalar(int node) const {
    const auto& results = batch_.node(node).outputs;
    return results.size() == 1 && results[0] && measure_.is_scalar(*results[0]);
  }

  Operands operands_of(int node) const {
    Operands found;
    for (const auto& [value, made_by] : batch_.operands(node)) {
      if (made_by < 0 ? value->kind == ValueKind::state && value->data.count() > 1 : roles_.is_staged(made_by)) {
        found.only_parts = false;
      } else if (made_by >= 0 && varies_[at(made_by)]) {
        found.gradients = true;
        found.only_parts = found.only_parts && !parts_[at(made_by)].empty();
        found.tensors = found.tensors || !measure_.is_scalar(*value);
      }
    }
    return found;
  }

  void find_parts(int node) {
    const Operands operands = operands_of(node);
    varies_[at(node)] = operands.gradients || !operands.only_parts;
    if (!operands.gradients) return;
    if (operands.only_parts) {
      for (const auto& [value, made_by] : batch_.operands(node))
        if (made_by >= 0) unite(parts_[at(node)], parts_[at(made_by)]);
      totals_.of[at(node)] = Totals::Kind::part;
    } else if (operands.tensors && is_scalar(node)) {
      parts_[at(node)].assign(++leaves_, false);
      parts_[at(node)].back() = true;
      totals_.of[at(node)] = Totals::Kind::leaf;
    }
  }

  void find_totals(int node, int64_t most) {
    bool all_scalar = is_scalar(node), behind = false;
    for (const auto& [value, made_by] : batch_.operands(node)) {
      all_scalar = all_scalar && measure_.is_scalar(*value);
      behind = behind || (made_by >= 0 && totals_.has_all(made_by));
    }
    const bool has_all = totals_.of[at(node)] == Totals::Kind::part && count(parts_[at(node)]) == most;
    if (behind && (has_all || all_scalar))
      totals_.of[at(node)] = Totals::Kind::after;
    else if (has_all)
      totals_.of[at(node)] = Totals::Kind::total;
  }

  const OneBatch& batch_;
  const Roles& roles_;
  const Measure& measure_;
  std::vector<Parts> parts_;
  std::vector<bool> varies_;
  size_t leaves_ = 0;
  Totals totals_;
};

}  // namespace

Totals totals_of(const Graph& graph, const OneBatch& batch, const Roles& roles, const Measure& measure) {
  return Totaling(batch, roles, measure).run(trained_states(graph, batch, roles));
}

}  // namespace tessera::stages
