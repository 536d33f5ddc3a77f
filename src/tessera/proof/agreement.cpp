#include "tessera/proof/agreement.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/dialect/schema.h"
#include "tessera/ir/always_equal.h"
#include "tessera/mesh/group.h"

namespace tessera::proof {
namespace {

Shape bind_shape(const Shape& shape, const Mesh& mesh, const std::vector<int64_t>& coordinates) {
  Shape bound;
  for (const Expr& extent : shape) bound.push_back(bind_rank(extent, mesh, coordinates));
  return bound;
}

// A rank's member index in the group of a communication.
struct Standing {
  Standing(const Communication& communication, const Mesh& mesh, const std::vector<int64_t>& coordinates)
      : communication(communication), mesh(mesh), coordinates(coordinates) {
    members = group_of(mesh.rank_of(coordinates), parse_axes(communication.axes, mesh), mesh);
  }

  int64_t member_of(int64_t rank) const {
    auto found = std::find(members.begin(), members.end(), rank);
    return found == members.end() ? kOutside : found - members.begin();
  }

  // The member that a message names by its rank; -1: none.
  int64_t peer(const Expr& named) const {
    auto rank = bind_rank(named, mesh, coordinates).constant();
    if (!rank)
      fail("check", "{}: its peer, {}, does not follow from the rank alone", communication.node->label(), named.str());
    return *rank == -1 ? -1 : member_of(*rank);
  }

  int64_t target() const {
    auto me = static_cast<size_t>(member_of(mesh.rank_of(coordinates)));
    return me < communication.targets.size() ? communication.targets[me] : kOutside;
  }
  int64_t source() const {
    auto found =
        std::find(communication.targets.begin(), communication.targets.end(), member_of(mesh.rank_of(coordinates)));
    return found == communication.targets.end() ? -1 : found - communication.targets.begin();
  }

  static constexpr int64_t kOutside = -2;  // not in the group
  const Communication& communication;
  const Mesh& mesh;
  const std::vector<int64_t>& coordinates;
  std::vector<int> members;
};

// Compares what must be equal on all members regardless of shapes. Returns the first difference, in words.
std::optional<std::string> difference(const Communication& a, const Communication& b) {
  const CollectiveTraits& traits = traits_of(a.kind);
  if (a.kind != b.kind) return "they are of different kinds";
  if (a.value != b.value) return "they move different values";
  if (a.dtype != b.dtype) return fmt::format("one moves {}, the other {}", name_of(a.dtype), name_of(b.dtype));
  if (traits.reduces && a.reduction != b.reduction)
    return fmt::format("one reduces by {}, the other by {}", name_of(a.reduction), name_of(b.reduction));
  if (traits.root != RootRole::none && a.root != b.root)
    return fmt::format("their roots are members {} and {}", a.root, b.root);
  if (a.dim != b.dim || a.split_dim != b.split_dim || a.concat_dim != b.concat_dim)
    return "they work along different dimensions";
  if (a.bucket != b.bucket) return "they are in different buckets";
  return std::nullopt;
}

bool equal_but(const Shape& a, const Shape& b, std::initializer_list<int64_t> dims) {
  if (a.size() != b.size()) return false;
  for (size_t d = 0; d < a.size(); ++d)
    if (std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) == dims.end() && !equal_as_extents(a[d], b[d]))
      return false;
  return true;
}

class GroupCheck {
 public:
  GroupCheck(const std::vector<const Statement*>& members, const std::vector<std::vector<int64_t>>& coordinates,
             const Mesh& mesh)
      : members_(members), coordinates_(coordinates), mesh_(mesh) {}

  std::optional<Clash> run() const {
    auto clash = fit();
    return clash ? clash : same_layouts();
  }

 private:
  std::optional<Clash> fit() const {
    const Communication& first = *members_[0]->communication;
    for (size_t m = 1; m < members_.size(); ++m)
      if (auto why = difference(first, *members_[m]->communication)) return Clash{0, m, "order", *why};
    for (size_t m = 0; m < members_.size(); ++m)
      if (dialect::gives(*members_[m]->communication, m) && !members_[m]->communication->has_operand)
        return Clash{m, m, "shape", "it has no operand, but needs one"};
    const CollectiveTraits& traits = traits_of(first.kind);
    switch (traits.block) {
      case BlockSide::operand:
        return blocks(first.dim, &Statement::in, &Statement::out);
      case BlockSide::result:
        return blocks(first.dim, &Statement::out, &Statement::in);
      case BlockSide::both:
        return exchange(first.split_dim, first.concat_dim);
      case BlockSide::none:
        break;
    }
    if (first.kind == comm::Kind::permute) return neighbours();
    return traits.reduces || traits.root != RootRole::none ? same_shapes() : std::nullopt;
  }

