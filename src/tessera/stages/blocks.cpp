// The chain is seen as its counted operators (products, norms, sums), one behind the other. Cuts lie in the gaps
// between them, at the place where the fewest bytes are alive:
//
//     Gather │ Norm MatMul … MatMul Add │ Norm MatMul … MatMul Add │ Norm MatMul
//              ───────── copy ─────────   ───────── copy ─────────
//     gap              gaps: inside, more is alive than between copies
//
// Runs of copies are found first, the heaviest of all, then the heaviest on either side of it, and so on. What is left
// between them is cut further if it is large (Blocking::divide), and else joined to a neighbour (Blocking::join_small).
#include "tessera/stages/blocks.h"

#include <algorithm>
#include <map>
#include <set>

#include "tessera/stages/repeats.h"

namespace tessera::stages {
namespace {

std::string signature_of(const Node& node) {
  std::string text = node.op_type + " " + node.domain;
  const auto add = [&](const Value* value) { text += value && value->has_shape() ? to_string(value->shape()) : "?"; };
  for (const Value* operand : node.inputs) add(operand);
  text += ">";
  for (const Value* result : node.outputs) add(result);
  return text;
}

// The counted operators of a chain. "Gap g" is what comes between operators g and g + 1, with operator g.
struct Counted {
  std::vector<int> kinds;       // equal for operators that look alike
  std::vector<double> seconds;  // with the nodes up to the next one; the first also with those before it
  std::vector<int> weighted;    // 1: reads a matrix of parameters
  std::vector<int> cut;         // by gap, the place after which to cut
  std::vector<double> price;    // the bytes alive there

  size_t size() const { return kinds.size(); }
};

Counted counted_of(const Chain& chain, const OneBatch& batch, const Roles& roles, const Measure& measure) {
  Counted counted;
  std::map<std::string, int> kinds;
  double before = 0;
  for (int p = 0; p < chain.size(); ++p) {
    const int index = chain.nodes[static_cast<size_t>(p)];
    const double alive = chain.alive[static_cast<size_t>(p)], seconds = measure.seconds(batch.node(index));
    if (is_counted(batch.node(index))) {
      const auto& operands = batch.operands(index);
      const bool weighted = std::any_of(operands.begin(), operands.end(), [&](const OneBatch::Operand& operand) {
        const bool parameter = operand.made_by < 0 ? operand.value->kind == ValueKind::state
                                                   : roles.of[static_cast<size_t>(operand.made_by)] == Role::weights;
        return parameter && (!operand.value->has_shape() || operand.value->rank() > 1);
      });
      counted.kinds.push_back(
          kinds.emplace(signature_of(batch.node(index)), static_cast<int>(kinds.size())).first->second);
      counted.seconds.push_back(seconds + before);
      counted.weighted.push_back(weighted);
      counted.cut.push_back(p);
      counted.price.push_back(alive);
      before = 0;
    } else if (counted.size() == 0) {
      before += seconds;
    } else {
      counted.seconds.back() += seconds;
      if (alive <= counted.price.back()) {
        counted.price.back() = alive;
        counted.cut.back() = p;
      }
    }
  }
  return counted;
}

// Counted operators [begin, end).
struct Piece {
  size_t begin = 0, end = 0;
  bool whole = false;  // a copy of a run, which is a block
};

class Blocking {
 public:
  explicit Blocking(const Counted& counted)
      : counted_(counted), seconds_(counted.size() + 1), weighted_(counted.size() + 1) {
    for (size_t i = 0; i < counted.size(); ++i) {
      seconds_[i + 1] = seconds_[i] + counted.seconds[i];
      weighted_[i + 1] = weighted_[i] + counted.weighted[i];
    }
  }

  // The gaps at which to cut.
  std::vector<size_t> run() {
    const size_t all = counted_.size();
    if (const auto main = run_in(0, all); main && is_main(*main)) {
      least_seconds_ = seconds(main->begin, main->end()) / static_cast<double>(main->count) / 2;
      least_weighted_ = weighted(main->begin, main->begin + main->period) / 2.0;
      divide_around(*main, 0, all);
    } else {
      constexpr double kLeastShare = 1.0 / 64;
      least_seconds_ = kLeastShare * seconds(0, all);
      divide(0, all);
    }
    join_small();
    std::vector<size_t> gaps;
    for (size_t p = 0; p + 1 < pieces_.size(); ++p) gaps.push_back(pieces_[p].end - 1);
    return gaps;
  }

