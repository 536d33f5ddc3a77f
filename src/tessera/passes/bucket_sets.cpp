#include "tessera/passes/bucket_sets.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <set>

#include "tessera/base/error.h"
#include "tessera/ir/collective.h"
#include "tessera/spmd/collective_attributes.h"
#include "tessera/spmd/partition/specialize.h"

namespace tessera::passes {
namespace {

using spmd::Program;

constexpr size_t kMostNodes = 32;  // that a bucket may move

/// A set of communications, by number.
class Bits {
 public:
  explicit Bits(size_t size = 0) : words_((size + 63) / 64) {}
  void add(size_t bit) {
    words_[bit / 64] |= uint64_t{1} << bit % 64;
    first_ = std::min(first_, bit / 64);
    end_ = std::max(end_, bit / 64 + 1);
  }
  void add(const Bits& other) {
    for (size_t w = other.first_; w < other.end_; ++w) words_[w] |= other.words_[w];
    first_ = std::min(first_, other.first_);
    end_ = std::max(end_, other.end_);
  }
  bool has(size_t bit) const { return (words_[bit / 64] >> bit % 64 & 1) != 0; }
  bool meets(const Bits& other) const {
    for (size_t w = std::max(first_, other.first_); w < std::min(end_, other.end_); ++w)
      if ((words_[w] & other.words_[w]) != 0) return true;
    return false;
  }
  bool within(const Bits& other) const {
    for (size_t w = first_; w < end_; ++w)
      if ((words_[w] & ~other.words_[w]) != 0) return false;
    return true;
  }

 private:
  std::vector<uint64_t> words_;
  size_t first_ = std::numeric_limits<size_t>::max(), end_ = 0;  // the words outside are zero
};

/// A communication of the program.
struct Candidate {
  int node = 0;
  int key = -1;      // equal for those that may share a bucket; -1: it joins none
  size_t turn = 0;   // among those of its key
  double bytes = 0;  // of the whole tensor
  double most = 0;   // of its bucket
  Bits later;        // communications that depend on it, or on a member of its bucket
  bool taken = false;
};

class Sets {
 public:
  Sets(const Program& program, const Dependences& dependences, const BucketBytes& most)
      : program_(program), dependences_(dependences), before_(dependences.nodes.size()) {
    for (size_t node = 0; node < before_.size(); ++node)
      for (int later : dependences.after[node]) before_[later].push_back(static_cast<int>(node));
    for (size_t node = 0; node < before_.size(); ++node)
      if (dependences.nodes[node]->domain == spmd::kCommDomain) add_candidate(static_cast<int>(node), most);
    find_later();
  }

  std::vector<BucketSet> run() {
    std::vector<BucketSet> sets;
    for (size_t first = 0; first < candidates_.size(); ++first) {
      BucketSet set = from(first);
      if (set.members.size() > 1) sets.push_back(std::move(set));
    }
    return sets;
  }

 private:
  double bytes_of(const Value* value) const {
    if (!value || !value->has_shape()) return 0;
    return spmd::hinted(product(value->shape()), program_.hints) * bits_of(value->dtype()) / 8;
  }

  // Of all operands and results.
  double bytes_around(const Node& node) const {
    double bytes = 0;
    for (const auto* values : {&node.inputs, &node.outputs})
      for (const Value* value : *values) bytes += bytes_of(value);
    return bytes;
  }

