#include <algorithm>
#include <array>
#include <cctype>

#include "random/random_program.h"
#include "random/reference.h"
#include "tessera/base/error.h"

namespace tessera::random {
namespace {

/// A message without names and numbers: "difference: ''", or the stage and the words of an error.
std::string kind_of(const std::string& message) {
  if (message.starts_with("difference:")) return "difference";
  std::string words;
  bool is_quoted = false;
  for (char c : message) {
    if (c == '\'') is_quoted = !is_quoted;
    if (!is_quoted && (std::isalpha(static_cast<unsigned char>(c)) || c == '[' || c == ']' || c == ' ')) words += c;
  }
  constexpr size_t kWords = 40;  // further on, shapes and axes are told
  return words.substr(0, kWords);
}

/// Nodes, outputs, places, orders, ranks, and parts and axes in orders, with options: every step makes this smaller.
std::array<size_t, 6> size_of(const Program& program) {
  size_t details = size_t{program.rings} + size_t{program.priced};
  for (const Order& order : program.orders)
    for (const DimSharding& dim : order.sharding.dims) {
      details += dim.parts.size() + dim.open;
      for (const Part& part : dim.parts) details += part.axes.size();
    }
  const Graph& graph = *program.model.graph;
  return {graph.nodes().size(),
          graph.outputs.size(),
          program.places.size(),
          program.orders.size(),
          static_cast<size_t>(program.mesh.size()),
          details};
}

class Shrinker {
 public:
  Shrinker(const Program& program, const Outcome& failure) : best_(program.clone()), kind_(kind_of(failure.message)) {}

  Program run() {
    bool smaller = true;
    while (smaller) {
      smaller = drop_outputs();
      smaller |= cut_nodes();
      smaller |= drop_places();
      smaller |= drop_orders();
      smaller |= shrink_mesh();
      smaller |= simplify_orders();
      smaller |= leave_out(&Program::rings);
      smaller |= leave_out(&Program::priced);
    }
    return std::move(best_);
  }

 private:
  bool keep_if_failing(Program candidate) {
    tidy(candidate);
    if (!(size_of(candidate) < size_of(best_))) return false;
    Outcome outcome = check(candidate);
    if (outcome.verdict != Verdict::failed || kind_of(outcome.message) != kind_) return false;
    best_ = std::move(candidate);
    return true;
  }

  bool drop_outputs() {
    bool any = false;
    for (size_t i = best_.model.graph->outputs.size(); i-- > 0 && best_.model.graph->outputs.size() > 1;) {
      Program candidate = best_.clone();
      auto& outputs = candidate.model.graph->outputs;
      outputs.erase(outputs.begin() + static_cast<long>(i));
      any |= keep_if_failing(std::move(candidate));
    }
    return any;
  }

  /// The last node goes if its operands can be outputs; any other by becoming inputs.
  bool cut_nodes() {
    bool any = false;
    for (size_t i = 0; i < best_.model.graph->nodes().size();) {
      if (keep_if_failing(without_node(i)) || keep_if_failing(ending_before(i)))
        any = true;
      else
        ++i;
    }
    return any;
  }

  Program without_node(size_t index) const {
    Program candidate = best_.clone();
    Graph& graph = *candidate.model.graph;
    Node* node = graph.nodes()[index].get();
    auto values = all_values();
    for (Value* result : std::vector<Value*>(node->outputs)) {
      if (!result || !values.contains(result->name) || graph.is_output(result)) continue;
      Value* input = graph.add_input(result->name + "_given", result->type);
      candidate.inputs[input->name] = values.at(result->name);
      candidate.facts[input->name] = candidate.facts.at(result->name);
      for (Order& order : candidate.orders)
        if (order.name == result->name) {
          order.name = input->name;
          order.sharding.partial.clear();  // an input is not a sum
        }
      graph.replace_uses(result, input);
    }
    return candidate;
  }

