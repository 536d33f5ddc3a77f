#include <functional>

#include "tessera/ir/text.h"
#include "tessera/ir/text_attribute.h"
#include "tessera/ir/text_header.h"
#include "tessera/ir/text_syntax.h"
#include "tessera/ir/text_value.h"

namespace tessera::text {
namespace {

constexpr int kDeepestNesting = 64;

class Parser {
 public:
  explicit Parser(Scanner& scanner) : in_(scanner) {}

  ModelSyntax model() {
    ModelSyntax model;
    if (in_.peek() == '<') {
      header(model);
    } else {
      model.opset_imports = {{"", 20}};
    }
    model.graph = graph();
    while (!in_.at_end()) model.functions.push_back(function());
    return model;
  }

 private:
  void header(ModelSyntax& model) {
    in_.expect("<");
    HeaderExtras extras;
    in_.items(">", [&] {
      size_t at = in_.position();
      std::string key = in_.identifier("a field of the model's header");
      in_.expect(":");
      if (key == "ir_version")
        model.ir_version = in_.integer("a version");
      else if (key == "opset_import")
        model.opset_imports = opsets();
      else if (key == "producer_name")
        extras.producer_name = in_.quoted("a string");
      else if (key == "producer_version")
        extras.producer_version = in_.quoted("a string");
      else if (key == "domain")
        extras.domain = in_.quoted("a string");
      else if (key == "model_version")
        extras.model_version = in_.integer("a version");
      else if (key == "doc_string")
        extras.doc_string = in_.quoted("a string");
      else if (key == "metadata_props")
        extras.metadata = metadata();
      else
        in_.fail_at(at, fmt::format("'{}' is not a field of a model's header", key));
    });
    model.extra = serialize_extras(extras);
  }

  std::map<std::string, int64_t> opsets() {
    std::map<std::string, int64_t> imports;
    in_.expect("[");
    in_.items("]", [&] {
      size_t at = in_.position();
      std::string domain = in_.quoted("a domain in quotes");
      in_.expect(":");
      if (!imports.emplace(domain, in_.integer("a version")).second)
        in_.fail_at(at, fmt::format("the domain \"{}\" is imported twice", domain));
    });
    return imports;
  }

  std::vector<std::pair<std::string, std::string>> metadata() {
    std::vector<std::pair<std::string, std::string>> entries;
    in_.expect("[");
    in_.items("]", [&] {
      std::string key = in_.quoted("a key in quotes");
      in_.expect(":");
      entries.emplace_back(key, in_.quoted("a value in quotes"));
    });
    return entries;
  }

  FunctionSyntax function() {
    FunctionSyntax function;
    in_.expect("<");
    in_.items(">", [&] {
      size_t at = in_.position();
      std::string key = in_.identifier("a field of the function's header");
      in_.expect(":");
      if (key == "domain")
        function.domain = in_.quoted("a string");
      else if (key == "overload")
        function.overload = in_.quoted("a string");
      else if (key == "opset_import")
        function.opset_imports = opsets();
      else if (key == "doc_string")
        in_.quoted("a string");
      else
        in_.fail_at(at, fmt::format("'{}' is not a field of a function's header", key));
    });
    function.name = in_.name("the function's name");
    if (in_.take("<"))
      in_.items(">", [&] {
        size_t at = in_.position();
        std::string name = in_.name("an attribute's name");
        if (in_.peek() != ':' && in_.peek() != '=') {
          function.attributes.push_back(name);
          return;
        }
        AttributeSyntax attribute = parse_attribute(in_, at, name, graph_);
        if (attribute.graph) in_.fail_at(at, "an attribute's default cannot be a graph");
        function.defaults.push_back({attribute.name, std::move(attribute.value), ""});
      });
    function.body = body();
    function.body.name = function.name;
    return function;
  }

  GraphSyntax graph() {
    size_t at = in_.position();
    if (++depth_ > kDeepestNesting) in_.fail_at(at, fmt::format("graphs nest deeper than {}", kDeepestNesting));
    std::string name = in_.name("the graph's name");
    GraphSyntax result = body();
    result.name = std::move(name);
    --depth_;
    return result;
  }

  // From the inputs to the closing brace.
  GraphSyntax body() {
    GraphSyntax graph;
    in_.expect("(");
    in_.items(")", [&] { graph.inputs.push_back(parse_value(in_, true)); });
    in_.expect("=>");
    in_.expect("(");
    in_.items(")", [&] { graph.outputs.push_back(parse_value(in_, false)); });
    if (in_.take("<")) in_.items(">", [&] { graph.values.push_back(parse_value(in_, true)); });
    in_.expect("{");
    while (!in_.take("}")) graph.nodes.push_back(node());
    return graph;
  }

  NodeSyntax node() {
    NodeSyntax node;
    node.at = in_.position();
    if (in_.take("[")) {
      node.name = in_.name("the node's name");
      in_.expect("]");
    }
    while (in_.peek() != '=') {
      OperandSyntax output{in_.position(), "", std::nullopt};
      if (in_.peek() != ',') output.name = in_.name("a result's name or '}'");
      node.outputs.push_back(std::move(output));
      if (!in_.take(",")) break;
    }
    in_.expect("=");
    operator_name(node);
    if (in_.take("<")) attributes(node);
    in_.expect("(");
    if (!in_.take(")")) {
      do node.inputs.push_back(operand());
      while (in_.take(","));
      if (!in_.take(")")) in_.expected("',' or ')'");
    }
    if (in_.take("<")) attributes(node);
    return node;
  }

  // domain.with.dots.OpType:overload
  void operator_name(NodeSyntax& node) {
    node.op_type = in_.name("an operator's name");
    while (in_.take(".")) {
      if (!node.domain.empty()) node.domain += ".";
      node.domain += node.op_type;
      node.op_type = in_.name("an operator's name");
    }
    if (in_.take(":")) node.overload = in_.name("an overload's name");
  }

  OperandSyntax operand() {
    OperandSyntax operand;
    operand.at = in_.position();
    if (in_.peek() == '{')
      operand.content = parse_content(in_, operand.scalar);
    else if (in_.peek() != ',' && in_.peek() != ')')
      operand.name = in_.name("an operand");
    return operand;
  }

  void attributes(NodeSyntax& node) {
    in_.items(">", [&] {
      size_t at = in_.position();
      std::string name = in_.name("an attribute's name");
      for (const AttributeSyntax& other : node.attributes)
        if (other.name == name) in_.fail_at(at, fmt::format("the attribute '{}' is given twice", name));
      node.attributes.push_back(parse_attribute(in_, at, name, graph_));
    });
  }

  Scanner& in_;
  const std::function<GraphSyntax()> graph_ = [this] { return graph(); };
  int depth_ = 0;
};

}  // namespace

ModelSyntax parse_syntax(Scanner& scanner) {
  return Parser(scanner).model();
}

}  // namespace tessera::text
