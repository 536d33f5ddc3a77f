// Edits that good tools make when they save models.
#include <algorithm>
#include <set>

#include "mutants/mutators.h"

namespace tessera::mutants {
namespace {

bool gives_one_tensor(const Site& site) {
  return !site.in_function() && !communicates(site.node()) && site.node().domain() != "tessera.comm" &&
         site.node().op_type() != "If" && site.node().output_size() > 0;
}

std::string strip_all(EditedModel& model, Random&) {
  strip_notes(model);
  return "types and metadata are taken away";
}

std::string strip_metadata(EditedModel& model, Random&) {
  for (const Scope& scope : model.scopes()) {
    if (!scope.graph) continue;
    for (auto* infos : {scope.graph->mutable_value_info(), scope.graph->mutable_input(), scope.graph->mutable_output()})
      for (onnx::ValueInfoProto& info : *infos) info.clear_metadata_props();
  }
  return "metadata are taken away";
}

std::string strip_names(EditedModel& model, Random&) {
  for (const Site& site : sites(model)) {
    site.node().clear_name();
    site.node().clear_doc_string();
  }
  return "nodes have no names";
}

std::string add_identity(const Site& site, Random& random) {
  const std::string what = "an Identity is put after " + label(site.node());
  const Interposed at = interpose(site, random.one_in(2));
  onnx::NodeProto same;
  same.set_op_type("Identity");
  same.add_input(at.from);
  same.add_output(at.to);
  insert_after(site.scope, site.index, same);
  return what;
}

// An operand that is not a token.
bool copies_well(const Site& site) {
  return gives_one_tensor(site) && site.node().input_size() > 0;
}

std::string copy_operand(const Site& site, Random& random) {
  const auto i = static_cast<int>(random.below(static_cast<size_t>(site.node().input_size())));
  const std::string operand = site.node().input(i), copied = site.model.fresh(operand);
  if (operand.empty()) return "";
  site.node().set_input(i, copied);
  const std::string what = label(site.node()) + " reads a copy of '" + operand + "'";
  onnx::NodeProto same;
  same.set_op_type("Identity");
  same.add_input(operand);
  same.add_output(copied);
  insert_after(site.scope, site.index - 1, same);
  return what;
}

bool is_held(const onnx::TensorProto& tensor) {
  return tensor.data_location() != onnx::TensorProto::EXTERNAL && tensor.name() != "tessera.token" &&
         tensor.name() != "tessera.rank";
}

bool is_small_number(const onnx::TensorProto& tensor) {
  return tensor.data_type() == onnx::TensorProto::INT64 && is_held(tensor);
}

std::string become_node(EditedModel& model, onnx::TensorProto& tensor, Random&) {
  const std::string name = tensor.name();
  onnx::NodeProto node = constant(name, {}, true);
  *attribute(node, "value")->mutable_t() = tensor;
  attribute(node, "value")->mutable_t()->clear_name();
  for (const Scope& scope : model.scopes())
    for (int i = 0; scope.graph && i < scope.graph->initializer_size(); ++i)
      if (&scope.graph->initializer(i) == &tensor) {
        scope.graph->mutable_initializer()->DeleteSubrange(i, 1);
        insert_after(scope, -1, node);
        return "'" + name + "' becomes a Constant";
      }
  return "";
}

// As merging of common subexpressions does, which also affects the first token.
std::string merge_constants(EditedModel& model, Random&) {
  onnx::GraphProto& graph = *model.proto.mutable_graph();
  const Scope scope{graph.mutable_node(), &graph, nullptr};
  std::set<std::string> merged;
  for (int a = 0; a < graph.initializer_size(); ++a)
    for (int b = graph.initializer_size() - 1; b > a; --b) {
      onnx::TensorProto one = graph.initializer(a), other = graph.initializer(b);
      if (!is_small_number(one) && one.name() != "tessera.token") continue;
      const std::string kept = one.name(), gone = other.name();
      one.clear_name();
      other.clear_name();
      if (one.SerializeAsString() != other.SerializeAsString()) continue;
      replace_uses(scope, gone, kept);
      graph.mutable_initializer()->DeleteSubrange(b, 1);
      merged.insert(gone);
    }
  return merged.empty() ? "" : "equal constants are merged";
}

// Another order of nodes that do not depend on each other, where tokens say the order that counts.
std::string shuffle(EditedModel& model, Random& random) {
  if (!model.has_tokens()) return "";
  for (const Scope& scope : model.scopes()) {
    std::vector<onnx::NodeProto> nodes(scope.nodes->begin(), scope.nodes->end());
    std::set<std::string> waiting;
    for (const onnx::NodeProto& node : nodes)
      for (const std::string& result : node.output()) waiting.insert(result);
    std::vector<bool> done(nodes.size(), false);
    for (int placed = 0; placed < scope.nodes->size(); ++placed) {
      std::vector<size_t> ready;
      for (size_t n = 0; n < nodes.size(); ++n) {
        if (done[n]) continue;
        bool is_ready = std::none_of(nodes[n].input().begin(), nodes[n].input().end(),
                                     [&](const std::string& operand) { return waiting.contains(operand); });
        for (const auto& held : nodes[n].attribute())
          if (held.has_g()) is_ready = is_ready && ready.empty() && n == static_cast<size_t>(placed);
        if (is_ready) ready.push_back(n);
      }
      if (ready.empty()) return "";  // graphs within nodes read outer values; leaves them alone
      const size_t n = random.one_of(ready);
      done[n] = true;
      for (const std::string& result : nodes[n].output()) waiting.erase(result);
      *scope.nodes->Mutable(placed) = nodes[n];
    }
  }
  return "independent nodes change places";
}

std::string rename_values(EditedModel& model, Random&) {
  onnx::GraphProto& graph = *model.proto.mutable_graph();
  const Scope scope{graph.mutable_node(), &graph, nullptr};
  std::vector<std::string> names;
  for (const onnx::NodeProto& node : graph.node())
    for (const std::string& result : node.output())
      if (!result.empty() && !is_output(scope, result)) names.push_back(result);
  if (names.empty()) return "";
  int number = 0;
  for (const std::string& name : names) {
    const std::string other = "renamed_" + std::to_string(number++);
    replace_uses(scope, name, other);
    for (onnx::NodeProto& node : *graph.mutable_node())
      for (std::string& result : *node.mutable_output())
        if (result == name) result = other;
    for (onnx::ValueInfoProto& info : *graph.mutable_value_info())
      if (info.name() == name) info.set_name(other);
  }
  return "values have other names";
}

}  // namespace

const std::vector<Mutator>& harmless() {
  static const std::vector<Mutator> all = {
      {.name = "take types and metadata away", .edit_model = strip_all},
      {.name = "take metadata away", .edit_model = strip_metadata},
      {.name = "take nodes' names away", .edit_model = strip_names},
      {"add an Identity", gives_one_tensor, add_identity},
      {"copy an operand", copies_well, copy_operand},
      {.name = "make a constant a node", .fits_tensor = is_held, .edit_tensor = become_node},
      {.name = "merge equal constants", .edit_model = merge_constants},
      {.name = "sort nodes otherwise", .edit_model = shuffle},
      {.name = "rename values", .edit_model = rename_values},
  };
  return all;
}

const std::vector<Mutator>& mutators() {
  static const std::vector<Mutator> all = [] {
    std::vector<Mutator> list;
    for (auto family : {communication_mutators, node_mutators, number_mutators, note_mutators})
      for (const Mutator& mutator : family()) list.push_back(mutator);
    return list;
  }();
  return all;
}

}  // namespace tessera::mutants
