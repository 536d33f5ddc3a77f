#include "mutants/edited_model.h"

#include <algorithm>
#include <functional>
#include <set>

namespace tessera::mutants {
namespace {

constexpr std::string_view kDomain = "tessera.comm";

void collect_scopes(google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes, std::vector<Scope>& scopes) {
  for (onnx::NodeProto& node : nodes)
    for (onnx::AttributeProto& attribute : *node.mutable_attribute())
      if (attribute.has_g()) {
        onnx::GraphProto* graph = attribute.mutable_g();
        scopes.push_back({graph->mutable_node(), graph, nullptr});
        collect_scopes(*graph->mutable_node(), scopes);
      }
}

std::string text_of(const onnx::TypeProto& type) {
  if (!type.has_tensor_type()) return "";
  std::string text = std::to_string(type.tensor_type().elem_type()) + "[";
  for (const auto& dim : type.tensor_type().shape().dim())
    text += (dim.has_dim_param() ? dim.dim_param() : std::to_string(dim.dim_value())) + ",";
  return text + "]";
}

std::string type_in(const onnx::GraphProto& graph, const std::string& value) {
  for (const auto* infos : {&graph.value_info(), &graph.input(), &graph.output()})
    for (const onnx::ValueInfoProto& info : *infos)
      if (info.name() == value) return text_of(info.type());
  for (const onnx::TensorProto& tensor : graph.initializer())
    if (tensor.name() == value) {
      std::string text = std::to_string(tensor.data_type()) + "[";
      for (int64_t extent : tensor.dims()) text += std::to_string(extent) + ",";
      return text + "]";
    }
  for (const onnx::NodeProto& node : graph.node())
    for (const onnx::AttributeProto& attribute : node.attribute())
      if (attribute.has_g())
        if (std::string type = type_in(attribute.g(), value); !type.empty()) return type;
  return "";
}

void collect_names(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes, std::set<std::string>& names) {
  for (const onnx::NodeProto& node : nodes) {
    names.insert(node.output().begin(), node.output().end());
    names.insert(node.input().begin(), node.input().end());
    for (const onnx::AttributeProto& attribute : node.attribute())
      if (attribute.has_g()) collect_names(attribute.g().node(), names);
  }
}

// The suffix that a writer adds to the name of a value within a node's graph.
std::string without_suffix(std::string name) {
  for (std::string_view suffix : {".body", ".inside"})
    if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
  return name;
}

void rename_uses(google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes, const std::string& from,
                 const std::string& to) {
  for (onnx::NodeProto& node : nodes) {
    for (std::string& operand : *node.mutable_input())
      if (operand == from) operand = to;
    for (onnx::AttributeProto& attribute : *node.mutable_attribute())
      if (attribute.has_g()) rename_uses(*attribute.mutable_g()->mutable_node(), from, to);
  }
}

int maker_of(const Scope& scope, const std::string& value) {
  for (int n = 0; n < scope.nodes->size(); ++n)
    if (const auto& results = scope.nodes->Get(n).output(); std::count(results.begin(), results.end(), value)) return n;
  return -1;
}

void rename_result(const Scope& scope, const std::string& from, const std::string& to) {
  for (std::string& result : *scope.nodes->Mutable(maker_of(scope, from))->mutable_output())
    if (result == from) result = to;
}

}  // namespace

std::vector<Scope> EditedModel::scopes() {
  std::vector<Scope> all = {{proto.mutable_graph()->mutable_node(), proto.mutable_graph(), nullptr}};
  collect_scopes(*proto.mutable_graph()->mutable_node(), all);
  for (onnx::FunctionProto& function : *proto.mutable_functions())
    all.push_back({function.mutable_node(), nullptr, &function});
  return all;
}

std::string EditedModel::type_of(const std::string& value) const {
  return type_in(proto.graph(), value);
}

std::string EditedModel::fresh(const std::string& name) const {
  std::set<std::string> names;
  collect_names(proto.graph().node(), names);
  for (const onnx::FunctionProto& function : proto.functions()) collect_names(function.node(), names);
  for (int number = 0;; ++number)
    if (std::string fresh = name + ".mutant" + std::to_string(number); !names.contains(fresh)) return fresh;
}

std::vector<Site> sites(EditedModel& model) {
  std::vector<Site> all;
  for (const Scope& scope : model.scopes())
    for (int n = 0; n < scope.nodes->size(); ++n) all.push_back({model, scope, n});
  return all;
}

NodeKey key_of(const Site& site) {
  const onnx::NodeProto& node = site.node();
  NodeKey key{site.in_function() ? site.scope.function->name() : "", node.op_type(), node.name(), ""};
  if (node.output_size() > 0 && has_result(node))
    key.result = without_suffix(node.output(0));
  else
    for (const std::string& operand : node.input()) key.result += operand + " ";
  return key;
}

std::optional<Site> find(EditedModel& model, const NodeKey& key) {
  for (const Site& site : sites(model)) {
    const NodeKey other = key_of(site);
    if (other.function == key.function && other.op_type == key.op_type &&
        (key.name.empty() ? other.result == key.result : other.name == key.name))
      return site;
  }
  return std::nullopt;
}

std::string label(const onnx::NodeProto& node) {
  return node.op_type() + " '" +
         (!node.name().empty()     ? node.name()
          : node.output_size() > 0 ? node.output(0)
                                   : std::string()) +
         "'";
}

std::string base_of(const onnx::NodeProto& node) {
  return node.domain() == kDomain ? node.op_type().substr(0, node.op_type().find('_')) : node.op_type();
}

bool communicates(const onnx::NodeProto& node) {
  static const std::set<std::string> silent = {"RankId", "AxisIndex", "Neighbor", "ParallelFor"};
  return node.domain() == kDomain && !silent.contains(base_of(node));
}

bool has_operand(const onnx::NodeProto& node) {
  return base_of(node) != "Recv" && base_of(node) != "Barrier" && node.input_size() > 0;
}

bool has_result(const onnx::NodeProto& node) {
  return !(node.domain() == kDomain && (base_of(node) == "Send" || base_of(node) == "Barrier")) &&
         node.output_size() > 0;
}

onnx::AttributeProto* attribute(onnx::NodeProto& node, std::string_view name) {
  for (onnx::AttributeProto& attribute : *node.mutable_attribute())
    if (attribute.name() == name) return &attribute;
  return nullptr;
}

void set_text(onnx::NodeProto& node, const std::string& name, const std::string& text) {
  onnx::AttributeProto* found = attribute(node, name);
  if (!found) found = node.add_attribute();
  found->set_name(name);
  found->set_type(onnx::AttributeProto::STRING);
  found->set_s(text);
}

bool is_output(const Scope& scope, const std::string& value) {
  if (scope.function) return std::count(scope.function->output().begin(), scope.function->output().end(), value) > 0;
  return std::any_of(scope.graph->output().begin(), scope.graph->output().end(),
                     [&](const onnx::ValueInfoProto& output) { return output.name() == value; });
}

void replace_uses(const Scope& scope, const std::string& from, const std::string& to) {
  rename_uses(*scope.nodes, from, to);
}

void replace_by(const Site& site, const std::string& operand) {
  const std::string result = site.node().output(0);
  if (is_output(site.scope, result)) {
    onnx::NodeProto same;
    same.set_op_type("Identity");
    same.add_input(operand);
    same.add_output(result);
    site.node() = same;
    return;
  }
  site.scope.nodes->DeleteSubrange(site.index, 1);
  replace_uses(site.scope, result, operand);
  if (!site.scope.graph) return;
  auto* infos = site.scope.graph->mutable_value_info();
  for (int i = infos->size() - 1; i >= 0; --i)
    if (infos->Get(i).name() == result) infos->DeleteSubrange(i, 1);
}

bool unthread(const Site& site) {
  if (!site.model.has_tokens()) return true;
  const std::string before = site.node().input(site.node().input_size() - 1);
  const std::string after = site.node().output(site.node().output_size() - 1);
  if (!is_output(site.scope, after)) {
    replace_uses(site.scope, after, before);
    return true;
  }
  if (maker_of(site.scope, before) < 0) return false;
  rename_result(site.scope, before, after);
  return true;
}

onnx::NodeProto& insert_after(const Scope& scope, int index, onnx::NodeProto node) {
  *scope.nodes->Add() = std::move(node);
  for (int n = scope.nodes->size() - 1; n > index + 1; --n) scope.nodes->SwapElements(n, n - 1);
  return *scope.nodes->Mutable(index + 1);
}

bool thread(EditedModel& model, const Scope& scope, int index) {
  onnx::NodeProto& node = *scope.nodes->Mutable(index);
  if (!model.has_tokens()) {
    if (base_of(node) == node.op_type()) set_text(node, "order", "position");
    return true;
  }
  auto token_of = [&](int n) {
    const onnx::NodeProto& other = scope.nodes->Get(n);
    return communicates(other) ? std::optional(other.output(other.output_size() - 1)) : std::nullopt;
  };
  const std::string name = model.fresh("token");
  for (int before = index - 1; before >= 0; --before)
    if (auto token = token_of(before)) {
      replace_uses(scope, *token, name);
      if (is_output(scope, *token)) {  // then the chain ends with this node
        rename_result(scope, *token, name);
        *node.mutable_input()->rbegin() = name;
        *node.mutable_output()->rbegin() = *token;
      } else {
        *node.mutable_input()->rbegin() = *token;
        *node.mutable_output()->rbegin() = name;
      }
      return true;
    }
  for (int after = index + 1; after < scope.nodes->size(); ++after)
    if (token_of(after)) {
      std::string& taken = *scope.nodes->Mutable(after)->mutable_input()->rbegin();
      *node.mutable_input()->rbegin() = taken;
      *node.mutable_output()->rbegin() = taken = name;
      return true;
    }
  return false;
}

Interposed interpose(const Site& site, bool new_one_has_the_name) {
  std::string& result = *site.node().mutable_output(0);
  const std::string fresh = site.model.fresh(result);
  if (new_one_has_the_name || is_output(site.scope, result)) {
    const std::string name = result;
    result = fresh;
    return {fresh, name};
  }
  replace_uses(site.scope, result, fresh);
  return {result, fresh};
}

onnx::NodeProto constant(const std::string& result, const std::vector<int64_t>& elements, bool scalar) {
  onnx::NodeProto node;
  node.set_op_type("Constant");
  node.add_output(result);
  onnx::AttributeProto* value = node.add_attribute();
  value->set_name("value");
  value->set_type(onnx::AttributeProto::TENSOR);
  value->mutable_t()->set_data_type(onnx::TensorProto::INT64);
  if (!scalar) value->mutable_t()->add_dims(static_cast<int64_t>(elements.size()));
  for (int64_t element : elements) value->mutable_t()->add_int64_data(element);
  return node;
}

}  // namespace tessera::mutants