  void add_candidate(int node, const BucketBytes& most) {
    const Node& collective = *dependences_.nodes[node];
    Candidate& candidate = candidates_.emplace_back();
    candidate.node = node;
    const auto kind = spmd::communication_of(collective);
    if (!kind || !traits_of(*kind).joins || !collective.input(0)) return;
    if (bits_of(collective.input(0)->dtype()) % 8 != 0) return;
    candidate.bytes = std::max(bytes_of(collective.input(0)), bytes_of(collective.output(0)));
    const spmd::CollectiveAttributes says = spmd::read_collective(collective, program_.mesh);
    candidate.most = most(says.axes);
    if (candidate.bytes > candidate.most) return;
    std::string key = fmt::format("{} {} {} {}", collective.op_type, fmt::join(says.axes, ","), name_of(says.reduction),
                                  name_of(collective.input(0)->dtype()));
    const auto place = spmd::place_of(program_, collective);
    if (place) key += " " + print_place(*place, program_.mesh);
    if (const std::string cell = collective.seat.cell(); !cell.empty()) key += " " + cell;
    candidate.key = keys_.emplace(std::move(key), static_cast<int>(keys_.size())).first->second;
    of_key_.resize(keys_.size());
    candidate.turn = of_key_[candidate.key].size();
    of_key_[candidate.key].push_back(candidates_.size() - 1);
  }

  // The dependences between communications, from the last node to the first. A node's set is dropped when the first
  // node that it waits for has read it.
  void find_later() {
    std::vector<int> number_of(before_.size(), -1);
    for (size_t s = 0; s < candidates_.size(); ++s) number_of[candidates_[s].node] = static_cast<int>(s);
    std::vector<Bits> later(before_.size());
    for (int node = static_cast<int>(before_.size()) - 1; node >= 0; --node) {
      Bits bits(candidates_.size());
      for (int reader : dependences_.after[node]) {
        bits.add(number_of[reader] < 0 ? later[reader] : candidates_[number_of[reader]].later);
        if (number_of[reader] >= 0) bits.add(static_cast<size_t>(number_of[reader]));
      }
      for (int reader : dependences_.after[node])
        if (before_[reader].front() == node) later[reader] = Bits();
      (number_of[node] < 0 ? later[node] : candidates_[number_of[node]].later) = std::move(bits);
    }
  }

  // The bucket that begins with this communication; only the communication itself if no other joins.
  BucketSet from(size_t first) {
    Candidate& opening = candidates_[first];
    BucketSet set{{opening.node}, opening.node, {}};
    if (opening.taken || opening.key < 0) return set;
    std::vector<size_t> members = {first};
    Bits in_bucket(candidates_.size());
    in_bucket.add(first);
    double bytes = opening.bytes, left = 0, run_early = 0;
    std::set<int> early;
    const std::vector<size_t>& alike = of_key_[opening.key];
    for (size_t turn = opening.turn + 1; turn < alike.size(); ++turn) {
      const size_t next = alike[turn];
      const Candidate& candidate = candidates_[next];
      if (candidate.taken) continue;
      if (bytes + candidate.bytes > opening.most) {
        left += candidate.bytes;
        if (left > opening.most) break;
        continue;
      }
      const bool depends = candidate.later.meets(in_bucket) ||
                           std::any_of(members.begin(), members.end(),
                                       [&](size_t member) { return candidates_[member].later.has(next); });
      if (depends) continue;
      if (!comes_forward(candidate, set.place, opening.most, early, run_early)) {
        const bool may_wait = std::all_of(members.begin(), members.end(), [&](size_t member) {
          return candidates_[member].later.within(candidate.later);
        });
        if (!may_wait || !little_waits(set.members, candidate.node, opening.most)) continue;
        set.place = candidate.node;
      }
      members.push_back(next);
      in_bucket.add(next);
      set.members.push_back(candidate.node);
      bytes += candidate.bytes;
    }
    set.early.assign(early.begin(), early.end());
    if (members.size() > 1) join(members, in_bucket);
    return set;
  }

  // Whether little would have to wait if these nodes ran at the place: what depends on them and came before it.
  bool little_waits(const std::vector<int>& nodes, int place, double most) const {
    std::set<int> waiting;
    std::vector<int> open = nodes;
    double bytes = 0;
    while (!open.empty()) {
      const int node = open.back();
      open.pop_back();
      for (int later : dependences_.after[node]) {
        if (later >= place || !waiting.insert(later).second) continue;
        bytes += bytes_around(*dependences_.nodes[later]);
        if (bytes > most || waiting.size() > kMostNodes) return false;
        open.push_back(later);
      }
    }
    return true;
  }

