#include "tessera/dialect/schema.h"

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/dialect/attributes.h"
#include "tessera/dialect/buckets.h"
#include "tessera/dialect/group.h"
#include "tessera/mesh/group.h"
#include "tessera/mesh/sharding.h"
#include "tessera/ops/library/infer.h"
#include "tessera/spmd/program.h"

namespace tessera::dialect {
namespace {

using ops::fail_node;
using ops::operand;
using ops::set_result;

const std::vector<std::string>& axes_of(const Node& node) {
  return *node.get<std::vector<std::string>>("axes");
}

Expr index_in_group(const Node& node, const Mesh& mesh) {
  Expr index = 0;
  for (const std::string& name : axes_of(node)) {
    AxisRef axis = parse_axis(name, mesh);
    index = index * axis.size + index_along(axis, mesh);
  }
  return index;
}

size_t dim_of(const Node& node, std::string_view attribute) {
  int64_t dim = node.get_int(attribute, -1);
  if (dim < 0 || dim >= static_cast<int64_t>(operand(node, 0).rank()))
    fail_node(node, "its {} is {}; its operand has the dimensions 0 to {}", attribute, dim,
              operand(node, 0).rank() - 1);
  return static_cast<size_t>(dim);
}

// This member's block of a dimension of that extent if the node does not state it: the balanced split.
Expr own_block(const Node& node, std::string_view attribute, const Expr& whole, const Mesh& mesh) {
  return stated_extent(node, attribute,
                       split_extent(whole, index_in_group(node, mesh), digits_of(axes_of(node), mesh).size));
}

void infer_same(Node& node, const Mesh&) {
  set_result(node, 0, operand(node, 0).dtype(), operand(node, 0).shape());
}

void infer_gathered(Node& node, const Mesh& mesh) {
  Shape shape = operand(node, 0).shape();
  Expr& extent = shape[dim_of(node, "dim")];
  extent = sum_over_members(stated_extent(node, spmd::kExtentAttribute, extent), axes_of(node), mesh);
  set_result(node, 0, operand(node, 0).dtype(), std::move(shape));
}

void infer_block(Node& node, const Mesh& mesh) {
  Shape shape = operand(node, 0).shape();
  Expr& extent = shape[dim_of(node, "dim")];
  extent = own_block(node, spmd::kExtentAttribute, extent, mesh);
  set_result(node, 0, operand(node, 0).dtype(), std::move(shape));
}

void infer_exchanged(Node& node, const Mesh& mesh) {
  Shape shape = operand(node, 0).shape();
  size_t split = dim_of(node, "split_dim"), concat = dim_of(node, "concat_dim");
  if (split == concat) fail_node(node, "split_dim and concat_dim are both {}; name two dimensions", split);
  shape[split] = own_block(node, spmd::kSplitExtentAttribute, shape[split], mesh);
  shape[concat] =
      sum_over_members(stated_extent(node, spmd::kConcatExtentAttribute, shape[concat]), axes_of(node), mesh);
  set_result(node, 0, operand(node, 0).dtype(), std::move(shape));
}

void infer_nothing(Node&, const Mesh&) {}

void infer_recv(Node& node, const Mesh&) {
  auto dtype = static_cast<DType>(node.get_int("dtype", 0));
  if (bits_of(dtype) == 0)
    fail_node(node, "its dtype is {}; give the number of one of ONNX's types", static_cast<int>(dtype));
  set_result(node, 0, dtype, ops::content_operand(node, 1, "shape"));
}

void infer_rank(Node& node, const Mesh& mesh) {
  set_result(node, 0, DType::int64, {}, std::vector<Expr>{rank_expression(mesh)});
}

// The number of the rank that an operand names; this rank's if there is no operand.
Expr named_rank(const Node& node, const Mesh& mesh) {
  return node.input(0) ? ops::content_operand(node, 0, "rank").front() : rank_expression(mesh);
}

Expr digit_of(const Expr& rank, const GroupDigits::Digit& digit) {
  return mod(floordiv(rank, digit.stride), digit.size);
}

void infer_axis_index(Node& node, const Mesh& mesh) {
  const std::string axis = node.get_string("axis", "");
  const GroupDigits group = digits_of({axis}, mesh);
  const Expr rank = named_rank(node, mesh);
  Expr index = 0;
  if (rank == rank_expression(mesh))
    index = index_along(parse_axis(axis, mesh), mesh);
  else if (!group.digits.empty())
    index = digit_of(rank, group.digits[0]);
  set_result(node, 0, DType::int64, {}, std::vector<Expr>{index});
}

// The rank of a member of a rank's group; -1 for member -1, nobody.
void infer_neighbor(Node& node, const Mesh& mesh) {
  GroupDigits group = digits_of(axes_of(node), mesh);
  Expr rank = named_rank(node, mesh), first = rank, me = 0;
  for (const GroupDigits::Digit& digit : group.digits) {
    me = me * digit.size + digit_of(rank, digit);
    first = first - digit_of(rank, digit) * digit.stride;
  }
  Expr member = mod(me + node.get_int("offset", 0), group.size), nobody = 0;
  if (node.input(1)) {
    Expr named = ops::content_operand(node, 1, "member").front();
    nobody = min(1, max(0, 0 - named));
    member = max(0, named);
  }
  Expr result = first;
  int64_t weight = group.size;
  for (const GroupDigits::Digit& digit : group.digits) {
    weight /= digit.size;
    result = result + digit_of(member, {digit.size, weight}) * digit.stride;
  }
  set_result(node, 0, DType::int64, {}, std::vector<Expr>{result - nobody * (result + 1)});
}

constexpr AttributeKind kInteger = AttributeKind::integer, kIntegers = AttributeKind::integers,
                        kText = AttributeKind::text, kTexts = AttributeKind::texts;
constexpr AttributeSchema kAxes{"axes", kTexts, true}, kValue{"value", kText, false}, kStep{"step", kText, false},
    kReduction{"reduction", kText, false}, kDim{"dim", kInteger, true}, kExtent{"extent", kText, false},
    kRoot{"root", kInteger, true}, kBucket{kBucketAttribute, kInteger, false};

template <typename... Args>
[[noreturn]] void wrong(const Node& node, fmt::format_string<Args...> format, Args&&... args) {
  fail("dialect", "{}: {}", node.label(), fmt::format(format, std::forward<Args>(args)...));
}

void check_members(const Node& node, const Mesh& mesh) {
  const auto* axes = node.get<std::vector<std::string>>("axes");
  if (!axes) return;
  for (const std::string& axis : *axes) parse_axis(axis, mesh);
  int64_t members = digits_of(*axes, mesh).size;
  if (const auto* root = node.get<int64_t>("root"); root && (*root < 0 || *root >= members))
    wrong(node, "its root is member {}; the group has the members 0 to {}", *root, members - 1);
  if (const auto* targets = node.get<std::vector<int64_t>>("targets")) {
    if (static_cast<int64_t>(targets->size()) != members)
      wrong(node, "it has {} targets; give one for each of the {} members", targets->size(), members);
    std::vector<bool> taken(static_cast<size_t>(members), false);
    for (int64_t target : *targets) {
      if (target < -1 || target >= members)
        wrong(node, "it sends to member {}; the members are 0 to {}, and -1 is nobody", target, members - 1);
      if (target >= 0 && taken[static_cast<size_t>(target)])
        wrong(node, "two members send to member {}; each receives from one at most", target);
      if (target >= 0) taken[static_cast<size_t>(target)] = true;
    }
  }
}

// Extents are of any member, and so over its indices along the mesh's axes.
void check_extents(const Node& node, const Mesh& mesh) {
  for (std::string_view name : {spmd::kExtentAttribute, spmd::kSplitExtentAttribute, spmd::kConcatExtentAttribute}) {
    std::set<std::string> symbols;
    stated_extent(node, name, 0).collect_symbols(symbols);
    for (const std::string& symbol : symbols)
      if (symbol.starts_with('@') && !mesh.find(symbol.substr(1)))
        wrong(node, "its {} '{}' names the axis '{}', which the mesh {} does not have", name,
              *node.get<std::string>(name), symbol.substr(1), mesh.str());
  }
}

Schema collective(comm::Kind kind, std::vector<std::string_view> operands, std::vector<std::string_view> results,
                  std::vector<AttributeSchema> attributes, void (*infer)(Node&, const Mesh&)) {
  return {traits_of(kind).op, std::move(operands), {}, std::move(results), std::move(attributes), kind, infer};
}

}  // namespace

const std::vector<Schema>& schemas() {
  static const std::vector<Schema> table = {
      collective(comm::Kind::send, {"data", "peer"}, {}, {kAxes, kValue, kStep}, infer_nothing),
      collective(comm::Kind::recv, {"peer", "shape"}, {"data"}, {kAxes, kValue, kStep, {"dtype", kInteger, true}},
                 infer_recv),
      collective(comm::Kind::broadcast, {"data"}, {"result"}, {kAxes, kRoot, kValue}, infer_same),
      collective(comm::Kind::reduce, {"data"}, {"result"}, {kAxes, kRoot, kReduction, kValue}, infer_same),
      collective(comm::Kind::scatter, {"data"}, {"block"}, {kAxes, kRoot, kDim, kExtent, kValue}, infer_block),
      collective(comm::Kind::gather, {"block"}, {"result"}, {kAxes, kRoot, kDim, kExtent, kValue}, infer_gathered),
      collective(comm::Kind::all_gather, {"block"}, {"result"}, {kAxes, kDim, kExtent, kValue, kBucket},
                 infer_gathered),
      collective(comm::Kind::all_reduce, {"data"}, {"result"}, {kAxes, kReduction, kValue, kBucket}, infer_same),
      collective(comm::Kind::reduce_scatter, {"data"}, {"block"}, {kAxes, kReduction, kDim, kExtent, kValue, kBucket},
                 infer_block),
      collective(comm::Kind::all_to_all, {"data"}, {"result"},
                 {kAxes,
                  {"split_dim", kInteger, true},
                  {"concat_dim", kInteger, true},
                  {"split_extent", kText, false},
                  {"concat_extent", kText, false},
                  kValue},
                 infer_exchanged),
      collective(comm::Kind::permute, {"data"}, {"result"}, {kAxes, {"targets", kIntegers, true}, kValue}, infer_same),
      collective(comm::Kind::barrier, {}, {}, {kAxes, kValue}, infer_nothing),
      {"RankId", {}, {}, {"rank"}, {}, std::nullopt, infer_rank},
      {"AxisIndex", {}, {"rank"}, {"index"}, {{"axis", kText, true}}, std::nullopt, infer_axis_index},
      {"Neighbor",
       {},
       {"rank", "member"},
       {"rank"},
       {kAxes, {"offset", kInteger, false}},
       std::nullopt,
       infer_neighbor},
  };
  return table;
}

const Schema* find_schema(std::string_view op) {
  for (const Schema& schema : schemas())
    if (schema.op == op) return &schema;
  return nullptr;
}

std::optional<comm::Kind> kind_of(const Node& node) {
  if (node.domain != spmd::kCommDomain) return std::nullopt;
  const Schema* schema = find_schema(node.op_type);
  return schema ? schema->kind : std::nullopt;
}

bool communicates(const Node& node) {
  return kind_of(node).has_value();
}

bool gives(const Node& node, size_t member) {
  const auto kind = kind_of(node);
  if (!kind) return false;
  if (traits_of(*kind).root == RootRole::gives) return static_cast<int64_t>(member) == node.get_int("root", 0);
  if (*kind == comm::Kind::permute) {
    const std::vector<int64_t> targets = node.get_ints("targets");
    return member < targets.size() && targets[member] >= 0;
  }
  return *kind != comm::Kind::barrier;
}

std::optional<Reduction> reduction_named(std::string_view name) {
  for (Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min, Reduction::mean})
    if (name == name_of(reduction)) return reduction;
  return std::nullopt;
}