  // A member without an operand cannot derive the layout of its result from its own model, so the other members' models
  // must state it, too.
  std::optional<Clash> same_layouts() const {
    for (size_t m = 1; m < members_.size(); ++m) {
      const Communication &one = *members_[0]->communication, &another = *members_[m]->communication;
      const auto &first = one.layout, &other = another.layout;
      if ((!first && one.as_written) || (!other && another.as_written)) continue;
      if (!same(first, other))
        return Clash{0, m, "layout", fmt::format("one states {} as the result, the other {}", str(first), str(other))};
    }
    return std::nullopt;
  }

  static bool same(const std::optional<Sharding>& a, const std::optional<Sharding>& b) {
    return a && b ? same_layout(*a, *b) : !a && !b;
  }

  std::string str(const std::optional<Sharding>& layout) const { return layout ? layout->str(mesh_) : "no layout"; }

  Expr of_member(const Expr& extent, size_t member) const { return bind_rank(extent, mesh_, coordinates_[member]); }

  std::optional<Clash> same_shapes() const {
    for (size_t m = 0; m < members_.size(); ++m) {
      if (!equal_as_shapes(members_[0]->in, members_[m]->in))
        return Clash{0, m, "shape", shapes_differ(members_[0]->in, members_[m]->in)};
      if (members_[m]->communication->kind != comm::Kind::reduce && !equal_as_shapes(members_[m]->in, members_[m]->out))
        return Clash{m, m, "shape", shapes_differ(members_[m]->in, members_[m]->out)};
    }
    return std::nullopt;
  }

  static std::string shapes_differ(const Shape& a, const Shape& b) {
    return fmt::format("shapes {} and {} do not fit together", to_string(a), to_string(b));
  }

  // `part` of each member is its block along `dim` of `whole`.
  std::optional<Clash> blocks(int64_t dim, Shape Statement::*part, Shape Statement::*whole) const {
    const Communication& first = *members_[0]->communication;
    const bool one_has_all = traits_of(first.kind).root != RootRole::none;
    for (size_t m = 0; m < members_.size(); ++m)
      if (auto clash = every_member_knows(m, dim, members_[m]->*part, &spmd::MemberExtents::block)) return clash;
    Expr total = 0;
    for (const Statement* member : members_) total = total + (member->*part)[dim];
    for (size_t m = 0; m < members_.size(); ++m) {
      if (!equal_but(members_[0]->*part, members_[m]->*part, {dim}))
        return Clash{0, m, "shape", shapes_differ(members_[0]->*part, members_[m]->*part)};
      if (one_has_all && static_cast<int64_t>(m) != first.root) continue;
      const Shape& all = members_[m]->*whole;
      if (!equal_but(members_[0]->*part, all, {dim}) || !equal_as_extents(all[dim], total))
        return Clash{m, m, "shape",
                     fmt::format("the members' blocks of {} make {} in dimension {}, not {}",
                                 to_string(members_[0]->*part), total.str(), dim, to_string(all))};
    }
    return std::nullopt;
  }

  // Whether the extent that each member states for member `m` equals that member's own extent.
  std::optional<Clash> every_member_knows(size_t m, int64_t dim, const Shape& shape,
                                          Expr spmd::MemberExtents::*extent) const {
    std::set<const Communication*> asked;
    for (size_t other = 0; other < members_.size(); ++other) {
      const Communication& communication = *members_[other]->communication;
      if (!asked.insert(&communication).second) continue;
      Expr stated = of_member(communication.extents.*extent, m);
      if (!equal_as_extents(stated, shape[dim]))
        return Clash{other, m, "shape",
                     fmt::format("the first expects the other's extent in dimension {} to be {}, but it is {}", dim,
                                 stated.str(), shape[dim].str())};
    }
    return std::nullopt;
  }