  // Whether little must run before the place to compute the operand of this collective; adds these nodes to `early`,
  // and their bytes to `run_early`.
  bool comes_forward(const Candidate& candidate, int place, double most, std::set<int>& early,
                     double& run_early) const {
    std::set<int> needed;
    std::vector<int> open = {candidate.node};
    double bytes = run_early;
    while (!open.empty()) {
      const int node = open.back();
      open.pop_back();
      for (int maker : before_[node]) {
        if (maker <= place || early.contains(maker) || !needed.insert(maker).second) continue;
        const Node& made = *dependences_.nodes[maker];
        bytes += bytes_around(made);
        if (made.domain == spmd::kCommDomain || bytes > most || needed.size() > kMostNodes) return false;
        open.push_back(maker);
      }
    }
    early.insert(needed.begin(), needed.end());
    run_early = bytes;
    return true;
  }

  // From now on, what depends on one member depends on all.
  void join(const std::vector<size_t>& members, const Bits& in_bucket) {
    Bits later(candidates_.size());
    for (size_t member : members) later.add(candidates_[member].later);
    for (Candidate& candidate : candidates_)
      if (candidate.later.meets(in_bucket)) {
        candidate.later.add(later);
        candidate.later.add(in_bucket);
      }
    for (size_t member : members) {
      candidates_[member].later = later;
      candidates_[member].taken = true;
    }
  }

  const Program& program_;
  const Dependences& dependences_;
  std::vector<std::vector<int>> before_;  // by node: those that it waits for, ascending
  std::vector<Candidate> candidates_;     // in the order of their nodes
  std::map<std::string, int> keys_;
  std::vector<std::vector<size_t>> of_key_;  // candidates, in order
};

}  // namespace

std::vector<BucketSet> bucket_sets(const Program& program, const Dependences& dependences, const BucketBytes& most) {
  return Sets(program, dependences, most).run();
}

std::vector<Node*> in_buckets(const Dependences& dependences, const std::vector<BucketSet>& buckets) {
  // A unit is a node or a bucket. The next unit is the first in order among those that wait for none; the nodes that a
  // bucket needs early come before it.
  struct Turn {
    int at = 0;
    bool bucket = false;
    int unit = 0;
    auto operator<=>(const Turn&) const = default;
  };
  const auto count = static_cast<int>(dependences.nodes.size());
  std::vector<int> unit_of(count);
  std::vector<Turn> turns;
  for (int node = 0; node < count; ++node) {
    unit_of[node] = node;
    turns.push_back({node, false, node});
  }
  for (const BucketSet& bucket : buckets) {
    const auto unit = static_cast<int>(turns.size());
    turns.push_back({bucket.place, true, unit});
    for (int member : bucket.members) unit_of[member] = unit;
    for (int node : bucket.early) turns[node].at = std::min(turns[node].at, bucket.place);
  }
  std::vector<int> missing(turns.size());
  for (int node = 0; node < count; ++node)
    for (int later : dependences.after[node]) ++missing[unit_of[later]];
  std::set<Turn> ready;
  const auto offer = [&](int unit) {
    if (missing[unit] == 0 && (unit >= count || unit_of[unit] == unit)) ready.insert(turns[unit]);
  };
  for (size_t unit = 0; unit < turns.size(); ++unit) offer(static_cast<int>(unit));
  std::vector<Node*> order;
  while (!ready.empty()) {
    const int unit = ready.begin()->unit;
    ready.erase(ready.begin());
    const std::vector<int> nodes = unit < count ? std::vector{unit} : buckets[unit - count].members;
    for (int node : nodes) order.push_back(dependences.nodes[node]);
    for (int node : nodes)
      for (int later : dependences.after[node])
        if (--missing[unit_of[later]] == 0) offer(unit_of[later]);
  }
  check(order.size() == dependences.nodes.size(), "buckets make no cycle");
  return order;
}

}  // namespace tessera::passes