Reduction reduction_of(const Node& node) {
  const std::string name = node.get_string("reduction", "sum");
  if (const auto reduction = reduction_named(name)) return *reduction;
  wrong(node, "there is no reduction '{}'; use sum, max, min or mean", name);
}

Expr stated_extent(const Node& node, std::string_view attribute, const Expr& otherwise) {
  const auto* text = node.get<std::string>(attribute);
  if (!text) return otherwise;
  auto extent = Expr::parse(*text);
  if (!extent)
    wrong(node, "its {} '{}' is not an expression; write one over axis indices, as 4 + @tp", attribute, *text);
  return *extent;
}

Expr peer_of(const Node& node) {
  const Value* peer = node.input(node.op_type == "Send" ? 1 : 0);
  if (peer && peer->content && peer->content->size() == 1) return peer->content->front();
  if (peer && peer->kind == ValueKind::constant && is_integer(peer->dtype()) && peer->data.count() == 1)
    return peer->data.to_int64().front();
  wrong(node, "its peer must be one integer that is known before the run; compute it from the rank");
}

void check_node(const Node& node, const Mesh& mesh) {
  const Schema* schema = find_schema(node.op_type);
  if (!schema) {
    std::vector<std::string_view> names;
    for (const Schema& each : schemas()) names.push_back(each.op);
    wrong(node, "{} has no operator {}; it has {}", spmd::kCommDomain, node.op_type, fmt::join(names, ", "));
  }
  size_t tokens = schema->kind ? 1 : 0, most = schema->operands.size() + schema->optional.size();
  if (node.inputs.size() > most + tokens)
    wrong(node, "it has {} operands; {} takes {}", node.inputs.size(), node.op_type, most);
  for (size_t i = 0; i < schema->operands.size(); ++i)
    if (!node.input(i)) wrong(node, "its operand {}, {}, is missing", i, schema->operands[i]);
  if (node.outputs.size() > schema->results.size() + tokens)
    wrong(node, "it has {} results; {} gives {}", node.outputs.size(), node.op_type, schema->results.size());
  check_attributes(node, schema->op, schema->attributes, schema->kind ? kOrderAttribute : "");
  check_members(node, mesh);
  check_extents(node, mesh);
}

void infer_node(Node& node, const Mesh& mesh) {
  const Schema* schema = find_schema(node.op_type);
  check(schema != nullptr, fmt::format("{} is an operator of the dialect", node.label()));
  schema->infer(node, mesh);
  for (size_t r = schema->results.size(); r < node.outputs.size(); ++r) set_result(node, r, DType::int64, {});
}

}  // namespace tessera::dialect
