#include "tessera/program_io/lowering.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/dialect/schema.h"
#include "tessera/onnx/opaque_type.h"
#include "tessera/spmd/program.h"

namespace tessera::program_io {
namespace {

bool is_half(DType dtype) {
  return dtype == DType::float16 || dtype == DType::bfloat16;
}

}  // namespace

bool for_others(const WriteOptions& options) {
  return options.lower == Lower::primitives || options.dialect != Dialect::tessera;
}

Lowering::Lowering(Graph& graph, ExpressionNodes& expressions, const Mesh& mesh, int64_t rank,
                   const WriteOptions& options, const std::map<std::string, int64_t, std::less<>>& hints)
    : graph_(graph),
      expressions_(expressions),
      mesh_(mesh),
      number_(rank),
      options_(options),
      hints_(hints),
      library_(mesh, options.rank_type == RankType::opaque) {
  if (options.rank_type == RankType::opaque && options.rank_id == RankIdentity::constant)
    fail("write", "a rank that is a handle cannot be a constant; give `rank_type=integer`, or another `rank_id`");
}

Value* Lowering::rank() {
  if (rank_) return rank_;
  const bool handle = options_.rank_type == RankType::opaque;
  const TensorType type = handle ? TensorType{} : TensorType{DType::int64, Shape{}};
  switch (options_.rank_id) {
    case RankIdentity::op:
      rank_ = graph_.add_node("RankId", {}, {"rank"}, spmd::kCommDomain)->outputs[0];
      rank_->type = type;
      break;
    case RankIdentity::input:
      rank_ = graph_.add_input(kRankInput, type);
      if (rank_->name != kRankInput)
        fail("write", "the model has a tensor '{}', a name that is reserved for the rank's number; rename it",
             kRankInput);
      break;
    case RankIdentity::constant:
      rank_ = graph_.add_constant(kRankInput, Tensor::of<int64_t>(DType::int64, {}, {number_}));
  }
  if (handle) set_opaque_type(*rank_, spmd::kCommDomain, dialect::kRankType);
  return rank_;
}

Value* Lowering::call(const dialect::Spec& spec, std::vector<Value*> operands, const std::string& name) {
  operands.push_back(rank());
  return graph_.add_node(library_.name_of(spec), std::move(operands), {name}, spmd::kCommDomain)->outputs[0];
}

Value* Lowering::axis_index(const std::string& axis) {
  Value*& known = axis_indices_[axis];
  if (known) return known;
  const bool given = options_.lower == Lower::primitives || options_.rank_id == RankIdentity::input;
  if (given && options_.rank_type == RankType::integer) {
    dialect::Spec spec;
    spec.op = "AxisIndex";
    spec.form = "arithmetic";
    spec.axes = {axis};
    known = call(spec, {}, "@" + axis);
  } else {
    std::vector<Value*> operands;
    if (given) operands.push_back(rank());
    Node* node = graph_.add_node("AxisIndex", operands, {"@" + axis}, spmd::kCommDomain);
    node->set("axis", axis);
    known = node->outputs[0];
  }
  known->type = {DType::int64, Shape{}};
  return known;
}

// The ends of all members' blocks along a dimension, from 0. Those of a balanced split are one formula, from which a
// reader derives each by the member's index.
Value* Lowering::bounds(const spmd::CollectiveAttributes& collective, const Expr& extent, const Expr& total) {
  const auto extents = dialect::on_members(extent, collective.axes, mesh_);
  const auto members = static_cast<int64_t>(extents.size());
  bool balanced = true;
  std::vector<Expr> ends = {0};
  for (int64_t member = 0; member < members; ++member) {
    const Expr& own = extents[static_cast<size_t>(member)];
    balanced = balanced && own == split_extent(total, member, members);
    ends.push_back(ends.back() + own);
  }
  if (balanced)
    for (int64_t member = 0; member <= members; ++member)
      ends[static_cast<size_t>(member)] = split_offset(total, member, members);
  const std::string name = collective.value.empty() ? "blocks" : collective.value;
  return expressions_.value_of(name + ".bounds", ends, false, DType::int64);
}

void Lowering::lower_collective(const Node& node) {
  check(dialect::communicates(node), "positions are expressions in a program");
  const spmd::CollectiveAttributes collective = spmd::read_collective(node, mesh_);
  const int64_t members = dialect::digits_of(collective.axes, mesh_).size;
  const CollectiveTraits& traits = traits_of(collective.kind);
  const BlockSide block = traits.block;
  if (block != BlockSide::none && members > dialect::kMostBlocks)
    fail("write", "{}: its group has {} members; functions of {} support up to {}; leave out `lower=primitives`",
         node.label(), members, node.op_type, dialect::kMostBlocks);
  Value* data = node.input(0);
  const DType dtype = data ? data->dtype() : DType::int64;
  const double bytes =
      data ? spmd::hinted(product(data->shape()), hints_) * static_cast<double>(bits_of(dtype)) / 8 : 0;
  dialect::Spec spec;
  spec.op = node.op_type;
  spec.axes = collective.axes;
  spec.form = dialect::form_for(spec.op, spec.axes, members, bytes);
  spec.reduction = collective.reduction;
  const bool sums = spec.reduction == Reduction::sum || spec.reduction == Reduction::mean;
  spec.float32 = traits.reduces && sums && is_half(dtype);
  spec.boolean = dtype == DType::boolean;
  spec.root = collective.root;
  spec.targets = collective.targets;
  std::vector<Value*> operands = node.inputs;
  const auto extent = [](const Value& value, int64_t dim) { return value.shape().at(static_cast<size_t>(dim)); };
  const spmd::MemberExtents extents = spmd::member_extents(collective, node);
  if (block == BlockSide::both) {
    spec.dim = collective.split_dim;
    spec.concat_dim = collective.concat_dim;
    operands.push_back(bounds(collective, extents.split, extent(*data, spec.dim)));
    operands.push_back(bounds(collective, extents.concat, extent(*node.output(), spec.concat_dim)));
  } else if (block != BlockSide::none) {
    spec.dim = collective.dim;
    const Value& whole = block == BlockSide::operand ? *node.output() : *data;
    operands.push_back(bounds(collective, extents.block, extent(whole, spec.dim)));
  }
  operands.push_back(rank());
  auto call = std::make_unique<Node>();
  call->op_type = library_.name_of(spec);
  call->domain = node.domain;
  call->name = node.name;
  call->inputs = std::move(operands);
  call->outputs = node.outputs;
  call->set("value", collective.value.empty() ? node.op_type : collective.value);
  call->set("dtype", static_cast<int64_t>(dtype));
  graph_.adopt_node(std::move(call));
}

void Lowering::define_local(const Node& node) {
  Function function = local_function(node);
  bool known = std::any_of(local_functions_.begin(), local_functions_.end(),
                           [&](const Function& each) { return each.name == function.name; });
  if (!known) local_functions_.push_back(std::move(function));
}

void Lowering::add(std::unique_ptr<Node> node) {
  const bool primitive = node->is("Send", spmd::kCommDomain) || node->is("Recv", spmd::kCommDomain);
  if (node->domain == spmd::kLocalDomain) {
    if (for_others(options_)) define_local(*node);
    graph_.adopt_node(std::move(node));
  } else if (options_.lower == Lower::collectives || primitive) {
    graph_.adopt_node(std::move(node));
  } else {
    lower_collective(*node);
  }
}

std::vector<Function> Lowering::take_functions() {
  std::vector<Function> functions = library_.take();
  std::move(local_functions_.begin(), local_functions_.end(), std::back_inserter(functions));
  return functions;
}

}  // namespace tessera::program_io
