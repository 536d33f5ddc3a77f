#include <algorithm>
#include <unordered_set>

#include "tessera/base/error.h"
#include "tessera/ir/on_demand.h"
#include "tessera/ir/regions.h"
#include "tessera/ir/text.h"
#include "tessera/ir/text_attribute.h"
#include "tessera/ir/text_header.h"
#include "tessera/ir/text_scanner.h"
#include "tessera/ir/text_syntax.h"
#include "tessera/ir/text_tensor.h"

namespace tessera {
namespace {

using namespace text;

constexpr size_t kLineWidth = 100;

std::string_view type_name(DType dtype) {
  if (dtype == DType::float32) return "float";
  if (dtype == DType::float64) return "double";
  return name_of(dtype);
}

std::string print_extent(const Expr& extent) {
  if (auto number = extent.constant(); number && *number >= 0) return std::to_string(*number);
  auto symbol = extent.as_symbol();
  return symbol && is_plain(*symbol) ? *symbol : quote(extent.str());
}

// "float[batch, 128]"; "float[]" if only the element type is known; "" if nothing is.
std::string print_type(const TensorType& type) {
  if (type.dtype == DType::undefined) return "";
  std::string text(type_name(type.dtype));
  if (!type.shape) return text + "[]";
  if (type.shape->empty()) return text;
  std::string extents;
  for (const Expr& extent : *type.shape) extents += (extents.empty() ? "" : ", ") + print_extent(extent);
  return text + "[" + extents + "]";
}

std::string declare(const TensorType& type, std::string_view name) {
  std::string text = print_type(type);
  return (text.empty() ? "" : text + " ") + quote_name(name);
}

// Quotes symbols that the expression grammar would take apart.
std::string print_element(const Expr& element) {
  std::string text = element.str();
  auto parsed = text.find_first_of("\"#{}\n") == std::string::npos ? Expr::parse(text) : std::nullopt;
  return parsed == element ? text : quote(text);
}

std::string print_content(const Value& value) {
  std::string text;
  for (const Expr& element : *value.content) text += (text.empty() ? "" : ", ") + print_element(element);
  return value.rank() == 0 ? "{= " + text + "}" : "{" + text + "}";
}

class Printer {
 public:
  explicit Printer(const TextOptions& options) : options_(options) {}

  std::string text;

  void model(const OnnxModel& model) {
    header(model);
    graph(*model.graph, "");
    text += "\n";
    for (const Function& function : model.functions) this->function(function);
  }

  // "name (…) => (…) <…> {…}", without a final newline.
  void graph(const Graph& graph, const std::string& indent) {
    text += quote_name(graph.name) + " ";
    signature(graph, indent);
  }

 private:
  struct Item {
    std::string text, comment;
  };

  void header(const OnnxModel& model) {
    std::vector<Item> items = {{fmt::format("ir_version: {}", model.ir_version), ""},
                               {"opset_import: " + opsets(model.opset_imports), ""}};
    HeaderExtras extras = parse_extras(model.extra);
    auto add = [&](std::string_view key, const std::string& value) {
      if (!value.empty()) items.push_back({fmt::format("{}: {}", key, quote(value)), ""});
    };
    add("producer_name", extras.producer_name);
    add("producer_version", extras.producer_version);
    add("domain", extras.domain);
    if (extras.model_version) items.push_back({fmt::format("model_version: {}", extras.model_version), ""});
    add("doc_string", extras.doc_string);
    std::string metadata;
    for (const auto& [key, value] : extras.metadata)
      metadata += fmt::format("{}{}: {}", metadata.empty() ? "" : ", ", quote(key), quote(value));
    if (!metadata.empty()) items.push_back({"metadata_props: [" + metadata + "]", ""});
    list("<", items, ">", "");
    text += "\n";
  }

  static std::string opsets(const std::map<std::string, int64_t>& imports) {
    std::string entries;
    for (const auto& [domain, version] : imports)
      entries += fmt::format("{}{} : {}", entries.empty() ? "" : ", ", quote(domain), version);
    return "[" + entries + "]";
  }

