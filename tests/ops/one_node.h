#pragma once

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/ops/op.h"

namespace tessera::ops {

/// Extents that are not known.
inline const Expr b = Expr::symbol("b"), s = Expr::symbol("s"), past = Expr::symbol("past");

/// One node on inputs whose extents are written as text ("batch 6 s+1" without spaces inside an extent), and the
/// results of the operator's definition for it.
class OneNode {
 public:
  explicit OneNode(std::string_view type, std::string_view domain = "") {
    node_.op_type = type;
    node_.domain = domain;
    results(1);
  }

  OneNode& operand(std::string_view extents, DType dtype = DType::float32) {
    node_.inputs.push_back(
        graph_.add_input(std::string(1, static_cast<char>('A' + node_.inputs.size())), {dtype, parsed(extents)}));
    return *this;
  }
  /// A parameter of zeros.
  OneNode& parameter(const Dims& dims, DType dtype = DType::float32) {
    node_.inputs.push_back(
        graph_.add_state(std::string(1, static_cast<char>('A' + node_.inputs.size())), Tensor::zeros(dtype, dims)));
    return *this;
  }
  /// The model's statement about the result before it is computed.
  OneNode& declared(std::string_view extents, DType dtype = DType::float32) {
    node_.outputs[0]->type = {dtype, parsed(extents)};
    return *this;
  }
  OneNode& absent() {
    node_.inputs.push_back(nullptr);
    return *this;
  }
  OneNode& ints(std::vector<int64_t> elements, bool scalar = false) {
    node_.inputs.push_back(graph_.constant_int64(std::move(elements), scalar));
    return *this;
  }
  OneNode& number(DType dtype, double element) {
    node_.inputs.push_back(graph_.constant_scalar(dtype, element));
    return *this;
  }
  OneNode& expressions(std::vector<Expr> elements, bool scalar = false) {
    node_.inputs.push_back(graph_.add_expression("", std::move(elements), scalar));
    return *this;
  }
  OneNode& set(std::string_view attribute, AttributeValue value) {
    node_.set(attribute, std::move(value));
    return *this;
  }
  OneNode& results(size_t count) {
    node_.outputs.clear();
    for (size_t i = 0; i < count; ++i)
      node_.outputs.push_back(graph_.add_value("Y" + std::to_string(i), ValueKind::result));
    return *this;
  }

  /// "float32 [b, s, 3]"
  std::string type(size_t result = 0) {
    infer();
    return text_of(node_.outputs.at(result)->type);
  }
  /// "[2*s, 4]", or "unknown"
  std::string content() {
    infer();
    const auto& content = node_.outputs[0]->content;
    return content ? to_string(*content) : "unknown";
  }
  std::string rule() {
    infer();
    return op_of(node_).rule(node_).str();
  }
  /// The operands that may be partial together: "sum{0} sum{1}"
  std::string partials() {
    infer();
    std::string text;
    for (const PartialSet& set : op_of(node_).rule(node_).partials) {
      if (!text.empty()) text += " ";
      text += fmt::format("{}{{{}}}", name_of(set.reduction), fmt::join(set.operands, ","));
    }
    return text;
  }
  /// The operand that holds indices, and the extents that they stay below: "1: [b, 6]"
  std::string indices() {
    infer();
    const Indices indices = op_of(node_).indices(node_);
    return fmt::format("{}: {}", indices.operand, to_string(indices.extents));
  }
  std::string flops() {
    infer();
    return flops_of(node_).str();
  }
  /// The error of inference.
  std::string error() {
    try {
      infer();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user);
      return error.what();
    }
    return "no error";
  }

  /// The node as one rank of mesh axis x computes it, a factor being split over `ranks` of them: one line per node,
  /// "Div(Y0, [12]) -> float32 [b]"; expressions are given by their elements.
  std::string localized(std::string_view split, int64_t ranks) {
    infer();
    const OpDef& op = op_of(node_);
    Rule rule = op.rule(node_);
    Graph local_graph;
    Localizer local{node_, rule, local_graph, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}};
    for (const Factor& factor : rule.factors) {
      bool chosen = factor.name == split;
      Expr x = Expr::axis_index("x");
      // Uneven: the first ranks have one more.
      Expr extent = chosen ? floordiv(factor.size + (ranks - 1) - x, ranks) : factor.size;
      Expr offset = 0;
      if (chosen) offset = x * ceildiv(factor.size, ranks);
      if (auto even = Expr::exact_divide(factor.size, ranks); chosen && even) extent = *even;
      local.extents.push_back(extent);
      local.offsets.push_back(offset);
      local.split.push_back(chosen);
      local.places.push_back(chosen ? x : Expr(0));
      local.ranks.push_back(chosen ? ranks : 1);
    }
    auto local_type = [&](const TensorType& type, const std::vector<DimFactors>& dims) {
      TensorType result = type;
      for (size_t d = 0; d < dims.size(); ++d) {
        bool any = false;
        Expr extent = 1;
        for (int f : dims[d]) any |= local.split[f], extent = extent * local.extents[f];
        if (any) (*result.shape)[d] = extent;
      }
      return result;
    };
    for (size_t i = 0; i < node_.inputs.size(); ++i) {
      Value* given = node_.inputs[i];
      local.inputs.push_back(given ? local_graph.add_input(given->name, local_type(given->type, rule.operands[i]))
                                   : nullptr);
    }
    for (size_t r = 0; r < node_.outputs.size(); ++r)
      local.outputs.push_back(node_.outputs[r] ? local_type(node_.outputs[r]->type, rule.results[r]) : TensorType{});
    std::vector<Value*> results = op.localize ? op.localize(local) : local.same();
    EXPECT_EQ(results.size(), node_.outputs.size());
    for (size_t r = 0; r < results.size(); ++r)
      EXPECT_EQ(results[r] ? results[r]->type : TensorType{}, local.outputs[r]);
    std::string text;
    for (const auto& node : local_graph.nodes()) {
      std::string operands;
      for (const Value* value : node->inputs) operands += (operands.empty() ? "" : ", ") + text_of(value);
      text += fmt::format("{}({}) -> {}\n", node->op_type, operands, text_of(node->outputs[0]->type));
    }
    last_attributes = local_graph.nodes().back()->attributes;
    return text;
  }
  /// Those of the last node that localized() made.
  std::vector<Attribute> last_attributes;

 private:
  static Shape parsed(std::string_view extents) {
    std::istringstream words{std::string(extents)};
    Shape shape;
    for (std::string word; words >> word;) shape.push_back(Expr::parse(word).value());
    return shape;
  }
  static std::string text_of(const TensorType& type) {
    return fmt::format("{} {}", name_of(type.dtype), to_string(type.shape.value()));
  }
  static std::string text_of(const Value* value) {
    if (!value) return "_";
    return value->content ? to_string(*value->content) : value->name;
  }
  void infer() { op_of(node_).infer(node_); }

  Graph graph_;
  Node node_;
};

}  // namespace tessera::ops
