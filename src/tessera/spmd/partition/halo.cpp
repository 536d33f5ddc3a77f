#include "tessera/spmd/partition/halo.h"

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/ir/graph.h"
#include "tessera/spmd/reshard/messages.h"

namespace tessera::spmd {

using ops::Interval;

namespace {

Expr clamped(const Expr& at, const Expr& least, const Expr& most) {
  return min(max(at, least), most);
}

// The intersection of two intervals; if they do not overlap, an empty interval at the begin of the first.
Interval common(const Interval& a, const Interval& b) {
  const Expr begin = clamped(b.begin, a.begin, a.end);
  return {begin, max(begin, min(a.end, b.end))};
}

}  // namespace

std::vector<Interval> shards_of(const Expr& size, const std::vector<AxisRef>& axes) {
  std::vector<Interval> shards;
  for (int64_t member = 0; member < ranks_of(axes); ++member) {
    Expr offset = 0, extent = size;
    for (const AxisRef& axis : axes) {
      const int64_t digit = digit_of(member, axes, axis);
      offset = offset + split_offset(extent, digit, axis.size);
      extent = split_extent(extent, digit, axis.size);
    }
    shards.push_back({offset, offset + extent});
  }
  return shards;
}

Interval shard_of(const Expr& size, const std::vector<AxisRef>& axes, const Expr& member) {
  std::vector<Expr> digits;  // minor-most first
  Expr left = member;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    const bool major = std::next(axis) == axes.rend();
    digits.push_back(major ? left : mod(left, axis->size));
    left = major ? Expr(0) : floordiv(left, axis->size);
  }
  Expr offset = 0, extent = size;
  for (size_t a = 0; a < axes.size(); ++a) {
    const Expr& digit = digits[axes.size() - 1 - a];
    offset = offset + split_offset(extent, digit, axes[a].size);
    extent = split_extent(extent, digit, axes[a].size);
  }
  return {offset, offset + extent};
}

Halo::Halo(const ops::Window& window, Expr operand_size, const Expr& result_size, const std::vector<AxisRef>& axes)
    : size(std::move(operand_size)), held(shards_of(size, axes)), results(shards_of(result_size, axes)) {
  for (size_t m = 0; m < held.size(); ++m) {
    const Interval& made = results[m];
    read.push_back(window.reads(made.begin, made.end, size));
    Interval harmless = read.back();
    harmless.end = harmless.end + min(1, made.count()) * window.slack;
    kept.push_back(common(held[m], harmless));
  }
}

Interval Halo::taken(int64_t reader, int64_t holder) const {
  return common(held[static_cast<size_t>(holder)], read[static_cast<size_t>(reader)]);
}

Expr Halo::received(int64_t member) const {
  return common({0, size}, read[static_cast<size_t>(member)]).count() - taken(member, member).count();
}

std::set<int64_t> Halo::distances() const {
  std::set<int64_t> all;
  const auto end_of = [](const Interval& interval) { return *interval.end.constant(); };
  const auto is_known = [](const Interval& interval) { return interval.begin.constant() && interval.end.constant(); };
  const bool known = std::all_of(held.begin(), held.end(), is_known) && std::all_of(read.begin(), read.end(), is_known);
  for (int64_t reader = 0; reader < members(); ++reader) {
    // Members hold their parts in order.
    int64_t holder = 0;
    if (known)
      holder =
          std::partition_point(held.begin(), held.end(),
                               [&](const Interval& part) { return end_of(part) <= *read[reader].begin.constant(); }) -
          held.begin();
    for (; holder < members(); ++holder) {
      if (known && *held[holder].begin.constant() >= end_of(read[reader])) break;
      if (holder != reader && !taken(reader, holder).count().is(0)) all.insert(holder - reader);
    }
  }
  return all;
}

Expr Halo::before(int64_t member) const {
  const Interval& all = read[static_cast<size_t>(member)];
  return min(all.end, 0) - min(all.begin, 0);
}

Expr Halo::after(int64_t member) const {
  const Interval& all = read[static_cast<size_t>(member)];
  return max(all.end, size) - max(all.begin, size);
}

Expr halo_elements(const Halo& halo, const Sharding& sharding, size_t dim, const Mesh& mesh) {
  Expr most = 0;
  for (int64_t member = 0; member < halo.members(); ++member) most = max(most, halo.received(member));
  Sharding rows = sharding;
  rows.dims[dim] = {{Part{1, {}}}};
  return most * largest_shard(rows, mesh);
}

namespace {

class Exchange {
 public:
  Exchange(Program& program, Value* value, const Halo& halo, const HaloPlace& place)
      : graph_(*program.graph),
        value_(value),
        halo_(halo),
        place_(place),
        messages_(program, {place.name, "halo", place.axes}),
        me_(member_along(place.axes, program.mesh)) {}

