#include "tessera/ir/text_value.h"

#include <utility>

#include "tessera/ir/text_tensor.h"

namespace tessera::text {
namespace {

Dims numbers(Scanner& in, std::string_view what) {
  Dims all;
  in.expect("[");
  in.items("]", [&] { all.push_back(in.integer(what)); });
  return all;
}

// from name[extents] at [begin]
StateOrigin parse_origin(Scanner& in, const ValueSyntax& value) {
  in.identifier("'from'");
  StateOrigin origin;
  origin.name = in.name("the name of the parameter that the state is a piece of");
  const size_t at = in.position();
  origin.dims = numbers(in, "an extent");
  if (in.peek_identifier() != "at") in.expected("'at'");
  in.identifier("'at'");
  origin.begin = numbers(in, "the first index of the piece");
  const auto dims = value.type.shape ? constants_of(*value.type.shape) : std::nullopt;
  bool fits = dims && dims->size() == origin.dims.size() && dims->size() == origin.begin.size();
  for (size_t d = 0; fits && d < dims->size(); ++d)
    fits = origin.begin[d] >= 0 && origin.dims[d] >= (*dims)[d] && origin.begin[d] <= origin.dims[d] - (*dims)[d];
  if (!fits) in.fail_at(at, fmt::format("'{}' is not a piece of '{}' of these extents", value.name, origin.name));
  return origin;
}

void parse_data(Scanner& in, ValueSyntax& value) {
  if (value.kind == ValueKind::expression) {
    bool scalar = false;
    value.content = parse_content(in, scalar);
    return;
  }
  size_t at = in.position();
  if (in.take("...")) return;
  if (in.peek() == '[')
    in.fail_at(at, fmt::format("'{}' refers to external data; write its elements, or only its type", value.name));
  auto dims = value.type.shape ? constants_of(*value.type.shape) : std::nullopt;
  if (!dims) in.fail_at(value.at, fmt::format("'{}' has data, but its type lacks extents in numbers", value.name));
  value.data = parse_elements(in, value.type.dtype, *dims, fmt::format("'{}'", value.name));
}

}  // namespace

TensorType parse_type(Scanner& in, DType dtype, std::vector<size_t>& unknown) {
  TensorType type{dtype, Shape()};
  if (!in.take("[")) return type;
  if (in.take("]")) return {dtype, std::nullopt};
  in.items("]", [&] {
    if (in.take("?")) {
      unknown.push_back(type.shape->size());
      type.shape->push_back(Expr(0));
    } else if (in.at_name()) {
      std::string text = in.name("an extent");
      auto parsed = Expr::parse(text);
      type.shape->push_back(parsed ? *parsed : Expr::symbol(text));
    } else {
      const size_t at = in.position();
      const int64_t extent = in.integer("an extent, a symbol, an expression in quotes or '?'");
      if (extent < 0) in.fail_at(at, fmt::format("negative extent {}", extent));
      type.shape->push_back(extent);
    }
  });
  return type;
}

std::vector<Expr> parse_content(Scanner& in, bool& scalar) {
  std::vector<Expr> elements;
  in.expect("{");
  scalar = in.take("=");
  size_t start = in.position();
  in.items("}", [&] {
    size_t at = in.position();
    bool quoted = in.at_quoted();
    std::string text = quoted ? in.quoted("an expression") : std::string(in.until(",}"));
    auto parsed = Expr::parse(text);
    if (!parsed && !quoted) in.fail_at(at, fmt::format("expected an expression, found '{}'", text));
    elements.push_back(parsed ? *parsed : Expr::symbol(text));
  });
  if (scalar && elements.size() != 1) in.fail_at(start, "a scalar expression {= …} has one element");
  return elements;
}

ValueSyntax parse_value(Scanner& in, bool with_data) {
  ValueSyntax value;
  value.at = in.position();
  std::string word;
  bool named = in.at_quoted();
  if (!named) word = in.identifier("a type or a name");
  static constexpr std::pair<std::string_view, ValueKind> kKinds[] = {
      {"state", ValueKind::state}, {"constant", ValueKind::constant}, {"expression", ValueKind::expression}};
  for (const auto& [keyword, kind] : kKinds)
    if (with_data && word == keyword && in.at_identifier()) {
      value.kind = kind;
      word = in.identifier("a type");
      break;
    }
  DType dtype = dtype_named(word);
  std::vector<size_t> unknown;
  if (dtype != DType::undefined) {
    value.type = parse_type(in, dtype, unknown);
    value.name = in.name("a name after the type");
  } else if (named) {
    value.name = in.quoted("a name");
  } else {
    value.name = word;
    if (in.at_name() || in.peek() == '[' || in.peek() == '(')
      in.fail_at(value.at, fmt::format("'{}' is not a tensor's element type; other types have no text form", word));
  }
  for (size_t d : unknown) (*value.type.shape)[d] = Expr::symbol(fmt::format("{}_dim_{}", value.name, d));
  if (with_data && in.take("=")) parse_data(in, value);
  if (with_data && in.take("->")) value.next = in.name("the name of the state's next value");
  if (with_data && in.peek_identifier() == "from") value.origin = parse_origin(in, value);
  return value;
}

}  // namespace tessera::text