  std::optional<Clash> exchange(int64_t split, int64_t concat) const {
    Expr split_total = 0, concat_total = 0;
    for (size_t m = 0; m < members_.size(); ++m) {
      const Statement& member = *members_[m];
      if (auto clash = every_member_knows(m, split, member.out, &spmd::MemberExtents::split)) return clash;
      if (auto clash = every_member_knows(m, concat, member.in, &spmd::MemberExtents::concat)) return clash;
      split_total = split_total + member.out[split];
      concat_total = concat_total + member.in[concat];
    }
    for (size_t m = 0; m < members_.size(); ++m) {
      const Statement& member = *members_[m];
      if (!equal_but(members_[0]->in, member.in, {concat}))
        return Clash{0, m, "shape", shapes_differ(members_[0]->in, member.in)};
      if (!equal_but(member.in, member.out, {split, concat}) || !equal_as_extents(member.in[split], split_total) ||
          !equal_as_extents(member.out[concat], concat_total))
        return Clash{m, m, "shape", shapes_differ(member.in, member.out)};
    }
    return std::nullopt;
  }

  std::optional<Clash> neighbours() const {
    const auto count = static_cast<int64_t>(members_.size());
    for (size_t m = 0; m < members_.size(); ++m) {
      const int64_t to = members_[m]->to;
      if (to < -1 || to >= count) return Clash{m, m, "shape", fmt::format("there is no member {} to send to", to)};
      if (to < 0) continue;
      const Statement& receiver = *members_[to];
      if (receiver.from != static_cast<int64_t>(m))
        return Clash{m, static_cast<size_t>(to), "message",
                     fmt::format("the first sends to the other, which receives from member {}", receiver.from)};
      if (!equal_as_shapes(members_[m]->in, receiver.out))
        return Clash{m, static_cast<size_t>(to), "shape", shapes_differ(members_[m]->in, receiver.out)};
    }
    for (size_t m = 0; m < members_.size(); ++m) {
      const int64_t from = members_[m]->from;
      if (from < -1 || from >= count || (from >= 0 && members_[from]->to != static_cast<int64_t>(m)))
        return Clash{m, from >= 0 && from < count ? static_cast<size_t>(from) : m, "message",
                     fmt::format("the first receives from member {}, which does not send to it", from)};
    }
    return std::nullopt;
  }

  const std::vector<const Statement*>& members_;
  const std::vector<std::vector<int64_t>>& coordinates_;
  const Mesh& mesh_;
};

}  // namespace

template <typename Value>
Statements::ByCoordinates<Value>::ByCoordinates(const Mesh& mesh, const std::set<size_t>& axes) {
  size_t settings = 1;
  for (size_t axis : axes) {
    axes_.emplace_back(axis, static_cast<size_t>(mesh.axes()[axis].size));
    settings *= axes_.back().second;
  }
  known_.resize(settings);
}

template <typename Value>
std::optional<Value>& Statements::ByCoordinates<Value>::at(const std::vector<int64_t>& coordinates) {
  size_t index = 0;
  for (const auto& [axis, size] : axes_) index = index * size + static_cast<size_t>(coordinates[axis]);
  return known_[index];
}

template <typename Value>
bool Statements::ByCoordinates<Value>::counts(size_t axis) const {
  return std::any_of(axes_.begin(), axes_.end(), [&](const auto& each) { return each.first == axis; });
}

Statements::Statements(const Mesh& mesh, const std::vector<std::vector<Communication>>& communications) : mesh_(mesh) {
  for (size_t axis = 0; axis < mesh.axes().size(); ++axis) all_axes_.insert(axis);
  for (const auto& program : communications) {
    auto& sites = sites_.emplace_back();
    for (const Communication& communication : program) {
      Site& site = sites.emplace_back();
      site.communication = &communication;
      site.in = shared(communication.in);
      site.out = shared(communication.out);
      std::set<std::string> symbols;
      for (const Shape* shape : {&communication.in, &communication.out})
        for (const Expr& extent : *shape) extent.collect_symbols(symbols);
      const spmd::MemberExtents& extents = communication.extents;
      for (const Expr* expr : {&extents.block, &extents.split, &extents.concat}) expr->collect_symbols(symbols);
      std::set<size_t> axes = axes_of(symbols), of_group;
      if (communication.has_peers())
        for (const std::string& axis : communication.axes)
          of_group.insert(static_cast<size_t>(*mesh.find(parse_axis(axis, mesh).axis)));
      axes.insert(of_group.begin(), of_group.end());
      site.peers = {mesh, of_group};
      site.statement = {mesh, axes};
    }
  }
}

