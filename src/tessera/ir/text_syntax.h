#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/ir/text_scanner.h"

// The parsed text, before names are resolved. `at` is an offset in bytes in the text, for messages.
namespace tessera::text {

struct GraphSyntax;

/// An entry of a signature or of the list of initializers.
struct ValueSyntax {
  size_t at = 0;
  std::string name;
  TensorType type;                           ///< an extent written '?' is a symbol "NAME_dim_I"
  std::optional<ValueKind> kind;             ///< if a keyword gives it
  std::optional<Tensor> data;                ///< after '='
  std::optional<std::vector<Expr>> content;  ///< after '=', of an expression
  std::optional<std::string> next;           ///< after '->'
  std::optional<StateOrigin> origin;         ///< after 'from'
};

/// A name, an expression, or (with neither) an omitted operand.
struct OperandSyntax {
  size_t at = 0;
  std::string name;
  std::optional<std::vector<Expr>> content;
  bool scalar = false;  ///< the expression has rank 0
};

struct AttributeSyntax {
  size_t at = 0;
  std::string name;
  AttributeValue value;
  std::unique_ptr<GraphSyntax> graph;  ///< set instead of `value`
};

struct NodeSyntax {
  size_t at = 0;
  std::string name, domain, op_type, overload;
  std::vector<OperandSyntax> outputs;  ///< names only
  std::vector<OperandSyntax> inputs;
  std::vector<AttributeSyntax> attributes;
};

struct GraphSyntax {
  std::string name;
  std::vector<ValueSyntax> inputs, outputs, values;
  std::vector<NodeSyntax> nodes;
};

struct FunctionSyntax {
  std::string domain, name, overload;
  std::map<std::string, int64_t> opset_imports;
  std::vector<std::string> attributes;
  std::vector<Attribute> defaults;
  GraphSyntax body;
};

struct ModelSyntax {
  int64_t ir_version = 10;
  std::map<std::string, int64_t> opset_imports;
  std::string extra;  ///< the header's other fields, as OnnxModel::extra
  GraphSyntax graph;
  std::vector<FunctionSyntax> functions;
};

ModelSyntax parse_syntax(Scanner& scanner);

/// Resolves names; errors name their place in the scanner's text.
OnnxModel build_model(const Scanner& scanner, ModelSyntax syntax);

/// The kind of an initializer of that type if no keyword gives it; the importer uses the same rule.
ValueKind implied_kind(const TensorType& type);

}  // namespace tessera::text
