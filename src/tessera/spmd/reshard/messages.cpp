#include "tessera/spmd/reshard/messages.h"

#include <fmt/format.h>

#include <map>

#include "tessera/spmd/collective_attributes.h"

namespace tessera::spmd {

// Steps at the members where the values depart from a straight line: 4 4 3 is 4 - step(2), 0 4 8 11 is 4·me - step(3),
// where step(m) is 1 from member m on. Exact for every member, and short if there are few departures.
Expr by_member(const Expr& me, const std::vector<Expr>& values) {
  std::map<int64_t, int> slopes;
  for (size_t m = 1; m < values.size(); ++m)
    if (const auto slope = (values[m] - values[m - 1]).constant()) ++slopes[*slope];
  int64_t slope = 0;
  int most = slopes.contains(0) ? slopes[0] : 0;
  for (const auto& [each, times] : slopes)
    if (times > most) slope = each, most = times;
  Expr result = values.front() + me * slope;
  for (size_t m = 1; m < values.size(); ++m) {
    const Expr departure = values[m] - values[m - 1] - slope;
    if (!departure.is(0)) result = result + departure * min(1, max(0, me - (static_cast<int64_t>(m) - 1)));
  }
  return result;
}

Expr member_along(const std::vector<AxisRef>& axes, const Mesh& mesh) {
  Expr me = 0;
  for (const AxisRef& axis : axes) me = me * axis.size + index_along(axis, mesh);
  return me;
}

Messages::Messages(Program& program, MessageTopic topic, const Node* before)
    : program_(program),
      graph_(*program.graph),
      topic_(std::move(topic)),
      before_(before),
      me_(member_along(topic_.axes, program.mesh)) {}

void Messages::send(Value* piece, const std::vector<int64_t>& to) {
  Node* node = graph_.add_node("Send", {piece, ranks_of_peers(to)}, {}, kCommDomain, before_);
  node->attributes = attributes_of(Collective::send, DType::undefined);
}

Value* Messages::receive(TensorType type, const std::vector<int64_t>& from) {
  Value* extents = graph_.add_expression(fmt::format("{}.{}_shape", topic_.name, topic_.step), *type.shape);
  Node* node = graph_.add_node("Recv", {ranks_of_peers(from), extents},
                               {fmt::format("{}.{}", topic_.name, topic_.step)}, kCommDomain, before_);
  node->attributes = attributes_of(Collective::recv, type.dtype);
  node->outputs[0]->type = std::move(type);
  return node->outputs[0];
}

// The part of a rank's number that depends on the member.
int64_t Messages::rank_of(int64_t member) const {
  int64_t number = 0, minor = program_.mesh.size();
  for (const MeshAxis& axis : program_.mesh.axes()) {
    minor /= axis.size;
    for (const AxisRef& own : topic_.axes)
      if (own.axis == axis.name)
        number += digit_of(member, topic_.axes, own) * (axis.size / (own.pre * own.size)) * minor;
  }
  return number;
}

// The rank of each of these members; -1 for none.
Value* Messages::ranks_of_peers(const std::vector<int64_t>& peers) {
  std::vector<Expr> own, ranks, has;
  for (size_t m = 0; m < peers.size(); ++m) {
    const bool any = peers[m] != nobody;
    own.emplace_back(rank_of(static_cast<int64_t>(m)));
    ranks.emplace_back(any ? rank_of(peers[m]) : -1);
    has.emplace_back(any ? 1 : 0);
  }
  Expr first = 0;  // the group's
  for (const MeshAxis& axis : program_.mesh.axes()) first = first * axis.size + Expr::axis_index(axis.name);
  first = first - by_member(me_, own);
  Expr peer = by_member(me_, ranks);
  if (!first.is(0)) peer = peer + first * by_member(me_, has);
  return graph_.add_expression(topic_.name + ".peer", {peer}, true);
}

std::vector<Attribute> Messages::attributes_of(Collective kind, DType dtype) const {
  CollectiveAttributes all{.kind = kind, .value = topic_.name, .step = topic_.step, .dtype = dtype};
  for (const AxisRef& axis : join_axes(topic_.axes)) all.axes.push_back(axis.str(program_.mesh));
  return written(all);
}

}  // namespace tessera::spmd
