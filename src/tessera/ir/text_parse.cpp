#include <array>
#include <charconv>

#include "tessera/ir/text.h"
#include "tessera/ir/text_header.h"
#include "tessera/ir/text_syntax.h"
#include "tessera/ir/text_tensor.h"

namespace tessera::text {
namespace {

constexpr int kDeepestNesting = 64;

struct AttributeType {
  int number;
  std::string_view name;
};
constexpr std::array kAttributeTypes = {
    AttributeType{1, "float"},          AttributeType{2, "int"},
    AttributeType{3, "string"},         AttributeType{4, "tensor"},
    AttributeType{5, "graph"},          AttributeType{6, "floats"},
    AttributeType{7, "ints"},           AttributeType{8, "strings"},
    AttributeType{9, "tensors"},        AttributeType{10, "graphs"},
    AttributeType{11, "sparse_tensor"}, AttributeType{12, "sparse_tensors"},
    AttributeType{13, "type_proto"},    AttributeType{14, "type_protos"},
};

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
  // Items between commas, up to `close`, which is taken.
  template <typename Item>
  void items(std::string_view close, Item&& item) {
    if (in_.take(close)) return;
    do item();
    while (in_.take(","));
    if (!in_.take(close)) in_.expected(fmt::format("',' or '{}'", close));
  }

