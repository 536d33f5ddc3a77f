#include <algorithm>
#include <array>
#include <cctype>

#include "tessera/base/counted.h"
#include "tessera/ops/library/dims.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/recurrent_cell.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/lower/lower.h"

// Operators of com.microsoft that ONNX Runtime's dynamic and 4-bit quantizers write.
namespace tessera::rewrite {
namespace {

using ops::fail_node;
using ops::RecurrentCell;
using Values = std::vector<Value*>;

/// Row `at` of an operand, without its first dimension; null if the operand is missing.
Value* row_of(Lowerer& l, size_t operand, int64_t at) {
  if (!l.has(operand)) return nullptr;
  Value* cut = l.b.slice(l.in(operand), 0, at, at + 1);
  return l.b.reshape(cut, Shape(cut->shape().begin() + 1, cut->shape().end()));
}

/// An LSTM whose weights are codes [d, i, 4·h] and [d, h, 4·h]. Its inputs are quantized together, and so are the
/// sequences' hidden states at each step. ONNX Runtime does this on one thread, or with one sequence; otherwise each of
/// its threads quantizes some of the sequences.
class DynamicQuantizeLstm {
 public:
  explicit DynamicQuantizeLstm(Lowerer& l) : l_(l), lstm_(as_lstm(l.node)) {
    for (const char* attribute : {"activation_alpha", "activation_beta"})
      if (l.node.find_attribute(attribute))
        fail_node(l.node, "its {} is not supported; quantize the model without its LSTMs", attribute);
    for (const Operand scale : {kWScale, kRScale})
      if (!l.has(scale)) fail_node(l.node, "its operand {}, a scale of its weights, is missing", +scale);
    const Shape &x = l.in(kX)->shape(), &r = l.in(kR)->shape();
    if (x.size() != 3 || r.size() != 3 || l.in(kW)->rank() != 3)
      fail_node(l.node, "its operands X {}, W {} and R {} must have three dimensions", to_string(x),
                to_string(l.in(kW)->shape()), to_string(r));
    times_ = x[0];
    batch_ = x[1];
    hidden_ = r[1];
    require_shape(kLengths, "sequence_lens", {batch_});
    require_shape(kPeepholes, "P", {static_cast<int64_t>(RecurrentCell::backwards_of(l.node).size()), hidden_ * 3});
  }

  Values run() {
    const Values x = quantize_dynamically(l_.b, reached());
    Values all, hidden, cells;
    const std::vector<bool> backwards = RecurrentCell::backwards_of(l_.node);
    for (size_t d = 0; d < backwards.size(); ++d) {
      const Values results = direction({x[0], x[1], x[2]}, d, backwards[d]);
      all.push_back(l_.b.reshape(results[2], {times_, 1, batch_, hidden_}));
      hidden.push_back(l_.b.reshape(results[0], {1, batch_, hidden_}));
      cells.push_back(l_.b.reshape(results[1], {1, batch_, hidden_}));
    }
    const auto joined = [&](size_t result, const Values& parts, int64_t axis) -> Value* {
      if (!l_.wants(result)) return nullptr;
      return parts.size() == 1 ? parts[0] : l_.b.emit("Concat", parts, {attribute("axis", axis)});
    };
    return {joined(0, all, 1), joined(1, hidden, 0), joined(2, cells, 0)};
  }

 private:
  enum Operand : size_t { kX, kW, kR, kB, kLengths, kHidden, kCell, kPeepholes, kWScale, kWZero, kRScale, kRZero };

  // Values outside the loop that a step reads.
  struct Outer {
    Codes recurrence;
    Value *bias = nullptr, *peepholes = nullptr;
  };