  void function(const Function& function) {
    std::vector<Item> items;
    items.push_back({"domain: " + quote(function.domain), ""});
    if (!function.overload.empty()) items.push_back({"overload: " + quote(function.overload), ""});
    items.push_back({"opset_import: " + opsets(function.opset_imports), ""});
    list("<", items, ">", "");
    text += "\n" + quote_name(function.name) + " ";
    items.clear();
    for (const std::string& attribute : function.attributes) items.push_back({quote_name(attribute), ""});
    for (const Attribute& attribute : function.defaults) items.push_back({this->attribute(attribute, "", true), ""});
    if (!items.empty()) {
      list("<", items, ">", "");
      text += " ";
    }
    signature(*function.body, "");
    text += "\n";
  }

  void signature(const Graph& graph, const std::string& indent) {
    std::vector<Item> items;
    for (const Value* value : graph.inputs) items.push_back({declare(value->type, value->name), comment(*value)});
    list("(", items, ")", indent);
    items.clear();
    text += " => ";
    // An output's comment stands at the node that makes it.
    for (const Value* value : graph.outputs) items.push_back({declare(value->type, value->name), ""});
    list("(", items, ")", indent);
    items.clear();
    text += " ";
    // Bodies of nodes use outer values by name, so every value must have one.
    const bool has_bodies = has_regions(graph);
    declared_expressions_.clear();
    std::unordered_set<const Value*> outputs(graph.outputs.begin(), graph.outputs.end());
    for (const auto& value : graph.values()) {
      if (value->has_data()) {
        items.push_back({initializer(*value), comment(*value)});
      } else if (value->kind == ValueKind::expression) {
        bool inlines = value->dtype() == DType::int64 && !value->uses.empty();
        if (inlines && !has_bodies && !outputs.contains(value.get())) continue;
        declared_expressions_.insert(value.get());
        items.push_back({fmt::format("expression {} = {}", declare(value->type, value->name), print_content(*value)),
                         comment(*value)});
      } else if (options_.types && value->kind == ValueKind::result && value->dtype() != DType::undefined &&
                 !outputs.contains(value.get())) {
        items.push_back({declare(value->type, value->name), ""});
      }
    }
    if (!items.empty()) {
      list("<", items, ">", indent);
      text += " ";
    }
    text += "{\n";
    for (const auto& node : graph.nodes()) this->node(*node, indent + "  ");
    text += indent + "}";
  }

  std::string initializer(const Value& value) {
    std::string entry;
    if (value.kind != implied_kind(value.type)) entry = value.kind == ValueKind::state ? "state " : "constant ";
    entry += declare(value.type, value.name);
    if (shows(value.data)) entry += " = " + print_elements(made_whole(value.data));
    if (value.next) entry += " -> " + quote_name(value.next->name);
    if (const auto& origin = value.origin)
      entry += fmt::format(" from {}[{}] at [{}]", quote_name(origin->name), fmt::join(origin->dims, ", "),
                           fmt::join(origin->begin, ", "));
    return entry;
  }

  bool shows(const Tensor& tensor) const {
    return has_literals(tensor.dtype) && tensor.count() <= options_.elide_above;
  }

  std::string comment(const Value& value) const {
    std::string comment = options_.annotate ? options_.annotate(value) : "";
    std::replace(comment.begin(), comment.end(), '\n', ' ');
    return comment;
  }

  // On one line if that fits and has no comments, else one item per line.
  void list(std::string_view open, const std::vector<Item>& items, std::string_view close, const std::string& indent) {
    size_t width = text.size() - (text.rfind('\n') + 1);
    bool one_line = true;
    for (const Item& item : items) {
      width += item.text.size() + 2;
      one_line = one_line && item.comment.empty();
    }
    one_line = one_line && (width <= kLineWidth || items.size() < 2);
    text += open;
    for (size_t i = 0; i < items.size(); ++i) {
      const Item& item = items[i];
      bool last = i + 1 == items.size();
      if (one_line) {
        text += item.text + (last ? "" : ", ");
      } else {
        text += "\n" + indent + "  " + item.text + (last ? "" : ",");
        if (!item.comment.empty()) text += "  # " + item.comment;
      }
    }
    if (!one_line) text += "\n" + indent;
    text += close;
  }

