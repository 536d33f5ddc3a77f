#include <algorithm>
#include <map>
#include <set>

#include "tessera/ir/text.h"
#include "tessera/ir/text_syntax.h"
#include "tessera/ir/text_tensor.h"

namespace tessera::text {
namespace {

// Makes one graph. Its nodes also see the values of `outer`'s graph; used ones become captured inputs of this graph,
// which are not listed among its inputs.
class GraphBuilder {
 public:
  GraphBuilder(const Scanner& scanner, GraphBuilder* outer) : scanner_(scanner), outer_(outer) {}

  std::unique_ptr<Graph> build(const GraphSyntax& syntax) {
    graph_->name = syntax.name;
    for (const NodeSyntax& node : syntax.nodes)
      for (const OperandSyntax& output : node.outputs)
        if (!output.name.empty() && !produced_.insert(output.name).second)
          scanner_.fail_at(output.at, fmt::format("'{}' is the result of two nodes", output.name));
    inputs(syntax);
    for (const ValueSyntax& value : syntax.values) declare(value);
    for (const NodeSyntax& node : syntax.nodes) this->node(node);
    for (const ValueSyntax& output : syntax.outputs) graph_->outputs.push_back(this->output(output));
    for (const ValueSyntax& value : syntax.values)
      if (value.next) graph_->set_next(graph_->find(value.name), resolve(value.at, *value.next));
    return std::move(graph_);
  }

 private:
  // An input with data is an initializer, whether the data are in the signature or in the list.
  void inputs(const GraphSyntax& syntax) {
    std::set<std::string_view> initialized;
    for (const ValueSyntax& value : syntax.values)
      if (value.data) initialized.insert(value.name);
    for (const ValueSyntax& input : syntax.inputs) {
      if (input.kind || input.next || input.origin)
        scanner_.fail_at(input.at,
                         fmt::format("'{}' is a kind of initializer; write it after the results", input.name));
      if (initialized.contains(input.name)) continue;
      if (input.data) {
        declare(input);
        continue;
      }
      require_new(input.at, input.name);
      graph_->add_input(input.name, input.type);
    }
  }

  void require_new(size_t at, const std::string& name) {
    if (name.empty()) scanner_.fail_at(at, "a value needs a name");
    if (graph_->find(name)) scanner_.fail_at(at, fmt::format("'{}' is given twice; names must differ", name));
    if (produced_.contains(name))
      scanner_.fail_at(at, fmt::format("'{}' is a node's result too; names must differ", name));
  }

  void declare(const ValueSyntax& syntax) {
    bool of_result = !syntax.data && !syntax.content && !syntax.kind && !syntax.next && !syntax.origin &&
                     produced_.contains(syntax.name);
    if (of_result) {
      if (!result_types_.emplace(syntax.name, syntax.type).second)
        scanner_.fail_at(syntax.at, fmt::format("the type of '{}' is given twice", syntax.name));
      return;
    }
    // Exporters repeat the types of inputs and initializers among those of results.
    const Value* known = graph_->find(syntax.name);
    if (known && known->type == syntax.type && !syntax.data && !syntax.kind && !syntax.next && !syntax.origin) return;
    require_new(syntax.at, syntax.name);
    if (syntax.kind == ValueKind::expression) return declare_expression(syntax);
    Value* value = graph_->add_value(syntax.name, ValueKind::constant, syntax.type);
    if (syntax.data) {
      value->data = *syntax.data;
    } else {
      auto dims = syntax.type.shape ? constants_of(*syntax.type.shape) : std::nullopt;
      if (!dims)
        scanner_.fail_at(syntax.at, fmt::format("no node produces '{}', and as an initializer it needs a type with "
                                                "extents in numbers",
                                                syntax.name));
      value->data = zeros_at(scanner_, syntax.at, syntax.type.dtype, *dims, fmt::format("'{}'", syntax.name));
    }
    value->kind = syntax.kind ? *syntax.kind : implied_kind(value->type);
    value->origin = syntax.origin;
    if (syntax.origin && value->kind != ValueKind::state)
      scanner_.fail_at(syntax.at,
                       fmt::format("'{}' is a constant; only a state is a piece of a parameter", syntax.name));
    if (syntax.next && value->kind != ValueKind::state)
      scanner_.fail_at(syntax.at, fmt::format("'{}' is a constant; write 'state' before its type to give it a next "
                                              "value",
                                              syntax.name));
  }

  void declare_expression(const ValueSyntax& syntax) {
    const auto& [dtype, shape] = syntax.type;
    bool fits = syntax.content && shape && shape->size() <= 1 &&
                product(*shape) == Expr(static_cast<int64_t>(syntax.content->size()));
    if (!fits || !is_integer(dtype))
      scanner_.fail_at(syntax.at, fmt::format("the expression '{}' needs an integer type of rank 0 or 1 and as many "
                                              "elements, as in expression int64[1] s = {{batch}}",
                                              syntax.name));
    if (syntax.next) scanner_.fail_at(syntax.at, fmt::format("'{}' is not a state; it has no next value", syntax.name));
    graph_->add_value(syntax.name, ValueKind::expression, syntax.type)->content = syntax.content;
  }