  void header(ModelSyntax& model) {
    in_.expect("<");
    HeaderExtras extras;
    items(">", [&] {
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
    items("]", [&] {
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
    items("]", [&] {
      std::string key = in_.quoted("a key in quotes");
      in_.expect(":");
      entries.emplace_back(key, in_.quoted("a value in quotes"));
    });
    return entries;
  }

  FunctionSyntax function() {
    FunctionSyntax function;
    in_.expect("<");
    items(">", [&] {
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
      items(">", [&] {
        size_t at = in_.position();
        std::string name = in_.name("an attribute's name");
        if (in_.peek() != ':' && in_.peek() != '=') {
          function.attributes.push_back(name);
          return;
        }
        AttributeSyntax attribute = attribute_value(at, name);
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
    items(")", [&] { graph.inputs.push_back(value(true)); });
    in_.expect("=>");
    in_.expect("(");
    items(")", [&] { graph.outputs.push_back(value(false)); });
    if (in_.take("<")) items(">", [&] { graph.values.push_back(value(true)); });
    in_.expect("{");
    while (!in_.take("}")) graph.nodes.push_back(node());
    return graph;
  }

  // [state|constant|expression] [type] name [= data] [-> next] [from origin]
  ValueSyntax value(bool with_data) {
    ValueSyntax value;
    value.at = in_.position();
    std::string word;
    bool named = in_.at_quoted();
    if (!named) word = in_.identifier("a type or a name");
    static constexpr std::pair<std::string_view, ValueKind> kKinds[] = {
        {"state", ValueKind::state}, {"constant", ValueKind::constant}, {"expression", ValueKind::expression}};
    for (const auto& [keyword, kind] : kKinds)
      if (with_data && word == keyword && in_.at_identifier()) {
        value.kind = kind;
        word = in_.identifier("a type");
        break;
      }
    DType dtype = dtype_named(word);
    std::vector<size_t> unknown;
    if (dtype != DType::undefined) {
      value.type = type(dtype, unknown);
      value.name = in_.name("a name after the type");
    } else if (named) {
      value.name = in_.quoted("a name");
    } else {
      value.name = word;
      if (in_.at_name() || in_.peek() == '[' || in_.peek() == '(')
        in_.fail_at(value.at, fmt::format("'{}' is not a tensor's element type; other types have no text form", word));
    }
    for (size_t d : unknown) (*value.type.shape)[d] = Expr::symbol(fmt::format("{}_dim_{}", value.name, d));
    if (with_data && in_.take("=")) data(value);
    if (with_data && in_.take("->")) value.next = in_.name("the name of the state's next value");
    if (with_data && in_.peek_identifier() == "from") value.origin = origin(value);
    return value;
  }

  // from name[extents] at [begin]
  StateOrigin origin(const ValueSyntax& value) {
    in_.identifier("'from'");
    StateOrigin origin;
    origin.name = in_.name("the name of the parameter that the state is a piece of");
    const size_t at = in_.position();
    origin.dims = numbers("an extent");
    if (in_.peek_identifier() != "at") in_.expected("'at'");
    in_.identifier("'at'");
    origin.begin = numbers("the first index of the piece");
    const auto dims = value.type.shape ? constants_of(*value.type.shape) : std::nullopt;
    bool fits = dims && dims->size() == origin.dims.size() && dims->size() == origin.begin.size();
    for (size_t d = 0; fits && d < dims->size(); ++d)
      fits = origin.begin[d] >= 0 && origin.dims[d] >= (*dims)[d] && origin.begin[d] <= origin.dims[d] - (*dims)[d];
    if (!fits) in_.fail_at(at, fmt::format("'{}' is not a piece of '{}' of these extents", value.name, origin.name));
    return origin;
  }

  Dims numbers(std::string_view what) {
    Dims all;
    in_.expect("[");
    items("]", [&] { all.push_back(in_.integer(what)); });
    return all;
  }

  void data(ValueSyntax& value) {
    if (value.kind == ValueKind::expression) {
      bool scalar = false;
      value.content = content(scalar);
      return;
    }
    size_t at = in_.position();
    if (in_.take("...")) return;
    if (in_.peek() == '[')
      in_.fail_at(at, fmt::format("'{}' refers to external data; write its elements, or only its type", value.name));
    auto dims = value.type.shape ? constants_of(*value.type.shape) : std::nullopt;
    if (!dims) in_.fail_at(value.at, fmt::format("'{}' has data, but its type lacks extents in numbers", value.name));
    value.data = parse_elements(in_, value.type.dtype, *dims, fmt::format("'{}'", value.name));
  }

  // What follows a type's name: nothing (a scalar), "[]" (any shape), or extents. Collects those written '?'.
  TensorType type(DType dtype, std::vector<size_t>& unknown) {
    TensorType type{dtype, Shape()};
    if (!in_.take("[")) return type;
    if (in_.take("]")) return {dtype, std::nullopt};
    items("]", [&] {
      if (in_.take("?")) {
        unknown.push_back(type.shape->size());
        type.shape->push_back(Expr(0));
      } else if (in_.at_name()) {
        std::string text = in_.name("an extent");
        auto parsed = Expr::parse(text);
        type.shape->push_back(parsed ? *parsed : Expr::symbol(text));
      } else {
        const size_t at = in_.position();
        const int64_t extent = in_.integer("an extent, a symbol, an expression in quotes or '?'");
        if (extent < 0) in_.fail_at(at, fmt::format("negative extent {}", extent));
        type.shape->push_back(extent);
      }
    });
    return type;
  }

  // {a, b*2} or {= a}
  std::vector<Expr> content(bool& scalar) {
    std::vector<Expr> elements;
    in_.expect("{");
    scalar = in_.take("=");
    size_t start = in_.position();
    items("}", [&] {
      size_t at = in_.position();
      bool quoted = in_.at_quoted();
      std::string text = quoted ? in_.quoted("an expression") : std::string(in_.until(",}"));
      auto parsed = Expr::parse(text);
      if (!parsed && !quoted) in_.fail_at(at, fmt::format("expected an expression, found '{}'", text));
      elements.push_back(parsed ? *parsed : Expr::symbol(text));
    });
    if (scalar && elements.size() != 1) in_.fail_at(start, "a scalar expression {= …} has one element");
    return elements;
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
      operand.content = content(operand.scalar);
    else if (in_.peek() != ',' && in_.peek() != ')')
      operand.name = in_.name("an operand");
    return operand;
  }

  void attributes(NodeSyntax& node) {
    items(">", [&] {
      size_t at = in_.position();
      std::string name = in_.name("an attribute's name");
      for (const AttributeSyntax& other : node.attributes)
        if (other.name == name) in_.fail_at(at, fmt::format("the attribute '{}' is given twice", name));
      node.attributes.push_back(attribute_value(at, name));
    });
  }

  // [: type] = value
  AttributeSyntax attribute_value(size_t at, std::string name) {
    AttributeSyntax attribute{at, std::move(name), {}, nullptr};
    std::string type;
    if (in_.take(":")) {
      size_t type_at = in_.position();
      type = in_.identifier("an attribute's type");
      if (type != "undefined" && !attribute_type_named(type))
        in_.fail_at(type_at, fmt::format("'{}' is not a type of an attribute", type));
    }
    in_.expect("=");
    size_t value_at = in_.position();
    auto mismatch = [&](std::string_view found) {
      in_.fail_at(value_at,
                  fmt::format("the attribute '{}' is {} where its type says {}", attribute.name, found, type));
    };
    auto require = [&](std::string_view found, std::initializer_list<std::string_view> types) {
      bool fits = type.empty();
      for (std::string_view candidate : types) fits = fits || type == candidate;
      if (!fits) mismatch(found);
    };
    if (in_.take("@")) {
      attribute.value = AttributeReference{in_.name("an attribute's name"), attribute_type_named(type)};
    } else if (type == "graph") {
      attribute.graph = std::make_unique<GraphSyntax>(graph());
    } else if (in_.at_quoted()) {
      require("a string", {"string"});
      attribute.value = in_.quoted("a string");
    } else if (in_.peek() == '[') {
      require("a list", {"ints", "floats", "strings"});
      attribute.value = list(type);
    } else if (in_.at_number()) {
      require("a number", {"int", "float"});
      std::string_view literal = in_.number("a number");
      bool floating = type.empty() ? is_floating_literal(literal) : type == "float";
      attribute.value = floating ? AttributeValue(number<float>(value_at, literal))
                                 : AttributeValue(number<int64_t>(value_at, literal));
    } else if (DType dtype = dtype_named(in_.peek_identifier()); dtype != DType::undefined) {
      require("a tensor", {"tensor"});
      attribute.value = tensor(dtype, attribute.name);
    } else if (in_.at_identifier()) {
      require("a graph", {"graph"});
      attribute.graph = std::make_unique<GraphSyntax>(graph());
    } else {
      in_.expected("an attribute's value");
    }
    return attribute;
  }

  template <typename T>
  T number(size_t at, std::string_view literal) {
    std::string_view digits = literal.substr(literal[0] == '+' ? 1 : 0);
    T value{};
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size())
      in_.fail_at(at, fmt::format("'{}' is not a {}", literal, std::is_same_v<T, float> ? "float" : "64-bit integer"));
    return value;
  }

  AttributeValue list(const std::string& type) {
    size_t start = in_.position();
    in_.expect("[");
    std::vector<std::string> strings;
    std::vector<std::pair<size_t, std::string_view>> numbers;
    bool floating = type == "floats";
    items("]", [&] {
      size_t at = in_.position();
      if (in_.at_quoted()) {
        strings.push_back(in_.quoted("a string"));
        return;
      }
      numbers.emplace_back(at, in_.number("a number or a string"));
      floating = floating || (type.empty() && is_floating_literal(numbers.back().second));
    });
    bool wants_strings = type == "strings" || (type.empty() && !strings.empty());
    if (!strings.empty() && (!numbers.empty() || !wants_strings))
      in_.fail_at(start, "a list holds integers, floats or strings, not a mixture");
    if (strings.empty() && numbers.empty() && type.empty())
      in_.fail_at(start, "an empty list needs its type, as in axes: ints = []");
    if (wants_strings) return strings;
    if (floating) {
      std::vector<float> values;
      for (const auto& [at, literal] : numbers) values.push_back(number<float>(at, literal));
      return values;
    }
    std::vector<int64_t> values;
    for (const auto& [at, literal] : numbers) values.push_back(number<int64_t>(at, literal));
    return values;
  }

  Tensor tensor(DType dtype, const std::string& name) {
    size_t at = in_.position();
    in_.identifier("a type");
    std::vector<size_t> unknown;
    TensorType declared = type(dtype, unknown);
    auto dims = declared.shape && unknown.empty() ? constants_of(*declared.shape) : std::nullopt;
    if (!dims) in_.fail_at(at, fmt::format("the tensor '{}' needs extents in numbers", name));
    return parse_elements(in_, dtype, *dims, fmt::format("'{}'", name));
  }

  Scanner& in_;
  int depth_ = 0;
};

}  // namespace

std::string attribute_type_name(int type) {
  for (const AttributeType& row : kAttributeTypes)
    if (row.number == type) return std::string(row.name);
  return "undefined";
}

int attribute_type_named(std::string_view name) {
  for (const AttributeType& row : kAttributeTypes)
    if (row.name == name) return row.number;
  return 0;
}

ModelSyntax parse_syntax(Scanner& scanner) {
  return Parser(scanner).model();
}

}  // namespace tessera::text