  Value* run() {
    const std::set<int64_t> distances = halo_.distances();
    for (auto distance = distances.rbegin(); distance != distances.rend(); ++distance) send(-*distance);
    const auto behind = distances.upper_bound(0);
    std::for_each(distances.begin(), behind, [&](int64_t distance) { receive(distance); });
    keep();
    std::for_each(behind, distances.end(), [&](int64_t distance) { receive(distance); });
    if (place_.fill) {
      pad([&](int64_t m) { return halo_.before(m); }, true);
      pad([&](int64_t m) { return halo_.after(m); }, false);
    }
    if (pieces_.size() == 1) return pieces_[0];
    Node* joined = graph_.add_node("Concat", pieces_, {place_.name + ".read"});
    joined->set("axis", static_cast<int64_t>(place_.dim));
    Shape shape = value_->shape();
    shape[place_.dim] = by_member(me_, each([&](int64_t m) {
                                    const Interval whole = common({0, halo_.size}, halo_.read[static_cast<size_t>(m)]);
                                    const Expr beyond =
                                        halo_.kept[static_cast<size_t>(m)].count() - halo_.taken(m, m).count();
                                    const Expr padding = place_.fill ? halo_.before(m) + halo_.after(m) : Expr(0);
                                    return whole.count() + beyond + padding;
                                  }));
    joined->outputs[0]->type = {value_->dtype(), std::move(shape)};
    return joined->outputs[0];
  }

 private:
  template <typename Of>
  std::vector<Expr> each(Of of) const {
    std::vector<Expr> values;
    for (int64_t m = 0; m < halo_.members(); ++m) values.push_back(of(m));
    return values;
  }

  static bool all(const std::vector<Expr>& values, int64_t wanted) {
    return std::all_of(values.begin(), values.end(), [&](const Expr& value) { return value.is(wanted); });
  }

  bool is_member(int64_t m) const { return m >= 0 && m < halo_.members(); }

  // For each member, the member at that distance; none for members without a message.
  std::vector<int64_t> peers(int64_t distance, const std::vector<Expr>& counts) const {
    std::vector<int64_t> peers;
    for (int64_t m = 0; m < halo_.members(); ++m)
      peers.push_back(counts[static_cast<size_t>(m)].is(0) ? Messages::nobody : m + distance);
    return peers;
  }

  // Where nothing is taken, any begin is valid; another member's begin keeps the expression short.
  Value* slice(std::vector<Expr> begins, const std::vector<Expr>& counts) {
    const auto takes = [&](size_t m) { return !counts[m].is(0); };
    for (size_t m = 1; m < begins.size(); ++m)
      if (!takes(m)) begins[m] = begins[m - 1];
    for (size_t m = begins.size() - 1; m-- > 0;)
      if (!takes(m)) begins[m] = begins[m + 1];
    const Expr begin = by_member(me_, begins), count = by_member(me_, counts);
    Value* starts = graph_.add_expression(place_.name + ".start", {begin});
    Value* ends = graph_.add_expression(place_.name + ".end", {begin + count});
    Value* axis = graph_.constant_int64({static_cast<int64_t>(place_.dim)});
    Node* node = graph_.add_node("Slice", {value_, starts, ends, axis}, {place_.name + ".piece"});
    node->outputs[0]->type = {value_->dtype(), with_extent(count)};
    return node->outputs[0];
  }

  Shape with_extent(const Expr& extent) const {
    Shape shape = value_->shape();
    shape[place_.dim] = extent;
    return shape;
  }

  Interval message(int64_t reader, int64_t holder) const {
    return is_member(reader) && is_member(holder) ? halo_.taken(reader, holder) : Interval{0, 0};
  }

  // Sends the member at this distance the elements of this one that it reads.
  void send(int64_t distance) {
    const std::vector<Expr> counts = each([&](int64_t m) { return message(m + distance, m).count(); });
    if (all(counts, 0)) return;
    const std::vector<Expr> begins =
        each([&](int64_t m) { return message(m + distance, m).begin - halo_.held[static_cast<size_t>(m)].begin; });
    messages_.send(slice(begins, counts), peers(distance, counts));
  }

  void receive(int64_t distance) {
    const std::vector<Expr> counts = each([&](int64_t m) { return message(m, m + distance).count(); });
    pieces_.push_back(
        messages_.receive({value_->dtype(), with_extent(by_member(me_, counts))}, peers(distance, counts)));
  }

  void keep() {
    const auto at = [](const std::vector<Interval>& intervals, int64_t m) { return intervals[static_cast<size_t>(m)]; };
    const std::vector<Expr> begins = each([&](int64_t m) { return at(halo_.kept, m).begin - at(halo_.held, m).begin; });
    const std::vector<Expr> counts = each([&](int64_t m) { return at(halo_.kept, m).count(); });
    if (all(counts, 0) && !pieces_.empty()) return;
    const std::vector<Expr> lost =
        each([&](int64_t m) { return at(halo_.held, m).count() - at(halo_.kept, m).count(); });
    pieces_.push_back(all(lost, 0) ? value_ : slice(begins, counts));
  }

  template <typename Of>
  void pad(Of of, bool in_front) {
    const std::vector<Expr> counts = each(of);
    if (all(counts, 0)) return;
    const Shape shape = with_extent(by_member(me_, counts));
    Value* extents = graph_.add_expression(place_.name + ".padding_shape", shape);
    Node* node = graph_.add_node("Expand", {place_.fill, extents}, {place_.name + ".padding"});
    node->outputs[0]->type = {value_->dtype(), shape};
    pieces_.insert(in_front ? pieces_.begin() : pieces_.end(), node->outputs[0]);
  }

  Graph& graph_;
  Value* value_;
  const Halo& halo_;
  const HaloPlace& place_;
  Messages messages_;
  Expr me_;
  std::vector<Value*> pieces_;
};

}  // namespace

Value* widened(Program& program, Value* value, const Halo& halo, const HaloPlace& place) {
  return Exchange(program, value, halo, place).run();
}

}  // namespace tessera::spmd