  void node(const Node& node, const std::string& indent) {
    std::string comments;
    auto remark = [&](const std::string& comment) {
      if (!comment.empty()) comments += (comments.empty() ? "" : "; ") + comment;
    };
    text += indent;
    if (!node.name.empty()) text += "[" + quote_name(node.name) + "] ";
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const Value* output = node.outputs[i];
      text += (i ? ", " : "") + (output ? quote_name(output->name) : "\"\"");
      if (output) remark(comment(*output));
    }
    text += node.outputs.empty() ? "= " : " = ";
    if (!node.domain.empty()) text += print_domain(node.domain) + ".";
    text += is_plain(node.op_type) ? node.op_type : quote(node.op_type);
    if (!node.overload.empty()) text += ":" + (is_plain(node.overload) ? node.overload : quote(node.overload));
    std::vector<Item> items;
    for (const Attribute& attribute : node.attributes) {
      if (std::holds_alternative<OpaqueAttribute>(attribute.value))
        remark(fmt::format("attribute '{}' is not shown", attribute.name));
      else
        items.push_back({this->attribute(attribute, indent, false), ""});
    }
    if (!items.empty()) {
      text += " ";
      list("<", items, ">", indent);
    }
    text += " (";
    for (size_t i = 0; i < node.operand_count(); ++i) text += (i ? ", " : "") + operand(node.inputs[i]);
    text += ")";
    if (!comments.empty()) text += "  # " + comments;
    text += "\n";
  }

  // Dotted identifiers; anything else in quotes.
  static std::string print_domain(const std::string& domain) {
    for (size_t start = 0; start <= domain.size();) {
      size_t end = std::min(domain.find('.', start), domain.size());
      if (!is_plain(std::string_view(domain).substr(start, end - start))) return quote(domain);
      start = end + 1;
    }
    return domain;
  }

  std::string operand(const Value* value) const {
    if (!value) return "\"\"";
    bool inlines = value->kind == ValueKind::expression && !declared_expressions_.contains(value);
    return inlines ? print_content(*value) : quote_name(value->name);
  }

  // `typed`: with its type even if the value shows it, which defaults of functions need.
  std::string attribute(const Attribute& attribute, const std::string& indent, bool typed) {
    struct Typed {
      std::string type, value;
      bool needs_type;
    };
    auto join = [](const auto& elements, auto print) {
      std::string joined;
      for (const auto& element : elements) joined += (joined.empty() ? "" : ", ") + print(element);
      return "[" + joined + "]";
    };
    auto not_finite = [](const std::string& number) { return number.find_first_of("in") != std::string::npos; };
    Typed printed = std::visit(
        [&](const auto& value) -> Typed {
          using T = std::decay_t<decltype(value)>;
          if constexpr (std::is_same_v<T, int64_t>) {
            return {"int", std::to_string(value), false};
          } else if constexpr (std::is_same_v<T, float>) {
            std::string number = print_float(value);
            return {"float", number, not_finite(number)};
          } else if constexpr (std::is_same_v<T, std::string>) {
            return {"string", quote(value), false};
          } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
            return {"ints", join(value, [](int64_t i) { return std::to_string(i); }), value.empty()};
          } else if constexpr (std::is_same_v<T, std::vector<float>>) {
            std::string numbers = join(value, print_float);
            return {"floats", numbers, value.empty() || not_finite(numbers)};
          } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
            return {"strings", join(value, quote), value.empty()};
          } else if constexpr (std::is_same_v<T, Tensor>) {
            TensorType type{value.dtype, Shape(value.dims.begin(), value.dims.end())};
            std::string literal = print_type(type);
            return {"tensor", literal + " " + (shows(value) ? print_elements(value) : "{...}"), false};
          } else if constexpr (std::is_same_v<T, Region>) {
            Printer body(options_);
            body.graph(*value, indent + "  ");
            return {"graph", body.text, !is_plain(value->name)};
          } else if constexpr (std::is_same_v<T, AttributeReference>) {
            return {attribute_type_name(value.type), "@" + quote_name(value.name), true};
          } else {
            return {"undefined", "", true};
          }
        },
        attribute.value);
    std::string name = quote_name(attribute.name);
    return typed || printed.needs_type ? fmt::format("{}: {} = {}", name, printed.type, printed.value)
                                       : fmt::format("{} = {}", name, printed.value);
  }

  const TextOptions& options_;
  std::unordered_set<const Value*> declared_expressions_;  // those that do not stand in place of operands
};

}  // namespace

std::string print_text(const OnnxModel& model, const TextOptions& options) {
  Printer printer(options);
  printer.model(model);
  return std::move(printer.text);
}

std::string print_text(const Graph& graph, const TextOptions& options) {
  Printer printer(options);
  printer.graph(graph, "");
  return std::move(printer.text) + "\n";
}

}  // namespace tessera
