#include "tessera/base/error.h"
#include "tessera/program_io/lowering.h"
#include "tessera/rewrite/pipeline.h"
#include "tessera/spmd/program.h"

namespace tessera::program_io {
namespace {

constexpr int kIntegerType = 2, kStringType = 3;  // ONNX's AttributeType

AttributeReference integer(std::string_view name) {
  return {std::string(name), kIntegerType};
}
AttributeReference text(std::string_view name) {
  return {std::string(name), kStringType};
}

class LocalBody {
 public:
  explicit LocalBody(Graph& graph) : graph_(graph) {}
  Value* operand(std::string_view name) { return graph_.add_input(name, {}); }
  Value* number(int64_t value) { return numbers({value}); }
  Value* numbers(std::vector<int64_t> values) { return graph_.constant_int64(std::move(values)); }
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

// Indices along a dimension relative to a shard that begins at `offset` of `rows`, and a mask of those in the shard.
struct InShard {
  Value *local, *inside;
};
InShard in_shard(LocalBody& body, Value* indices, Value* offset, Value* rows, Value* extent) {
  Value* wide = body.op("Cast", {indices}, {{"to", static_cast<int64_t>(DType::int64), ""}});
  Value* negative = body.op("Less", {wide, body.scalar(0)});
  Value* global = body.op("Where", {negative, body.op("Add", {wide, rows}), wide});
  Value* local = body.op("Sub", {global, offset});
  Value* inside = body.op("And", {body.op("Less", {body.op("Sub", {body.scalar(-1), local}), body.scalar(0)}),
                                  body.op("Less", {local, extent})});
  return {local, inside};
}

// A tensor's dimension that an attribute names: its number [1], and its extent.
struct AlongAxis {
  Value *axis, *extent;

  AlongAxis(LocalBody& body, Value* tensor, std::string_view attribute = "axis") {
    Value* from_axis = body.op("Shape", {tensor}, {{"start", integer(attribute), ""}});
    axis = body.op("Sub", {body.op("Shape", {body.op("Shape", {tensor})}), body.op("Shape", {from_axis})});
    extent = body.op("Gather", {from_axis, body.scalar(0)});
  }
};

// Gathers rows of a shard that begins at row `offset` of a table of `rows` rows; indices of other shards' rows give
// zeros. If rows 4 to 6 of a table [10, 3] are here, indices 5 0 -4 give row 1, zeros, row 2.
Value* gather_shard(LocalBody& body) {
  Value *table = body.operand("table"), *indices = body.operand("indices"), *offset = body.operand("offset"),
        *rows = body.operand("rows");
  Value* from_axis = body.op("Shape", {table}, {{"start", integer("axis"), ""}});
  Value* extent = body.op("Gather", {from_axis, body.scalar(0)});
  const auto [local, inside] = in_shard(body, indices, offset, rows, extent);
  Value* gathered =
      body.op("Gather", {table, body.op("Where", {inside, local, body.scalar(0)})}, {{"axis", integer("axis"), ""}});
  // The mask, with a dimension of 1 for each of the table's dimensions after its rows.
  Value* after = body.op("Sub", {body.op("Shape", {from_axis}), body.number(1)});
  Value* ones = body.op("ConstantOfShape", {after}, {{"value", Tensor::of<int64_t>(DType::int64, {1}, {1}), ""}});
  Value* shape = body.op("Concat", {body.op("Shape", {indices}), ones}, {{"axis", int64_t{0}, ""}});
  Value* mask = body.op("Reshape", {inside, shape}, {{"allowzero", int64_t{1}, ""}});
  return body.op("Where", {mask, gathered, body.op("CastLike", {body.nothing(), table})});
}

// The same for GatherElements. Indices of other shards read a line of zeros that is appended to the shard.
Value* gather_elements_shard(LocalBody& body) {
  Value *table = body.operand("table"), *indices = body.operand("indices"), *offset = body.operand("offset"),
        *rows = body.operand("rows");
  const AlongAxis along(body, table);
  const auto [local, inside] = in_shard(body, indices, offset, rows, along.extent);
  Value* nothing = body.op("CastLike", {body.nothing(), table});
  Value* longer = body.op("Pad", {table, body.numbers({0, 1}), nothing, along.axis});
  return body.op("GatherElements", {longer, body.op("Where", {inside, local, along.extent})},
                 {{"axis", integer("axis"), ""}});
}

// Updates for other shards go to a line that is appended to the shard and cut off again.
Value* scatter_elements_shard(LocalBody& body) {
  Value *data = body.operand("data"), *indices = body.operand("indices"), *updates = body.operand("updates"),
        *offset = body.operand("offset"), *rows = body.operand("rows");
  const AlongAxis along(body, data);
  const auto [local, inside] = in_shard(body, indices, offset, rows, along.extent);
  Value* longer = body.op("Pad", {data, body.numbers({0, 1}), nullptr, along.axis});
  Value* written = body.op("ScatterElements", {longer, body.op("Where", {inside, local, along.extent}), updates},
                           {{"axis", integer("axis"), ""}, {"reduction", text("reduction"), ""}});
  return body.op("Slice", {written, body.number(0), body.op("Reshape", {along.extent, body.number(1)}), along.axis});
}

// Points relative to a shard whose indexed dimensions, from number `first` [1] on, begin at `offsets` of `whole`. A
// point in another shard becomes the corner after the shard, which Pad adds.
struct PointsInShard {
  Value *places, *dims, *extents, *zeros, *pads;