 private:
  double seconds(size_t begin, size_t end) const { return seconds_[end] - seconds_[begin]; }
  int weighted(size_t begin, size_t end) const { return weighted_[end] - weighted_[begin]; }

  std::optional<Run> run_in(size_t begin, size_t end) const {
    return heaviest_run(counted_.kinds, counted_.seconds, begin, end, [&](size_t gap) { return counted_.price[gap]; });
  }

  // Layers repeat, but so do the three products for queries, keys and values of a single layer.
  bool is_main(const Run& run) const {
    const double share = seconds(run.begin, run.end()) / seconds(0, counted_.size());
    const int products = weighted(run.begin, run.begin + run.period);
    constexpr double kMost = 0.5, kMuch = 0.2;
    return products >= 1 && (share >= kMost || (products >= 2 && share >= kMuch));
  }

  bool is_large(size_t begin, size_t end) const {
    constexpr double kAlmost = 1 - 1e-9;
    return seconds(begin, end) >= least_seconds_ * kAlmost && weighted(begin, end) >= least_weighted_;
  }

  void divide_around(const Run& run, size_t begin, size_t end) {
    divide_further(begin, run.begin);
    for (size_t copy = 0; copy < run.count; ++copy)
      pieces_.push_back({run.begin + copy * run.period, run.begin + (copy + 1) * run.period, true});
    divide_further(run.end(), end);
  }

  void divide_further(size_t begin, size_t end) {
    if (begin == end) return;
    const auto run = run_in(begin, end);
    if (run && is_large(run->begin, run->begin + run->period))
      divide_around(*run, begin, end);
    else
      divide(begin, end);
  }

  // Cuts where the fewest bytes are alive, as long as both sides are large; of equal places at the last, so that a norm
  // or a pool goes with what it is computed from. A cut that is dearer than both neighbours is inside something.
  void divide(size_t begin, size_t end) {
    std::vector<size_t> gaps;
    for (size_t gap = end - 1; gap-- > begin;) gaps.push_back(gap);
    std::stable_sort(gaps.begin(), gaps.end(),
                     [&](size_t a, size_t b) { return counted_.price[a] < counted_.price[b]; });
    std::set<size_t> ends = {end};  // one behind a gap that is cut
    constexpr double kInside = 1.5;
    for (size_t gap : gaps) {
      const auto after = ends.upper_bound(gap + 1);
      const bool first = after == ends.begin(), last = *after == end;
      const size_t from = first ? begin : *std::prev(after);
      if (!is_large(from, gap + 1) || !is_large(gap + 1, *after)) continue;
      const double before_price = from == 0 ? counted_.price[gap] : counted_.price[from - 1];
      const double after_price = last && end == counted_.size() ? counted_.price[gap] : counted_.price[*after - 1];
      if (counted_.price[gap] > kInside * std::max(before_price, after_price)) continue;
      ends.insert(gap + 1);
    }
    size_t from = begin;
    for (size_t to : ends) {
      pieces_.push_back({from, to});
      from = to;
    }
  }

  void join_small() {
    for (size_t p = 0; p < pieces_.size() && pieces_.size() > 1;) {
      const Piece piece = pieces_[p];
      if (piece.whole || is_large(piece.begin, piece.end)) {
        ++p;
        continue;
      }
      const bool first = p == 0, last = p + 1 == pieces_.size();
      const bool to_left = last || (!first && counted_.price[piece.begin - 1] >= counted_.price[piece.end - 1]);
      if (to_left)
        pieces_[p - 1].end = piece.end;
      else
        pieces_[p + 1].begin = piece.begin;
      pieces_.erase(pieces_.begin() + static_cast<ptrdiff_t>(p));
    }
  }

  const Counted& counted_;
  std::vector<double> seconds_;  // of the operators before
  std::vector<int> weighted_;
  double least_seconds_ = 0, least_weighted_ = 1;  // of a piece that is a block
  std::vector<Piece> pieces_;
};

}  // namespace

std::vector<int> find_blocks(const Chain& chain, const OneBatch& batch, const Roles& roles, const Measure& measure) {
  std::vector<int> ends;
  if (chain.size() == 0) return ends;
  const Counted counted = counted_of(chain, batch, roles, measure);
  if (counted.size() > 0)
    for (size_t gap : Blocking(counted).run()) ends.push_back(counted.cut[gap]);
  ends.push_back(chain.size() - 1);
  return ends;
}

}  // namespace tessera::stages
