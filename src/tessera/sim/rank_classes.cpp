#include "tessera/sim/rank_classes.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/dialect/schema.h"
#include "tessera/mesh/axis_use.h"
#include "tessera/mesh/group.h"
#include "tessera/spmd/collective_attributes.h"
#include "tessera/spmd/partition/held_part.h"
#include "tessera/spmd/program.h"

namespace tessera::sim {
namespace {

using Colors = std::vector<int>;  // by rank

// Numbers keys; equal keys have equal numbers.
template <typename Key>
class Numbers {
 public:
  int of(const Key& key) { return numbers_.emplace(key, static_cast<int>(numbers_.size())).first->second; }

 private:
  std::map<Key, int> numbers_;
};

// Whom the programs' ranks communicate with, each kind of group or message once.
struct Meetings {
  std::set<std::vector<std::string>> groups;                     // axes
  std::set<std::pair<std::vector<std::string>, int64_t>> roots;  // axes, member
  std::set<std::pair<std::vector<std::string>, std::vector<int64_t>>> permutations;
  std::map<std::string, Expr> peers;  // of messages, by their text
};

void add_meetings(Meetings& meetings, const Graph& graph, const Mesh& mesh) {
  for (const auto& node : graph.nodes()) {
    if (!spmd::communication_of(*node)) continue;
    const spmd::CollectiveAttributes collective = spmd::read_collective(*node, mesh);
    const CollectiveTraits& traits = traits_of(collective.kind);
    if (traits.message) {
      const Expr peer = dialect::peer_of(*node);
      meetings.peers.emplace(peer.str(), peer);
      continue;
    }
    meetings.groups.insert(collective.axes);
    if (traits.root != RootRole::none) meetings.roots.emplace(collective.axes, collective.root);
    if (collective.kind == Collective::permute) meetings.permutations.emplace(collective.axes, collective.targets);
  }
}

class Refinement {
 public:
  Refinement(const runtime::RankPrograms& programs, const Symbols& sizes) : mesh_(programs.mesh()), sizes_(sizes) {
    for (const auto& program : programs.programs) add_meetings(meetings_, *program->graph, mesh_);
    for (const std::vector<std::string>& axes : meetings_.groups) add_groups(axes);
    for (int rank = 0; rank < ranks(); ++rank) coordinates_.push_back(mesh_.coordinates(rank));
    for (const auto& [text, peer] : meetings_.peers) peers_.push_back(on_ranks(peer));
  }

  // By what a machine program depends on but for the peers of messages: the program, extents that differ from rank to
  // rank, outputs that the rank stores, and the collectives whose root it is.
  Colors bound(const runtime::RankPrograms& programs) const {
    std::vector<std::vector<double>> values(static_cast<size_t>(ranks()));
    for (int rank = 0; rank < ranks(); ++rank) {
      std::vector<double>& own = values[static_cast<size_t>(rank)];
      const std::vector<int64_t>& coordinates = coordinates_[static_cast<size_t>(rank)];
      const spmd::Program& program = programs.of(rank);
      own.push_back(programs.program_of.empty() ? 0 : programs.program_of[static_cast<size_t>(rank)]);
      for (const spmd::Port& output : program.outputs)
        if (output.value) own.push_back(spmd::writes_part(program, output.value, coordinates));
    }
    for (const Expr& extent : extents_of(programs)) {
      const std::vector<double> extents = on_ranks(extent);
      for (size_t rank = 0; rank < extents.size(); ++rank) values[rank].push_back(extents[rank]);
    }
    for (const auto& [axes, root] : meetings_.roots)
      for (const std::vector<int>& group : groups_.at(axes))
        for (size_t m = 0; m < group.size(); ++m)
          values[static_cast<size_t>(group[m])].push_back(m == static_cast<size_t>(root));
    for (const auto& [axes, targets] : meetings_.permutations) {
      std::vector<bool> receives(targets.size());
      for (const int64_t target : targets)
        if (target >= 0) receives[static_cast<size_t>(target)] = true;
      for (const std::vector<int>& group : groups_.at(axes))
        for (size_t m = 0; m < group.size(); ++m)
          values[static_cast<size_t>(group[m])].push_back((targets[m] < 0 ? 0 : 2) + (receives[m] ? 1 : 0));
    }
    Numbers<std::vector<double>> numbers;
    Colors colors;
    for (const std::vector<double>& each : values) colors.push_back(numbers.of(each));
    return colors;
  }