  /// The results of a node that are outputs give way to its operands.
  Program ending_before(size_t index) const {
    Program candidate = best_.clone();
    Graph& graph = *candidate.model.graph;
    Node* node = graph.nodes()[index].get();
    std::vector<Value*> outputs;
    for (Value* output : graph.outputs) {
      if (output->producer != node) {
        outputs.push_back(output);
        continue;
      }
      for (Value* operand : node->inputs)
        if (operand && operand->kind == ValueKind::result && std::count(outputs.begin(), outputs.end(), operand) == 0)
          outputs.push_back(operand);
    }
    if (!outputs.empty()) graph.outputs = outputs;
    return candidate;
  }

  /// One rank's results, by name.
  Tensors all_values() const {
    Program open = best_.clone();
    Graph& graph = *open.model.graph;
    const flow::Flow flow = flow::flow_of(graph);
    for (const auto& node : graph.nodes())
      for (Value* result : node->outputs)
        if (result && leaves(flow, *node) && !graph.is_output(result)) graph.outputs.push_back(result);
    try {
      return run_whole(graph, open);
    } catch (const Error&) {
      return {};
    }
  }

  bool drop_places() {
    bool any = false;
    for (size_t i = best_.places.size(); i-- > 0;) {
      Program candidate = best_.clone();
      candidate.places.erase(candidate.places.begin() + static_cast<long>(i));
      any |= keep_if_failing(std::move(candidate));
    }
    return any;
  }

  bool leave_out(bool Program::*option) {
    Program candidate = best_.clone();
    candidate.*option = false;
    return keep_if_failing(std::move(candidate));
  }

  bool drop_orders() {
    bool any = false;
    for (size_t i = best_.orders.size(); i-- > 0;) {
      Program candidate = best_.clone();
      candidate.orders.erase(candidate.orders.begin() + static_cast<long>(i));
      any |= keep_if_failing(std::move(candidate));
    }
    return any;
  }

  bool shrink_mesh() {
    bool any = false;
    for (size_t i = best_.mesh.axes().size(); i-- > 0;) {
      const MeshAxis axis = best_.mesh.axes()[i];
      for (int64_t size = 1; size < axis.size; ++size)
        if (keep_if_failing(with_axis_of(i, size))) {
          any = true;
          break;
        }
    }
    return any;
  }

  Program with_axis_of(size_t index, int64_t size) const {
    Program candidate = best_.clone();
    std::vector<MeshAxis> axes = candidate.mesh.axes();
    const std::string name = axes[index].name;
    axes[index].size = size;
    if (size == 1) axes.erase(axes.begin() + static_cast<long>(index));
    candidate.mesh = Mesh(axes);
    for (Placing& placing : candidate.places) {
      std::erase_if(placing.place, [&](const PlacedAxis& entry) {
        return entry.axis.axis == name && (size == 1 || entry.index >= size);
      });
      for (PlacedAxis& entry : placing.place)
        if (entry.axis.axis == name) entry.axis = AxisRef::whole({name, size});
    }
    std::erase_if(candidate.places, [](const Placing& placing) { return placing.place.empty(); });
    for (Order& order : candidate.orders)
      for (DimSharding& dim : order.sharding.dims)
        for (Part& part : dim.parts) {
          bool named =
              std::any_of(part.axes.begin(), part.axes.end(), [&](const AxisRef& ref) { return ref.axis == name; });
          std::erase_if(part.axes, [&](const AxisRef& ref) { return ref.axis == name; });
          if (named && size > 1) part.axes.push_back(AxisRef::whole({name, size}));
        }
    return candidate;
  }

  /// Dimensions whole, then closed.
  bool simplify_orders() {
    bool any = false;
    for (size_t i = 0; i < best_.orders.size(); ++i)
      for (size_t d = 0; d < best_.orders[i].sharding.dims.size(); ++d) {
        const DimSharding now = best_.orders[i].sharding.dims[d];
        Program candidate = best_.clone();
        DimSharding& dim = candidate.orders[i].sharding.dims[d];
        dim = Sharding::replicated({now.size()}).dims[0];
        if (!(dim == now) && keep_if_failing(std::move(candidate))) {
          any = true;
          break;
        }
      }
    return any;
  }

  Program best_;
  std::string kind_;
};

}  // namespace

Program shrink(const Program& program, const Outcome& failure) {
  return Shrinker(program, failure).run();
}

}  // namespace tessera::random