  // ONNX's LSTM with the same attributes. ONNX Runtime ignores case in the names of activations.
  static Node as_lstm(const Node& node) {
    Node lstm;
    lstm.op_type = "LSTM";
    lstm.attributes = node.attributes;
    const auto* named = node.get<std::vector<std::string>>("activations");
    if (!named || named->empty()) return lstm;
    const size_t needed = RecurrentCell::usual_activations(lstm).size() * RecurrentCell::backwards_of(node).size();
    if (named->size() != needed) fail_node(node, "it has {} activations; {} are needed", named->size(), needed);
    std::vector<std::string> known;
    for (const std::string& name : *named) {
      const auto is_name = [&](std::string_view usual) {
        return std::equal(name.begin(), name.end(), usual.begin(), usual.end(),
                          [](char a, char b) { return std::tolower(a) == std::tolower(b); });
      };
      constexpr std::array<std::string_view, 3> kKnown = {"Sigmoid", "Tanh", "Relu"};
      const auto usual = std::find_if(kKnown.begin(), kKnown.end(), is_name);
      if (usual == kKnown.end()) fail_node(node, "the activation {} is not supported; use Sigmoid, Tanh or Relu", name);
      known.emplace_back(*usual);
    }
    lstm.set("activations", known);
    return lstm;
  }

  void require_shape(Operand operand, const char* name, const Shape& wanted) const {
    if (l_.has(operand) && l_.in(operand)->shape() != wanted)
      fail_node(l_.node, "its operand {} is {}; it must be {}", name, to_string(l_.in(operand)->shape()),
                to_string(wanted));
  }

  // Whether a time comes before these lengths: [t, 1, 1], or [t, n, 1] for lengths [1, n, 1] of sequences.
  Value* is_before(Value* lengths) {
    return l_.b.emit("Greater", {lengths, l_.b.reshape(l_.b.range(times_), {times_, 1, 1})});
  }
  Value* lengths() { return l_.b.reshape(l_.b.cast(l_.in(kLengths), DType::int64), {1, batch_, 1}); }

  // The inputs, with zeros at times that no sequence reaches, so that these do not widen the range.
  Value* reached() {
    if (!l_.has(kLengths)) return l_.in(kX);
    Value* longest = l_.b.emit("ReduceMax", {lengths()}, {attribute("keepdims", int64_t{0})});
    return l_.b.where(is_before(longest), l_.in(kX), 0.0);
  }

  // Reverses each sequence of x [t, n, …].
  Value* turned(Value* x) {
    return l_.b.transpose(turned_rows(l_.b, l_.b.transpose(x, {1, 0, 2}), lengths()), {1, 0, 2});
  }

