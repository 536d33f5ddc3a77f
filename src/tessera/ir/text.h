#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "tessera/ir/graph.h"

namespace tessera {

/// The ONNX text syntax, as onnx.parser reads it and onnx.printer writes it:
///
///     <ir_version: 10, opset_import: ["" : 20]>
///     mlp (float[batch, 128] x) => (float[batch, 64] y) <
///       float[128, 64] w,
///       float[2] scale = {1.0, 2.0}
///     > {
///       [name] h = com.microsoft.Gelu <approximate = "tanh"> (x)
///       y = MatMul (h, w)  # a comment
///     }
///     <domain: "local", opset_import: ["" : 20]> f <alpha, beta: float = 1.0> (a, b) => (c) { … }
///
/// Names that are not plain identifiers are quoted. The IR has a few constructs that ONNX lacks; they are written as
/// follows, and only if they occur, so that the text of a model that came from a file is plain ONNX text:
///
///     x2 = Reshape (x, {batch, 32*floordiv(-@tp + 7, 2)})   an expression value of rank 1, in the operand's place
///     x3 = Expand (x, {= batch})                             an expression value of rank 0
///     state float[2] w = {1.0, 2.0} -> w_next                a state, and its value after a step
///     state float[2] "w.1" from w[8] at [6]                  a state that holds elements 6 and 7 of the parameter w
///     constant float[2] c = {1.0, 2.0}, expression int64[1] s = {batch}
///
/// The type implies the kind: a state if floating, of rank at least 1 and more than one element, else a constant;
/// `state` and `constant` are written if the kind is the other one. Elements of 16-bit floats are their bits, as in
/// onnx.parser.
///
/// The text leaves out documentation and metadata of graphs, nodes and values, and attributes that the IR keeps as
/// serialized protobuf (a comment names these).
struct TextOptions {
  /// Tensors with more elements are declared by type only, and parse_text fills them with zeros. So are tensors of any
  /// size that hold strings, complex numbers, or types of fewer than 16 bits other than int8, uint8 and bool.
  int64_t elide_above = 8;
  /// Writes results' types too, in the list of initializers.
  bool types = false;
  /// Text for a comment after the line that a value is on (its sharding, say); empty for none.
  std::function<std::string(const Value&)> annotate;
};

std::string print_text(const OnnxModel& model, const TextOptions& options = {});
std::string print_text(const Graph& graph, const TextOptions& options = {});

/// Reads a model: a header, a graph, functions. Without a header the model has IR version 10 and opset 20. A value that
/// is declared without data and that no node produces is an initializer of zeros. Errors name the line, the column, the
/// expected construct and, if it is given, `source`, the text's file.
OnnxModel parse_text(std::string_view text, std::string_view source = {});

}  // namespace tessera
