#include "tessera/dialect/schema.h"

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
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
using spmd::AttributeKind;
using spmd::CollectiveAttributes;

Expr index_in_group(const std::vector<std::string>& axes, const Mesh& mesh) {
  Expr index = 0;
  for (const std::string& name : axes) {
    AxisRef axis = parse_axis(name, mesh);
    index = index * axis.size + index_along(axis, mesh);
  }
  return index;
}

// This member's block of a dimension of that extent if the node does not state it: the balanced split.
Expr own_block(const std::optional<Expr>& stated, const Expr& whole, const std::vector<std::string>& axes,
               const Mesh& mesh) {
  return stated ? *stated : split_extent(whole, index_in_group(axes, mesh), digits_of(axes, mesh).size);
}

void infer_same(Node& node, const Mesh&) {
  set_result(node, 0, operand(node, 0).dtype(), operand(node, 0).shape());
}

void infer_gathered(Node& node, const Mesh& mesh) {
  const CollectiveAttributes collective = spmd::read_collective(node, mesh);
  Shape shape = operand(node, 0).shape();
  Expr& extent = shape[static_cast<size_t>(collective.dim)];
  extent = sum_over_members(collective.extent.value_or(extent), collective.axes, mesh);
  set_result(node, 0, operand(node, 0).dtype(), std::move(shape));
}

void infer_block(Node& node, const Mesh& mesh) {
  const CollectiveAttributes collective = spmd::read_collective(node, mesh);
  Shape shape = operand(node, 0).shape();
  Expr& extent = shape[static_cast<size_t>(collective.dim)];
  extent = own_block(collective.extent, extent, collective.axes, mesh);
  set_result(node, 0, operand(node, 0).dtype(), std::move(shape));
}

void infer_exchanged(Node& node, const Mesh& mesh) {
  const CollectiveAttributes collective = spmd::read_collective(node, mesh);
  Shape shape = operand(node, 0).shape();
  Expr& split = shape[static_cast<size_t>(collective.split_dim)];
  split = own_block(collective.split_extent, split, collective.axes, mesh);
  Expr& concat = shape[static_cast<size_t>(collective.concat_dim)];
  concat = sum_over_members(collective.concat_extent.value_or(concat), collective.axes, mesh);
  set_result(node, 0, operand(node, 0).dtype(), std::move(shape));
}

void infer_nothing(Node&, const Mesh&) {}

void infer_recv(Node& node, const Mesh&) {
  set_result(node, 0, spmd::read_collective(node).dtype, ops::content_operand(node, 1, "shape"));
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
  GroupDigits group = digits_of(*node.get<std::vector<std::string>>("axes"), mesh);
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

template <typename... Args>
[[noreturn]] void wrong(const Node& node, fmt::format_string<Args...> format, Args&&... args) {
  fail("dialect", "{}: {}", node.label(), fmt::format(format, std::forward<Args>(args)...));
}

// RankId, AxisIndex and Neighbor.
void check_position(const Node& node, const Schema& schema, const Mesh& mesh) {
  spmd::check_attributes(node, schema.op, schema.attributes);
  if (const auto* axes = node.get<std::vector<std::string>>("axes")) parse_axes(*axes, mesh);
}

Schema collective(comm::Kind kind, std::vector<std::string_view> operands, std::vector<std::string_view> results,
                  void (*infer)(Node&, const Mesh&)) {
  const auto attributes = spmd::attributes_of(kind);
  return {traits_of(kind).op,
          std::move(operands),
          {},
          std::move(results),
          {attributes.begin(), attributes.end()},
          kind,
          infer};
}

}  // namespace

const std::vector<Schema>& schemas() {
  static const std::vector<Schema> table = {
      collective(comm::Kind::send, {"data", "peer"}, {}, infer_nothing),
      collective(comm::Kind::recv, {"peer", "shape"}, {"data"}, infer_recv),
      collective(comm::Kind::broadcast, {"data"}, {"result"}, infer_same),
      collective(comm::Kind::reduce, {"data"}, {"result"}, infer_same),
      collective(comm::Kind::scatter, {"data"}, {"block"}, infer_block),
      collective(comm::Kind::gather, {"block"}, {"result"}, infer_gathered),
      collective(comm::Kind::all_gather, {"block"}, {"result"}, infer_gathered),
      collective(comm::Kind::all_reduce, {"data"}, {"result"}, infer_same),
      collective(comm::Kind::reduce_scatter, {"data"}, {"block"}, infer_block),
      collective(comm::Kind::all_to_all, {"data"}, {"result"}, infer_exchanged),
      collective(comm::Kind::permute, {"data"}, {"result"}, infer_same),
      collective(comm::Kind::barrier, {}, {}, infer_nothing),
      {"RankId", {}, {}, {"rank"}, {}, std::nullopt, infer_rank},
      {"AxisIndex", {}, {"rank"}, {"index"}, {{"axis", AttributeKind::text, true}}, std::nullopt, infer_axis_index},
      {"Neighbor",
       {},
       {"rank", "member"},
       {"rank"},
       {{"axes", AttributeKind::texts, true}, {"offset", AttributeKind::integer, false}},
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

bool gives(const CollectiveAttributes& collective, size_t member) {
  if (traits_of(collective.kind).root == RootRole::gives) return static_cast<int64_t>(member) == collective.root;
  if (collective.kind == comm::Kind::permute)
    return member < collective.targets.size() && collective.targets[member] >= 0;
  return collective.kind != comm::Kind::barrier;
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
  if (schema->kind)
    spmd::read_collective(node, mesh);
  else
    check_position(node, *schema, mesh);
}

void infer_node(Node& node, const Mesh& mesh) {
  const Schema* schema = find_schema(node.op_type);
  check(schema != nullptr, fmt::format("{} is an operator of the dialect", node.label()));
  schema->infer(node, mesh);
  for (size_t r = schema->results.size(); r < node.outputs.size(); ++r) set_result(node, r, DType::int64, {});
}

}  // namespace tessera::dialect