  void node(const NodeSyntax& syntax) {
    auto node = std::make_unique<Node>();
    node->name = syntax.name;
    node->domain = syntax.domain;
    node->op_type = syntax.op_type;
    node->overload = syntax.overload;
    for (const OperandSyntax& operand : syntax.inputs) node->inputs.push_back(this->operand(operand));
    for (const AttributeSyntax& attribute : syntax.attributes) {
      AttributeValue value = attribute.value;
      if (attribute.graph) {
        GraphBuilder region(scanner_, this);
        value = Region(region.build(*attribute.graph));
        for (const std::string& name : region.captured_)
          if (std::find(node->captures.begin(), node->captures.end(), name) == node->captures.end())
            node->captures.push_back(name);
      }
      node->attributes.push_back({attribute.name, std::move(value), ""});
    }
    for (const std::string& name : node->captures) node->inputs.push_back(look_up(name));
    for (const OperandSyntax& output : syntax.outputs) {
      if (output.name.empty()) {
        node->outputs.push_back(nullptr);
        continue;
      }
      if (graph_->find(output.name))
        scanner_.fail_at(output.at, fmt::format("'{}' is given twice; names must differ", output.name));
      auto type = result_types_.find(output.name);
      node->outputs.push_back(
          graph_->add_value(output.name, ValueKind::result, type == result_types_.end() ? TensorType{} : type->second));
    }
    graph_->adopt_node(std::move(node));
  }

  Value* operand(const OperandSyntax& syntax) {
    if (!syntax.content) return syntax.name.empty() ? nullptr : resolve(syntax.at, syntax.name);
    auto key = std::pair(*syntax.content, syntax.scalar);
    auto found = expressions_.find(key);
    if (found != expressions_.end()) return found->second;
    std::string name = "{";  // no name in the text begins this way
    for (const Expr& element : *syntax.content) name += (name.size() > 1 ? ", " : "") + element.str();
    Value* value = graph_->add_expression(name + "}", *syntax.content, syntax.scalar);
    expressions_.emplace(std::move(key), value);
    return value;
  }

  Value* output(const ValueSyntax& syntax) {
    Value* value = resolve(syntax.at, syntax.name);
    if (value->kind == ValueKind::result && syntax.type.dtype != DType::undefined) value->type = syntax.type;
    return value;
  }

  // Null if no visible graph has it.
  Value* look_up(const std::string& name) {
    if (Value* found = graph_->find(name)) return found;
    // A name that a later node of this graph produces is not an outer one.
    const Value* captured = outer_ && !produced_.contains(name) ? outer_->look_up(name) : nullptr;
    if (!captured) return nullptr;
    captured_.push_back(name);
    return graph_->add_value(name, ValueKind::input, captured->type);
  }

  Value* resolve(size_t at, const std::string& name) {
    Value* found = look_up(name);
    if (!found && produced_.contains(name))
      scanner_.fail_at(at, fmt::format("'{}' is used before the node that produces it; put that node first", name));
    if (!found) scanner_.fail_at(at, fmt::format("there is no value '{}'", name));
    return found;
  }

  const Scanner& scanner_;
  GraphBuilder* outer_;
  std::unique_ptr<Graph> graph_ = std::make_unique<Graph>();
  std::vector<std::string> captured_;  // of `outer`'s graph, in the order of their first uses
  std::set<std::string> produced_;     // results of this graph's nodes
  std::map<std::string, TensorType> result_types_;
  std::map<std::pair<std::vector<Expr>, bool>, Value*> expressions_;  // equal ones are one value
};

}  // namespace

ValueKind implied_kind(const TensorType& type) {
  auto dims = type.shape ? constants_of(*type.shape) : std::nullopt;
  bool parameter = is_float(type.dtype) && dims && !dims->empty() && count_of(*dims) > 1;
  return parameter ? ValueKind::state : ValueKind::constant;
}

OnnxModel build_model(const Scanner& scanner, ModelSyntax syntax) {
  OnnxModel model;
  model.ir_version = syntax.ir_version;
  model.opset_imports = std::move(syntax.opset_imports);
  model.extra = std::move(syntax.extra);
  model.graph = GraphBuilder(scanner, nullptr).build(syntax.graph);
  for (FunctionSyntax& function : syntax.functions)
    model.functions.push_back({std::move(function.domain), std::move(function.name), std::move(function.overload),
                               GraphBuilder(scanner, nullptr).build(function.body), std::move(function.attributes),
                               std::move(function.defaults), std::move(function.opset_imports), ""});
  return model;
}

}  // namespace tessera::text

namespace tessera {

OnnxModel parse_text(std::string_view text, std::string_view source) {
  text::Scanner scanner(text, source);
  return text::build_model(scanner, text::parse_syntax(scanner));
}

}  // namespace tessera