  bool has_messages() const { return !meetings_.peers.empty(); }
  bool has_permutations() const { return !meetings_.permutations.empty(); }

  // The coarsest stable partition; or one with more than `most` colors on the way to it.
  Colors stable(Colors colors, bool whole_permutations, int most) const {
    for (int before = 0, now = count(colors); now > before && now <= most; now = count(colors)) {
      before = now;
      colors = refined(colors, whole_permutations);
    }
    return colors;
  }

  static int count(const Colors& colors) { return *std::max_element(colors.begin(), colors.end()) + 1; }

 private:
  // Ranks of one color keep a common color if those that they communicate with have equal colors.
  Colors refined(const Colors& colors, bool whole_permutations) const {
    std::vector<std::vector<int>> seen(colors.size());
    for (size_t r = 0; r < colors.size(); ++r) seen[r].push_back(colors[r]);
    for (const auto& [axes, groups] : groups_) add_groups_seen(groups, colors, seen);
    if (!whole_permutations)
      for (const auto& [axes, targets] : meetings_.permutations)
        for (const std::vector<int>& group : groups_.at(axes)) add_permutation(group, targets, colors, seen);
    for (const std::vector<double>& peers : peers_)
      for (size_t rank = 0; rank < peers.size(); ++rank) seen[rank].push_back(color_of_peer(peers[rank], colors));
    Numbers<std::vector<int>> numbers;
    Colors refined;
    for (const std::vector<int>& each : seen) refined.push_back(numbers.of(each));
    return refined;
  }

  int ranks() const { return static_cast<int>(mesh_.size()); }

  void add_groups(const std::vector<std::string>& axes) {
    std::vector<std::vector<int>>& groups = groups_[axes];
    const std::vector<AxisRef> parsed = parse_axes(axes, mesh_);
    std::vector<bool> known(static_cast<size_t>(ranks()));
    for (int rank = 0; rank < ranks(); ++rank) {
      if (known[static_cast<size_t>(rank)]) continue;
      groups.push_back(group_of(rank, parsed, mesh_));
      for (int member : groups.back()) known[static_cast<size_t>(member)] = true;
    }
  }

  std::vector<Expr> extents_of(const runtime::RankPrograms& programs) const {
    std::map<std::string, Expr> extents;
    for (const auto& program : programs.programs)
      for (const auto& value : program->graph->values())
        for (const Expr& extent : value->shape())
          if (extent.mentions_axes()) extents.emplace(extent.str(), extent);
    std::vector<Expr> all;
    for (const auto& [text, extent] : extents) all.push_back(extent);
    return all;
  }

  static void add_groups_seen(const std::vector<std::vector<int>>& groups, const Colors& colors,
                              std::vector<std::vector<int>>& seen) {
    Numbers<std::vector<int>> numbers;
    for (const std::vector<int>& group : groups) {
      std::vector<int> members;
      for (int member : group) members.push_back(colors[static_cast<size_t>(member)]);
      std::sort(members.begin(), members.end());
      const int number = numbers.of(members);
      for (int member : group) seen[static_cast<size_t>(member)].push_back(number);
    }
  }

  static void add_permutation(const std::vector<int>& group, const std::vector<int64_t>& targets, const Colors& colors,
                              std::vector<std::vector<int>>& seen) {
    std::vector<int> from(group.size(), -1), to(group.size(), -1);
    for (size_t m = 0; m < group.size(); ++m) {
      if (targets[m] < 0) continue;
      to[m] = colors[static_cast<size_t>(group[static_cast<size_t>(targets[m])])];
      from[static_cast<size_t>(targets[m])] = colors[static_cast<size_t>(group[m])];
    }
    for (size_t m = 0; m < group.size(); ++m) {
      seen[static_cast<size_t>(group[m])].push_back(from[m]);
      seen[static_cast<size_t>(group[m])].push_back(to[m]);
    }
  }

