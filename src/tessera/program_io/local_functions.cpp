#include "tessera/base/error.h"
#include "tessera/program_io/lowering.h"
#include "tessera/rewrite/pipeline.h"
#include "tessera/spmd/program.h"

namespace tessera::program_io {
namespace {

constexpr int kIntegerType = 2;  // ONNX's AttributeType

AttributeReference integer(std::string_view name) {
  return {std::string(name), kIntegerType};
}

class LocalBody {
 public:
  explicit LocalBody(Graph& graph) : graph_(graph) {}
  Value* operand(std::string_view name) { return graph_.add_input(name, {}); }
  Value* number(int64_t value) { return graph_.constant_int64({value}); }
  /// The neutral element of sums: x + -0 is x for x = -0, too, but x + 0 is 0.
  Value* nothing() { return graph_.add_constant("nothing", Tensor::of<float>(DType::float32, {}, {-0.0F})); }
  Value* scalar(int64_t value) { return graph_.constant_int64({value}, true); }
  Value* op(std::string_view type, std::vector<Value*> operands, std::vector<Attribute> attributes = {}) {
    Node* node = graph_.add_node(type, std::move(operands), {""});
    node->attributes = std::move(attributes);
    return node->outputs[0];
  }

 private:
  Graph& graph_;
};

// Gathers rows of a shard that begins at row `offset` of a table of `rows` rows; indices of other shards' rows give
// zeros. If rows 4 to 6 of a table [10, 3] are here, indices 5 0 -4 give row 1, zeros, row 2.
Value* gather_shard(LocalBody& body) {
  Value *table = body.operand("table"), *indices = body.operand("indices"), *offset = body.operand("offset"),
        *rows = body.operand("rows");
  Value* wide = body.op("Cast", {indices}, {{"to", static_cast<int64_t>(DType::int64), ""}});
  Value* negative = body.op("Less", {wide, body.scalar(0)});
  Value* global = body.op("Where", {negative, body.op("Add", {wide, rows}), wide});
  Value* local = body.op("Sub", {global, offset});
  Value* from_axis = body.op("Shape", {table}, {{"start", integer("axis"), ""}});
  Value* extent = body.op("Gather", {from_axis, body.scalar(0)});
  Value* inside = body.op("And", {body.op("Less", {body.op("Sub", {body.scalar(-1), local}), body.scalar(0)}),
                                  body.op("Less", {local, extent})});
  Value* gathered =
      body.op("Gather", {table, body.op("Where", {inside, local, body.scalar(0)})}, {{"axis", integer("axis"), ""}});
  // The mask, with a dimension of 1 for each of the table's dimensions after its rows.
  Value* after = body.op("Sub", {body.op("Shape", {from_axis}), body.number(1)});
  Value* ones = body.op("ConstantOfShape", {after}, {{"value", Tensor::of<int64_t>(DType::int64, {1}, {1}), ""}});
  Value* shape = body.op("Concat", {body.op("Shape", {indices}), ones}, {{"axis", int64_t{0}, ""}});
  Value* mask = body.op("Reshape", {inside, shape}, {{"allowzero", int64_t{1}, ""}});
  return body.op("Where", {mask, gathered, body.op("CastLike", {body.nothing(), table})});
}

// A product of 16-bit operands whose sums stay float32.
Value* wide_matmul(LocalBody& body) {
  const Attribute to_float32{"to", static_cast<int64_t>(DType::float32), ""};
  Value *a = body.operand("A"), *b = body.operand("B");
  return body.op("MatMul", {body.op("Cast", {a}, {to_float32}), body.op("Cast", {b}, {to_float32})});
}

struct LocalOperator {
  std::string_view op;
  std::vector<std::string> attributes;
  Value* (*write)(LocalBody&);
};

}  // namespace

Function local_function(const Node& node) {
  static const std::vector<LocalOperator> table = {{"GatherShard", {"axis"}, gather_shard},
                                                   {"MatMul", {"accumulate"}, wide_matmul}};
  for (const LocalOperator& known : table) {
    if (known.op != node.op_type) continue;
    Function function;
    function.domain = spmd::kLocalDomain;
    function.name = node.op_type;
    function.attributes = known.attributes;
    function.opset_imports = {{"", rewrite::kCanonicalOpset}};
    function.body = std::make_unique<Graph>();
    LocalBody body(*function.body);
    function.body->outputs.push_back(known.write(body));
    return function;
  }
  fail("write",
       "{}: this form of {} has no function in ONNX's own operators; write the program with "
       "--lower=collectives, or lay the operator out so that it is whole",
       node.label(), node.op_type);
}

}  // namespace tessera::program_io
