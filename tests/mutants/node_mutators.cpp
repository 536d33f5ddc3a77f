// Edits of computation: nodes dropped, doubled, separated, given other operands; branches and outputs exchanged.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "mutants/mutators.h"

namespace tessera::mutants {
namespace {

bool computes(const Site& site) {
  return site.node().domain() != "tessera.comm" && site.node().output_size() > 0 && site.node().op_type() != "If";
}
bool computes_of_something(const Site& site) {
  return computes(site) && site.node().input_size() > 0;
}
bool is_if(const Site& site) {
  return site.node().op_type() == "If";
}

bool reads(const Site& site) {
  return site.node().input_size() > 0;
}
bool says(const Site& site) {
  return site.node().attribute_size() > 0;
}

// A node that makes what hardly any operand may be.
onnx::NodeProto odd_literal(const std::string& name, Random& random) {
  onnx::NodeProto node = constant(name, {}, false);
  onnx::TensorProto& tensor = *attribute(node, "value")->mutable_t();
  switch (random.below(6)) {
    case 0:  // no elements
      return node;
    case 1:
      return constant(name, {INT64_MAX}, random.one_in(2));
    case 2:
      return constant(name, {-1, -1, -1}, false);
    case 3:
      tensor.set_data_type(onnx::TensorProto::FLOAT);
      tensor.add_float_data(1.5f);
      tensor.set_dims(0, 1);
      return node;
    case 4:
      tensor.set_data_type(onnx::TensorProto::BOOL);
      tensor.add_int32_data(1);
      tensor.set_dims(0, 1);
      return node;
    default:  // two dimensions
      node = constant(name, {0, 1, 2, 3}, false);
      attribute(node, "value")->mutable_t()->set_dims(0, 2);
      attribute(node, "value")->mutable_t()->add_dims(2);
      return node;
  }
}

std::string drop_node(const Site& site, Random& random) {
  const onnx::NodeProto& node = site.node();
  const std::string operand = node.input(static_cast<int>(random.below(static_cast<size_t>(node.input_size()))));
  if (operand.empty() || node.output_size() != 1) return "";
  if (!site.in_function() && site.model.type_of(operand) != site.model.type_of(node.output(0))) return "";
  const std::string what = label(node) + " is replaced by its operand '" + operand + "'";
  replace_by(site, operand);
  return what;
}

std::string duplicate(const Site& site, Random& random) {
  onnx::NodeProto again = site.node();
  std::vector<std::pair<int, int>> uses;
  const std::string result = again.output(0);
  for (int n = site.index + 1; n < site.scope.nodes->size(); ++n)
    for (int i = 0; i < site.scope.nodes->Get(n).input_size(); ++i)
      if (site.scope.nodes->Get(n).input(i) == result) uses.emplace_back(n, i);
  if (uses.empty()) return "";
  const auto [n, i] = random.one_of(uses);
  const std::string own = site.model.fresh(result);
  site.scope.nodes->Mutable(n)->set_input(i, own);
  again.set_name("");
  for (std::string& output : *again.mutable_output())
    if (!output.empty()) output = site.model.fresh(output);
  again.set_output(0, own);
  const std::string what = label(site.node()) + " is done once more for one reader";
  insert_after(site.scope, site.index, again);
  return what;
}

// Values that a node may read in its place: those around it, too.
std::vector<std::string> values_before(const Site& site) {
  std::vector<std::string> values;
  const Scope& scope = site.scope;
  if (scope.function) values.assign(scope.function->input().begin(), scope.function->input().end());
  const onnx::GraphProto& graph = site.model.proto.graph();
  if (scope.graph) {
    for (const auto& input : graph.input()) values.push_back(input.name());
    for (const auto& tensor : graph.initializer()) values.push_back(tensor.name());
    for (const auto& tensor : scope.graph->initializer()) values.push_back(tensor.name());
    if (scope.graph != site.model.proto.mutable_graph())
      for (const onnx::NodeProto& node : graph.node())
        values.insert(values.end(), node.output().begin(), node.output().end());
  }
  for (int n = 0; n < site.index; ++n)
    values.insert(values.end(), scope.nodes->Get(n).output().begin(), scope.nodes->Get(n).output().end());
  return values;
}

std::string redirect(const Site& site, Random& random) {
  onnx::NodeProto& node = site.node();
  const auto i = static_cast<int>(random.below(static_cast<size_t>(node.input_size())));
  const std::string now = node.input(i);
  if (now.empty()) return "";
  const std::string type = site.model.type_of(now);
  std::vector<std::string> others = values_before(site);
  std::erase_if(others, [&](const std::string& value) {
    return value.empty() || value == now || (!site.in_function() && site.model.type_of(value) != type);
  });
  if (others.empty()) return "";
  const std::string other = random.one_of(others);
  node.set_input(i, other);
  return label(node) + " reads '" + other + "' and not '" + now + "'";
}

// Another value of any type, or a literal.
std::string replace_operand(const Site& site, Random& random) {
  onnx::NodeProto& node = site.node();
  const auto i = static_cast<int>(random.below(static_cast<size_t>(node.input_size())));
  const std::string now = node.input(i);
  if (now.empty()) return "";
  std::vector<std::string> others = values_before(site);
  std::erase_if(others, [&](const std::string& value) { return value.empty() || value == now; });
  if (!others.empty() && random.one_in(2)) {
    node.set_input(i, random.one_of(others));
    return label(node) + " reads '" + node.input(i) + "', of any type, and not '" + now + "'";
  }
  const std::string odd = site.model.fresh("odd");
  const std::string what = label(node) + " reads a literal and not '" + now + "'";
  node.set_input(i, odd);
  insert_after(site.scope, site.index - 1, odd_literal(odd, random));
  return what;
}

std::string lose_operand(const Site& site, Random& random) {
  onnx::NodeProto& node = site.node();
  const auto i = static_cast<int>(random.below(static_cast<size_t>(node.input_size())));
  const std::string what = label(node) + " loses its operand " + std::to_string(i);
  if (random.one_in(2))
    node.mutable_input()->DeleteSubrange(i, 1);
  else if (node.input(i).empty())
    return "";
  else
    node.set_input(i, "");
  return what;
}

std::string swap_operands(const Site& site, Random& random) {
  onnx::NodeProto& node = site.node();
  if (node.input_size() < 2) return "";
  const auto i = static_cast<int>(random.below(static_cast<size_t>(node.input_size() - 1)));
  if (node.input(i) == node.input(i + 1)) return "";
  node.mutable_input()->SwapElements(i, i + 1);
  return label(node) + " has its operands exchanged";
}

std::string swap_results(const Site& site, Random& random) {
  std::vector<int> others;
  const std::string result = site.node().output(0);
  for (int n = 0; n < site.scope.nodes->size(); ++n) {
    const onnx::NodeProto& other = site.scope.nodes->Get(n);
    if (n != site.index && other.output_size() > 0 && !communicates(other) &&
        (site.in_function() || site.model.type_of(other.output(0)) == site.model.type_of(result)))
      others.push_back(n);
  }
  if (others.empty()) return "";
  const int n = random.one_of(others);
  onnx::NodeProto& other = *site.scope.nodes->Mutable(n);
  const std::string what = label(site.node()) + " and " + label(other) + " exchange results";
  std::swap(*site.node().mutable_output(0), *other.mutable_output(0));
  return what;
}

std::string become_like(const Site& site, Random& random) {
  static const std::vector<std::vector<std::string>> families = {
      {"Add", "Sub", "Mul", "Div", "Min", "Max", "Mod"},
      {"Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Exp", "Sqrt", "Identity", "Gelu"},
      {"ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd"},
      {"Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"},
      {"And", "Or", "Xor"},
      {"Softmax", "LogSoftmax"},
      {"ArgMax", "ArgMin"},
  };
  for (const auto& family : families)
    if (std::find(family.begin(), family.end(), site.node().op_type()) != family.end()) {
      const std::string before = label(site.node());
      const std::string& other = family[random.below(family.size())];
      if (other == site.node().op_type()) return "";
      site.node().set_op_type(other);
      return before + " becomes " + other;
    }
  return "";
}

std::string change_attribute(const Site& site, Random& random) {
  onnx::NodeProto& node = site.node();
  if (node.attribute_size() == 0) return "";
  onnx::AttributeProto& chosen =
      *node.mutable_attribute(static_cast<int>(random.below(static_cast<size_t>(node.attribute_size()))));
  const std::string what = label(node) + " has another " + chosen.name();
  switch (chosen.type()) {
    case onnx::AttributeProto::INT:
      chosen.set_i(random.one_in(2) ? chosen.i() + 1 : chosen.i() - 1);
      return what;
    case onnx::AttributeProto::FLOAT:
      chosen.set_f(random.one_in(2) ? chosen.f() * 2 : chosen.f() + 1);
      return what;
    case onnx::AttributeProto::INTS: {
      if (chosen.ints_size() == 0) return "";
      const auto i = static_cast<int>(random.below(static_cast<size_t>(chosen.ints_size())));
      if (chosen.ints_size() > 1 && random.one_in(2))
        chosen.mutable_ints()->SwapElements(i, (i + 1) % chosen.ints_size());
      else
        chosen.set_ints(i, chosen.ints(i) + 1);
      return what;
    }
    case onnx::AttributeProto::STRING: {
      static const std::map<std::string, std::string> others = {
          {"none", "tanh"}, {"tanh", "none"}, {"linear", "nearest"}, {"nearest", "linear"}, {"constant", "reflect"}};
      auto other = others.find(chosen.s());
      if (other == others.end()) return "";
      chosen.set_s(other->second);
      return what;
    }
    default:
      return "";
  }
}

std::string drop_attribute(const Site& site, Random& random) {
  onnx::NodeProto& node = site.node();
  if (node.attribute_size() == 0) return "";
  const auto a = static_cast<int>(random.below(static_cast<size_t>(node.attribute_size())));
  const std::string what = label(node) + " loses its " + node.attribute(a).name();
  node.mutable_attribute()->DeleteSubrange(a, 1);
  return what;
}

// An attribute, also of a communication or of a ParallelFor, with something else in it than it can hold.
std::string break_attribute(const Site& site, Random& random) {
  onnx::NodeProto& node = site.node();
  onnx::AttributeProto& chosen =
      *node.mutable_attribute(static_cast<int>(random.below(static_cast<size_t>(node.attribute_size()))));
  const std::string name = chosen.name(), what = label(node) + " has an odd " + name;
  if (chosen.has_g() && !random.one_in(4)) return "";
  chosen.Clear();
  chosen.set_name(random.one_in(8) ? name + ".odd" : name);
  switch (random.below(5)) {
    case 0:
      chosen.set_type(onnx::AttributeProto::INT);
      chosen.set_i(random.one_in(2) ? -7 : int64_t{1} << 40);
      break;
    case 1:
      chosen.set_type(onnx::AttributeProto::INTS);
      for (size_t i = random.below(4); i > 0; --i) chosen.add_ints(random.one_in(2) ? -9 : 3);
      break;
    case 2:
      chosen.set_type(onnx::AttributeProto::STRING);
      chosen.set_s(random.one_in(2) ? "" : "nowhere");
      break;
    case 3:
      chosen.set_type(onnx::AttributeProto::STRINGS);
      for (size_t i = random.below(3); i > 0; --i) chosen.add_strings("nowhere");
      break;
    default:
      chosen.set_type(onnx::AttributeProto::FLOAT);
      chosen.set_f(-1e30f);
  }
  return what;
}

// One rank, or every rank, gets a multiple of the result.
std::string insert_node(const Site& site, Random& random) {
  if (site.in_function() || !site.model.type_of(site.node().output(0)).starts_with("1[")) return "";
  onnx::NodeProto added;
  const char* op = random.one_in(2) ? "Neg" : "Tanh";
  const std::string what = std::string(op) + " is put after " + label(site.node());
  const Interposed at = interpose(site, random.one_in(2));
  added.set_op_type(op);
  added.add_input(at.from);
  added.add_output(at.to);
  insert_after(site.scope, site.index, added);
  return what;
}

std::string swap_branches(const Site& site, Random&) {
  onnx::AttributeProto *then = attribute(site.node(), "then_branch"),
                       *otherwise = attribute(site.node(), "else_branch");
  if (!then || !otherwise) return "";
  std::swap(*then->mutable_g(), *otherwise->mutable_g());
  return "an If has its branches exchanged";
}

std::string negate_condition(const Site& site, Random&) {
  onnx::NodeProto negated;
  negated.set_op_type("Not");
  negated.add_input(site.node().input(0));
  negated.add_output(site.model.fresh("negated"));
  site.node().set_input(0, negated.output(0));
  insert_after(site.scope, site.index, negated);
  site.scope.nodes->SwapElements(site.index, site.index + 1);
  return "an If has its condition negated";
}

std::string swap_branch_results(const Site& site, Random& random) {
  onnx::AttributeProto* then = attribute(site.node(), "then_branch");
  if (!then || then->g().output_size() < 2) return "";
  const auto count = static_cast<size_t>(then->g().output_size());
  const auto a = static_cast<int>(random.below(count)), b = static_cast<int>((a + 1 + random.below(count - 1)) % count);
  then->mutable_g()->mutable_output()->SwapElements(a, b);
  return "two results of a branch change places";
}

std::string swap_outputs(EditedModel& model, Random& random) {
  onnx::GraphProto& graph = *model.proto.mutable_graph();
  if (graph.output_size() < 2) return "";
  const auto a = static_cast<int>(random.below(static_cast<size_t>(graph.output_size() - 1)));
  for (onnx::NodeProto& node : *graph.mutable_node())
    for (std::string& output : *node.mutable_output())
      if (output == graph.output(a).name())
        output = graph.output(a + 1).name();
      else if (output == graph.output(a + 1).name())
        output = graph.output(a).name();
  return "the outputs '" + graph.output(a).name() + "' and '" + graph.output(a + 1).name() + "' are exchanged";
}

std::string read_other_input(EditedModel& model, Random& random) {
  onnx::GraphProto& graph = *model.proto.mutable_graph();
  if (graph.input_size() < 2) return "";
  const auto a = static_cast<int>(random.below(static_cast<size_t>(graph.input_size() - 1)));
  const std::string from = graph.input(a).name(), to = graph.input(a + 1).name();
  for (const Scope& scope : model.scopes())
    if (scope.graph) replace_uses(scope, from, to);
  return "'" + to + "' is read in the place of '" + from + "'";
}

}  // namespace

std::vector<Mutator> node_mutators() {
  return {
      {"drop a node", computes_of_something, drop_node},
      {"duplicate a node", computes, duplicate},
      {"insert a node", computes, insert_node},
      {"redirect an operand", computes_of_something, redirect},
      {"replace an operand", reads, replace_operand},
      {"lose an operand", reads, lose_operand},
      {"break an attribute", says, break_attribute},
      {"exchange operands", computes_of_something, swap_operands},
      {"exchange results", computes, swap_results},
      {"change an operator", computes, become_like},
      {"change an attribute", computes, change_attribute},
      {"drop an attribute", computes, drop_attribute},
      {"exchange branches", is_if, swap_branches},
      {"negate a condition", is_if, negate_condition},
      {"exchange a branch's results", is_if, swap_branch_results},
      {.name = "exchange outputs", .edit_model = swap_outputs},
      {.name = "read another input", .edit_model = read_other_input},
  };
}

}  // namespace tessera::mutants