  // The last hidden state, the last cell, and the hidden states of all steps.
  Values direction(const Codes& x, size_t d, bool backwards) {
    const auto at = static_cast<int64_t>(d);
    Values biases(2, nullptr);
    if (Value* both = row_of(l_, kB, at)) biases = RecurrentCell::parts(l_.b, both, 0, 2);
    const Codes weights{row_of(l_, kW, at), row_of(l_, kWScale, at), row_of(l_, kWZero, at)};
    const Codes recurrence{row_of(l_, kR, at), row_of(l_, kRScale, at), row_of(l_, kRZero, at)};
    Value* peepholes = row_of(l_, kPeepholes, at);
    const auto initial = [&](Operand operand) {
      return l_.has(operand) ? row_of(l_, operand, at) : l_.b.zeros(DType::float32, {batch_, hidden_});
    };
    Value* projected = scaled_product(l_.b, l_.node, x, weights, biases[0]);
    const bool turns = backwards && l_.has(kLengths);  // each sequence by its own length
    Values operands = {initial(kHidden), initial(kCell), turns ? turned(projected) : projected};
    if (l_.has(kLengths)) {
      operands.push_back(is_before(lengths()));
      operands.push_back(is_before(l_.b.add(lengths(), 1)));
    }
    Node* scan = l_.b.graph.add_node("Scan", operands, {"", "", ""}, "", &l_.node);
    scan->name = l_.node.name + (d == 0 ? "" : "/backwards");
    auto body = std::make_unique<Graph>();
    body->name = "step";
    Values items;
    for (const char* name : {"hidden", "cell", "projected"}) {
      const Expr width = items.size() < 2 ? hidden_ : hidden_ * 4;
      items.push_back(body->add_input(name, {DType::float32, Shape{batch_, width}}));
    }
    for (const char* name : {"runs", "ran"})
      if (operands.size() > items.size()) items.push_back(body->add_input(name, {DType::boolean, Shape{batch_, 1}}));
    const auto captured = [&](Value* value) -> Value* {
      if (!value) return nullptr;
      Value* inner = body->add_value(value->name, ValueKind::input, value->type);
      scan->captures.push_back(inner->name);
      l_.b.graph.set_input(scan, scan->inputs.size(), value);
      return inner;
    };
    Outer outer{{captured(recurrence.codes), captured(recurrence.scale), captured(recurrence.zero)}};
    outer.bias = captured(biases[1]);
    outer.peepholes = captured(peepholes);
    body->outputs = step(*body, items, outer, d);
    scan->set("num_scan_inputs", static_cast<int64_t>(items.size()) - 2);
    const int64_t direction = backwards && !turns ? 1 : 0;
    scan->set("scan_input_directions", std::vector<int64_t>(items.size() - 2, direction));
    scan->set("scan_output_directions", std::vector<int64_t>{direction});
    scan->set("body", Region(std::move(body)));
    const TensorType state{DType::float32, Shape{batch_, hidden_}};
    scan->outputs[0]->type = scan->outputs[1]->type = state;
    scan->outputs[2]->type = {DType::float32, Shape{times_, batch_, hidden_}};
    std::vector<Node*> results;
    for (Value* result : scan->outputs) results.push_back(l_.b.emit("Identity", {result})->producer);
    l_.open(scan);
    Value* all = results[2]->outputs[0];
    return {results[0]->outputs[0], results[1]->outputs[0], turns ? turned(all) : all};
  }

  // The state after a step, and the step's outputs.
  Values step(Graph& body, const Values& items, const Outer& outer, size_t d) {
    ops::NodeBuilder b(body, "step");
    const RecurrentCell::State before{items[0], items[1]};
    // The output of an ended sequence is zero.
    Value* given = items.size() > 4 ? b.where(items[4], before.hidden, 0.0) : before.hidden;
    const Values codes = quantize_dynamically(b, given);
    Value* recurred = scaled_product(b, l_.node, {codes[0], codes[1], codes[2]}, outer.recurrence, outer.bias);
    const Values sums = RecurrentCell::parts(b, b.add(items[2], recurred), 1, RecurrentCell::gates_of(lstm_));
    const Values peepholes = outer.peepholes ? RecurrentCell::parts(b, outer.peepholes, 0, 3) : Values();
    const RecurrentCell::State after = RecurrentCell::lstm_state(b, lstm_, d, sums, peepholes, before);
    const RecurrentCell::Step kept = RecurrentCell::kept(b, after, before, items.size() > 3 ? items[3] : nullptr);
    return {kept.state.hidden, kept.state.cell, b.emit("Identity", {kept.result})};
  }