std::set<size_t> Statements::axes_of(const std::set<std::string>& symbols) const {
  std::set<size_t> axes;
  for (const std::string& symbol : symbols)
    if (symbol.starts_with('@'))
      if (auto axis = mesh_.find(std::string_view(symbol).substr(1))) axes.insert(static_cast<size_t>(*axis));
  return axes;
}

Statements::BoundShape* Statements::shared(const Shape& shape) {
  auto [found, fresh] = shapes_.try_emplace(to_string(shape));
  if (fresh) {
    std::set<std::string> symbols;
    for (const Expr& extent : shape) extent.collect_symbols(symbols);
    found->second = {shape, {mesh_, axes_of(symbols)}};
  }
  return &found->second;
}

const Shape& Statements::bound(BoundShape& shape, const std::vector<int64_t>& coordinates) const {
  std::optional<Shape>& known = shape.on.at(coordinates);
  if (!known) known = bind_shape(shape.shape, mesh_, coordinates);
  return *known;
}

// Whether the peer is the same member (or none) for all coordinates along axes outside the group: the peer's rank then
// changes with them as this rank does. On dp=64,tp=8, at tp=3, 8*@dp + 4 does so; 8*@dp and half of @dp do not.
bool Statements::is_alike(const Site& site, const std::vector<int64_t>& coordinates) const {
  const bool sends = site.communication->kind == comm::Kind::send;
  Expr own = 0;  // the rank's number, with its coordinates along the group's axes substituted
  std::map<std::string, Expr, std::less<>> bound;
  for (size_t axis = 0; axis < coordinates.size(); ++axis) {
    const MeshAxis& each = mesh_.axes()[axis];
    const Expr index = site.peers.counts(axis) ? Expr(coordinates[axis]) : mod(Expr::axis_index(each.name), each.size);
    own = own * each.size + index;
    bound.emplace("@" + each.name, index);
  }
  const Expr& peer = sends ? site.communication->to : site.communication->from;
  const Expr named = peer.substitute([&](std::string_view symbol) -> std::optional<Expr> {
    auto found = bound.find(symbol);
    return found == bound.end() ? std::nullopt : std::optional(found->second);
  });
  return named.is(-1) || (named - own).is_constant();
}

Statements::Peers Statements::peers_of(Site& site, const std::vector<int64_t>& coordinates) {
  if (!site.communication->has_peers()) return {};
  if (const auto& known = site.peers.at(coordinates)) return *known;
  const bool every_axis = site.peers.axes() == all_axes_.size();
  if (site.communication->is_message() && !every_axis && !is_alike(site, coordinates)) {
    site.peers = {mesh_, all_axes_};
    site.statement = {mesh_, all_axes_};
  }
  const Standing standing(*site.communication, mesh_, coordinates);
  Peers peers;
  if (site.communication->kind == comm::Kind::permute)
    peers = {standing.target(), standing.source()};
  else
    peers = {standing.peer(site.communication->to), standing.peer(site.communication->from)};
  site.peers.at(coordinates) = peers;
  return peers;
}

int Statements::of(int program, size_t at, const std::vector<int64_t>& coordinates) {
  Site& site = sites_[program][at];
  if (const auto& known = site.statement.at(coordinates)) return *known;
  const Peers peers = peers_of(site, coordinates);
  all_.push_back(
      {site.communication, bound(*site.in, coordinates), bound(*site.out, coordinates), peers.to, peers.from});
  const int index = static_cast<int>(all_.size()) - 1;
  site.statement.at(coordinates) = index;
  return index;
}

std::optional<Clash> disagreement(const std::vector<const Statement*>& members,
                                  const std::vector<std::vector<int64_t>>& coordinates, const Mesh& mesh) {
  return GroupCheck(members, coordinates, mesh).run();
}

std::optional<std::string> mismatch(const Statement& sent, const Statement& received) {
  const Communication &send = *sent.communication, &recv = *received.communication;
  if (send.value != recv.value) return fmt::format("'{}' is sent where '{}' is expected", send.value, recv.value);
  if (send.step != recv.step)
    return fmt::format("step {} of '{}' is sent where step {} is expected", send.step, send.value, recv.step);
  if (send.dtype != recv.dtype)
    return fmt::format("{} is sent where {} is expected", name_of(send.dtype), name_of(recv.dtype));
  if (!equal_as_shapes(sent.in, received.out))
    return fmt::format("{} is sent where {} is expected", to_string(sent.in), to_string(received.out));
  return std::nullopt;
}

}  // namespace tessera::proof