  // The values of an expression, by rank. It is evaluated once for all ranks whose indices along the axes that it
  // mentions are equal.
  std::vector<double> on_ranks(const Expr& expr) const {
    const std::vector<size_t> axes = mentioned_axes({expr}, mesh_);
    std::map<std::vector<int64_t>, double> known;  // by the indices along these axes
    std::vector<double> values;
    for (const std::vector<int64_t>& coordinates : coordinates_) {
      std::vector<int64_t> indices;
      for (const size_t axis : axes) indices.push_back(coordinates[axis]);
      const auto [value, fresh] = known.try_emplace(std::move(indices));
      if (fresh) value->second = spmd::hinted(bind_rank(expr, mesh_, coordinates), sizes_);
      values.push_back(value->second);
    }
    return values;
  }

  static int color_of_peer(double found, const Colors& colors) {
    return found < 0 || found >= static_cast<double>(colors.size()) ? -1 : colors[static_cast<size_t>(found)];
  }

  const Mesh& mesh_;
  const Symbols& sizes_;
  Meetings meetings_;
  std::vector<std::vector<int64_t>> coordinates_;  // by rank
  std::vector<std::vector<double>> peers_;         // by message and rank
  std::map<std::vector<std::string>, std::vector<std::vector<int>>> groups_;
};

// Counts the ranks of each class, and finds its first.
RankClasses of_colors(Colors colors) {
  RankClasses classes;
  classes.of = std::move(colors);
  const auto count = static_cast<size_t>(Refinement::count(classes.of));
  classes.first.assign(count, -1);
  classes.count.assign(count, 0);
  for (size_t rank = 0; rank < classes.of.size(); ++rank) {
    int& first = classes.first[static_cast<size_t>(classes.of[rank])];
    if (first < 0) first = static_cast<int>(rank);
    ++classes.count[static_cast<size_t>(classes.of[rank])];
  }
  return classes;
}

}  // namespace

RankClasses classes_of(const runtime::RankPrograms& programs, const Symbols& sizes, const std::map<int, double>& slow) {
  const Refinement refinement(programs, sizes);
  const Colors bound = refinement.bound(programs);
  Numbers<std::pair<int, double>> numbers;
  Colors colors;
  for (size_t rank = 0; rank < bound.size(); ++rank) {
    const auto factor = slow.find(static_cast<int>(rank));
    colors.push_back(numbers.of({bound[rank], factor == slow.end() ? 1 : factor->second}));
  }
  const auto stable = [&](bool whole, int most) { return refinement.stable(colors, whole, most); };
  constexpr int kAny = std::numeric_limits<int>::max();
  Colors found = stable(false, refinement.has_permutations() ? kMostClasses : kAny);
  const bool whole = refinement.has_permutations() && Refinement::count(found) > kMostClasses;
  RankClasses classes = of_colors(whole ? stable(true, kAny) : std::move(found));
  classes.whole_permutations = whole;
  std::map<int, int> class_of_bound;
  for (size_t c = 0; c < classes.first.size(); ++c) {
    const int color = bound[static_cast<size_t>(classes.first[c])];
    const auto own = static_cast<int>(c);
    const bool names_peers =
        refinement.has_messages() || (refinement.has_permutations() && !classes.whole_permutations);
    classes.bound_like.push_back(names_peers ? own : class_of_bound.emplace(color, own).first->second);
  }
  return classes;
}

RankClasses similar_classes_of(const runtime::RankPrograms& programs, const Symbols& sizes,
                               const std::map<int, double>& slow) {
  if (!programs.program_of.empty() || !slow.empty() || Refinement(programs, sizes).has_messages())
    return classes_of(programs, sizes, slow);
  RankClasses classes = of_colors(Colors(static_cast<size_t>(programs.mesh().size()), 0));
  classes.bound_like = {0};
  return classes;
}

RankClasses single_ranks(int64_t ranks) {
  RankClasses classes;
  classes.of.resize(static_cast<size_t>(ranks));
  std::iota(classes.of.begin(), classes.of.end(), 0);
  classes.first = classes.of;
  classes.count.assign(classes.of.size(), 1);
  classes.bound_like = classes.of;
  return classes;
}

}  // namespace tessera::sim