  Lowerer& l_;
  Node lstm_;
  Expr times_, batch_, hidden_;
};

Values dynamic_quantize_lstm(Lowerer& l) {
  return DynamicQuantizeLstm(l).run();
}

/// The first `count` codes of `bits` bits that bytes hold along the last dimension. A byte's first code is in its low
/// bits, or in its high bits.
Value* unpacked(ops::NodeBuilder& b, Value* bytes, int64_t bits, const Expr& count, bool high_first = false) {
  Shape shape = bytes->shape();
  Values codes;
  Shape column = shape;
  column.push_back(1);
  for (int64_t shift = 0; shift < 8; shift += bits) {
    Value* low = shift == 0 ? bytes
                            : b.emit("BitShift", {bytes, b.number(bytes, static_cast<double>(shift))},
                                     {attribute("direction", std::string("RIGHT"))});
    const auto mask = static_cast<double>((int64_t{1} << bits) - 1);
    codes.push_back(b.reshape(b.emit("BitwiseAnd", {low, b.number(bytes, mask)}), column));
  }
  if (high_first) std::reverse(codes.begin(), codes.end());
  shape.back() = shape.back() * static_cast<int64_t>(codes.size());
  Value* all = b.reshape(b.emit("Concat", codes, {attribute("axis", int64_t{-1})}), shape);
  return shape.back() == count ? all : b.slice(all, static_cast<int64_t>(shape.size()) - 1, 0, count);
}

Expr table_extent(const Shape& table, int64_t dim, int64_t codes_per_byte) {
  const bool is_last = dim + 1 == static_cast<int64_t>(table.size());
  return is_last ? table[dim] * codes_per_byte : table[dim];
}

// Gathers rows from a table of codes whose blocks have scales, so that only these rows become floats.
Values gather_block_quantized(Lowerer& l) {
  enum Operand : size_t { kTable, kIndices, kScales, kZeroPoints };
  const Shape table = l.in(kTable)->shape(), scales = l.in(kScales)->shape();
  const auto rank = static_cast<int64_t>(table.size());
  const int64_t rows = axis_of(l.node, "gather_axis", 0, table.size()),
                along = axis_of(l.node, "quantize_axis", 1, table.size());
  const bool bytes = l.in(kTable)->dtype() == DType::uint8;
  const int64_t bits = bytes ? l.node.get_int("bits", 4) : 8, block = l.node.get_int("block_size", 128);
  if (rows == along) fail_node(l.node, "its gather_axis and its quantize_axis are {}; they must differ", rows);
  if (block < 1) fail_node(l.node, "its block_size {} is not supported; it must be at least 1", block);
  if (bits != 2 && bits != 4 && bits != 8) fail_node(l.node, "its codes have {} bits; they must have 2, 4 or 8", bits);
  if (static_cast<int64_t>(scales.size()) != rank || scales[rows] != table[rows])
    fail_node(l.node, "its scales {} must have a scale for each block of each row of its table {}", to_string(scales),
              to_string(table));
  if (!ops::same_extent(scales[along], ceildiv(table_extent(table, along, bytes ? 8 / bits : 1), block)))
    fail_node(l.node, "its scales {} do not fit its table {} in blocks of {} along dimension {}", to_string(scales),
              to_string(table), block, along);
  // If codes of several rows share bytes, they are widened to bytes first.
  const bool is_signed = l.in(kTable)->dtype() == DType::int4 || l.in(kTable)->dtype() == DType::int2;
  const auto in_bytes = [&](Value* value) { return l.b.cast(value, is_signed ? DType::int8 : DType::uint8); };
  const auto looked_up = [&](Value* from) {
    return l.b.emit("Gather", {from, l.in(kIndices)}, {attribute("axis", rows)});
  };
  const bool widens =
      !bytes && !is_float(l.in(kTable)->dtype()) &&
      (!ops::fills_bytes(*l.in(kTable), rows) || (l.has(kZeroPoints) && !ops::fills_bytes(*l.in(kZeroPoints), rows)));
  Value* codes = !widens                                 ? looked_up(l.in(kTable))
                 : ops::fills_bytes(*l.in(kTable), rows) ? in_bytes(looked_up(l.in(kTable)))
                                                         : looked_up(in_bytes(l.in(kTable)));
  Value* scale = looked_up(l.in(kScales));
  Value* zero_point =
      l.has(kZeroPoints) ? looked_up(widens ? in_bytes(l.in(kZeroPoints)) : l.in(kZeroPoints)) : nullptr;
  if (bits < 8) {
    codes = unpacked(l.b, codes, bits, codes->shape().back() * (8 / bits));
    if (zero_point) zero_point = unpacked(l.b, zero_point, bits, scale->shape().back());
  }
  if (bytes && !zero_point)
    zero_point = l.b.expand(l.b.number(codes, static_cast<double>(int64_t{1} << (bits - 1))), scale->shape());
  const auto index_rank = static_cast<int64_t>(l.in(kIndices)->rank());
  const int64_t axis = along < rows ? along : along + index_rank - 1;
  return {l.b.emit("DequantizeLinear", {codes, scale, zero_point},
                   {attribute("axis", axis), attribute("block_size", block)})};
}

/// The numbers that 4 bits stand for: a floating-point format of bitsandbytes, and quantiles of a normal distribution
// (T. Dettmers et al., "QLoRA: Efficient Finetuning of Quantized LLMs", 2023).
constexpr std::array<float, 16> kFloat4 = {
    0, 0.005208333333F,  0.66666667F,  1,  0.33333333F,  0.5F,  0.16666667F,  0.25F,
    0, -0.005208333333F, -0.66666667F, -1, -0.33333333F, -0.5F, -0.16666667F, -0.25F};
constexpr std::array<float, 16> kNormalFloat4 = {
    -1,           -0.696192801F, -0.525073051F, -0.394917488F, -0.284441382F, -0.184773430F, -0.091050036F, 0,
    0.079580300F, 0.160930201F,  0.246112302F,  0.337915242F,  0.440709829F,  0.562617004F,  0.722956836F,  1};

// A product with a matrix [n, k] of codes of 4 bits; every `block_size` codes have a factor.
Values matmul_bnb4(Lowerer& l) {
  enum Operand : size_t { kLeft, kBytes, kFactors };
  const int64_t n = l.node.get_int("N", 0), k = l.node.get_int("K", 0), block = l.node.get_int("block_size", 0);
  const int64_t type = l.node.get_int("quant_type", 1);
  if (n < 1 || k < 1 || block < 1)
    fail_node(l.node, "its N, K and block_size are {}, {} and {}; they must be at least 1", n, k, block);
  if (type != 0 && type != 1) fail_node(l.node, "its quant_type is {}; it must be 0 (FP4) or 1 (NF4)", type);
  if (l.node.get_int("transB", 1) != 1) fail_node(l.node, "its transB is 0, which is not supported; it must be 1");
  const int64_t count = n * k, blocks = (count + block - 1) / block;
  const auto require_count = [&](Operand operand, const char* name, int64_t wanted) {
    const auto elements = product(l.in(operand)->shape()).constant();
    if (elements != wanted)
      fail_node(l.node, "its {} is {}; for N = {} and K = {} it must have {}", name, to_string(l.in(operand)->shape()),
                n, k, counted(wanted, "element"));
  };
  require_count(kBytes, "B", (count + 1) / 2);
  require_count(kFactors, "absmax", blocks);
  Value* bytes = l.b.reshape(l.in(kBytes), {(count + 1) / 2});
  Value* codes = l.b.cast(unpacked(l.b, bytes, 4, count, true), DType::int32);
  const std::array<float, 16>& known = type == 0 ? kFloat4 : kNormalFloat4;
  Value* table =
      l.b.graph.add_constant("numbers", Tensor::of<float>(DType::float32, {16}, {known.begin(), known.end()}));
  Value* matrix = l.b.emit("Gather", {table, codes});
  Value* factors = l.b.reshape(l.b.cast(l.in(kFactors), DType::float32), {blocks, 1});
  Value* each = l.b.reshape(l.b.expand(factors, {blocks, block}), {blocks * block});
  matrix = l.b.mul(matrix, l.b.slice(each, 0, 0, count));
  matrix = l.b.reshape(matrix, {n, k});
  return {l.b.emit("MatMul", {l.in(kLeft), l.b.turn(l.b.cast(matrix, l.in(kLeft)->dtype()))})};
}

}  // namespace

std::vector<Lowering> quantizer_lowerings() {
  std::vector<Lowering> rows = {
      {"DynamicQuantizeLSTM", 3, dynamic_quantize_lstm},
      {"GatherBlockQuantized", 3, gather_block_quantized},
      {"MatMulBnb4", 3, matmul_bnb4},
  };
  for (Lowering& row : rows) row.domain = "com.microsoft";
  return rows;
}

}  // namespace tessera::rewrite