  PointsInShard(LocalBody& body, Value* data, Value* first, Value* indices, Value* offsets, Value* whole) {
    Value* components = body.op("Shape", {whole});
    Value* count = body.op("Reshape", {components, body.numbers({})});
    dims = body.op("Range", {body.scalar(0), count, body.scalar(1)});
    if (first) dims = body.op("Add", {dims, first});
    extents = body.op("Gather", {body.op("Shape", {data}), dims});
    const auto [local, inside] = in_shard(body, indices, offsets, whole, extents);
    const Attribute to_int32{"to", static_cast<int64_t>(DType::int32), ""},
        to_bool{"to", static_cast<int64_t>(DType::boolean), ""};
    Value* all =
        body.op("ReduceMin", {body.op("Cast", {inside}, {to_int32}), body.number(-1)}, {{"keepdims", int64_t{1}, ""}});
    places = body.op("Where", {body.op("Cast", {all}, {to_bool}), local, extents});
    const auto all_of = [&](int64_t number) {
      return body.op("ConstantOfShape", {components},
                     {{"value", Tensor::of<int64_t>(DType::int64, {1}, {number}), ""}});
    };
    zeros = all_of(0);
    pads = body.op("Concat", {zeros, all_of(1)}, {{"axis", int64_t{0}, ""}});
  }
};

Value* gather_nd_shard(LocalBody& body) {
  Value *table = body.operand("table"), *indices = body.operand("indices"), *offsets = body.operand("offsets"),
        *whole = body.operand("extents");
  const AlongAxis first(body, table, "batch_dims");
  const PointsInShard points(body, table, first.axis, indices, offsets, whole);
  Value* longer = body.op("Pad", {table, points.pads, body.op("CastLike", {body.nothing(), table}), points.dims});
  return body.op("GatherND", {longer, points.places}, {{"batch_dims", integer("batch_dims"), ""}});
}

Value* scatter_nd_shard(LocalBody& body) {
  Value *data = body.operand("data"), *indices = body.operand("indices"), *updates = body.operand("updates"),
        *offsets = body.operand("offsets"), *whole = body.operand("extents");
  const PointsInShard points(body, data, nullptr, indices, offsets, whole);
  Value* longer = body.op("Pad", {data, points.pads, nullptr, points.dims});
  Value* written = body.op("ScatterND", {longer, points.places, updates}, {{"reduction", text("reduction"), ""}});
  return body.op("Slice", {written, points.zeros, points.extents, points.dims});
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
  static const std::vector<LocalOperator> table = {
      {"GatherShard", {"axis"}, gather_shard},
      {"GatherElementsShard", {"axis"}, gather_elements_shard},
      {"GatherNDShard", {"batch_dims"}, gather_nd_shard},
      {"ScatterElementsShard", {"axis", "reduction"}, scatter_elements_shard},
      {"ScatterNDShard", {"reduction"}, scatter_nd_shard},
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
       "{}: this form of {} has no function in ONNX's own operators; write the program with `lower=collectives`, or "
       "change the layout so that the operator is whole",
       node.label(), node.op_type);
}

}  // namespace tessera::program_io
