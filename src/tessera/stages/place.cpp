// Where the nodes of the backward pass go. Here x is computed at stage 1 and read at stages 1 and 2, dz comes from
// stage 3:
//
//     mask = Greater(x, 0)   dx = Mul(dz, mask)      dx: the largest stage up to 3 that has x, 2; mask: as dx
//
// A value of the forward pass is there where it is computed, and where the forward pass reads it.
#include "tessera/stages/place.h"

#include <algorithm>
#include <limits>

#include "tessera/stages/totals.h"

namespace tessera::stages {
namespace {

constexpr int kNone = -1;  // no stage
constexpr int kOpen = -2;  // a stage that readers decide
constexpr int kMany = -3;  // several

// Stages at which something is there, ascending; or all.
struct There {
  bool everywhere = true;
  std::vector<int> stages;

  bool at(int stage) const { return everywhere || std::binary_search(stages.begin(), stages.end(), stage); }
  /// The largest up to a stage; kNone: there is none.
  int last_until(int stage) const {
    if (everywhere) return stage;
    const auto after = std::upper_bound(stages.begin(), stages.end(), stage);
    return after == stages.begin() ? kNone : *std::prev(after);
  }
  void meet(const There& other) {
    if (other.everywhere) return;
    if (everywhere) {
      *this = other;
      return;
    }
    std::erase_if(stages, [&](int stage) { return !other.at(stage); });
  }
};

// What a node of the backward pass reads.
struct Reads {
  There all;  // where everything is there that does not come from the backward pass
  struct Piece {
    There there;
    double bytes;
  };
  std::vector<Piece> pieces;
  bool states = false;  // states that are where their readers are, as moments
  int behind = kNone;   // the last stage of the forward pass that it depends on
  // Stages of gradients. Scalars count only where there is nothing else.
  int first = std::numeric_limits<int>::max(), last = kNone, first_scalar = std::numeric_limits<int>::max();

  bool has_gradients() const { return last >= 0; }
  int from(int otherwise) const {
    constexpr int kNever = std::numeric_limits<int>::max();
    return first != kNever ? first : first_scalar != kNever ? first_scalar : otherwise;
  }
};

class Placing {
 public:
  Placing(const Graph& graph, const OneBatch& batch, const Roles& roles, const Measure& measure,
          const std::vector<int>& of_chain)
      : graph_(graph),
        batch_(batch),
        roles_(roles),
        measure_(measure),
        totals_(totals_of(graph, batch, roles, measure)),
        stage_(of_chain),
        open_(of_chain.size()),
        behind_(of_chain.size(), kNone) {}

  std::vector<int> run() {
    place_weights();
    for (int i = 0; i < batch_.size(); ++i) {
      if (roles_.is_staged(i)) loss_ = std::max(loss_, stage_[at(i)]);
    }
    place_others();
    find_homes();
    const std::vector<int> before = stage_;
    before_ = &before;
    place_others();
    for (int i = batch_.size() - 1; i >= 0; --i) {
      move_to_readers(i);
      settle_free(i);
    }
    return std::move(stage_);
  }

 private:
  static size_t at(int node) { return static_cast<size_t>(node); }

  void place_weights() {
    for (int i = batch_.size() - 1; i >= 0; --i) {
      if (roles_.of[at(i)] != Role::weights) continue;
      int first = std::numeric_limits<int>::max();
      for (int reader : batch_.readers(i))
        if (roles_.is_staged(reader)) first = std::min(first, stage_[at(reader)]);
      stage_[at(i)] = first == std::numeric_limits<int>::max() ? 0 : first;  // it is an output
    }
  }

  void place_others() {
    for (int i = 0; i < batch_.size(); ++i)
      if (!roles_.is_forward(i)) stage_[at(i)] = placed(i);
    for (int i = batch_.size() - 1; i >= 0; --i)
      if (stage_[at(i)] == kOpen) stage_[at(i)] = as_readers(i);
  }

  // A node has a home if it is needed for the next values of parameters that are all used at one stage first.
  void find_homes() {
    const auto meet = [](int& home, int other) {
      if (other != kNone) home = home == kNone || home == other ? other : kMany;
    };
    home_.assign(stage_.size(), kNone);
    for (const auto& state : graph_.values()) {
      if (!state->next) continue;
      const There where = there(*state);
      const int maker = batch_.maker(batch_.first(state->next));
      if (!where.everywhere && maker >= 0) meet(home_[at(maker)], where.stages.front());
    }
    for (int i = batch_.size() - 1; i >= 0; --i)
      for (int reader : batch_.readers(i))
        if (totals_.kind(reader) == Totals::Kind::none) meet(home_[at(i)], home_[at(reader)]);
  }

  // Whether a value of the backward pass is at a stage in any case.
  bool is_sent_to(int stage, const Value& value, int maker, int except) const {
    const std::vector<int>& stages = before_ ? *before_ : stage_;
    if (stages[at(maker)] == stage) return true;
    const auto& readers = batch_.readers(maker);
    return std::any_of(readers.begin(), readers.end(), [&](int reader) {
      if (reader == except || stages[at(reader)] != stage) return false;
      const auto& operands = batch_.operands(reader);
      return std::any_of(operands.begin(), operands.end(), [&](const auto& each) { return each.value == &value; });
    });
  }

  // Where a node goes that reads only gradients: to its home, if they are there in any case.
  int towards_home(int node, int from) const {
    const int home = before_ ? home_[at(node)] : kNone;
    if (home < 0 || home >= from) return from;
    bool any = false;  // scalars alone do not draw a node away from the large values that its readers read
    for (const auto& [value, made_by] : batch_.operands(node)) {
      if (made_by < 0 || roles_.is_forward(made_by) || stage_[at(made_by)] < 0 || measure_.is_scalar(*value)) continue;
      if (stage_[at(made_by)] > home && !is_sent_to(home, *value, made_by, node)) return from;
      any = true;
    }
    return any ? home : from;
  }

  // Of a value of the forward pass, or a parameter.
  There there(const Value& value) const {
    There where;
    const int maker = batch_.maker(&value);
    if (maker >= 0) where.stages.push_back(stage_[at(maker)]);
    for (const Use& use : value.uses) {
      const int reader = batch_.index_of(*use.node);
      if (reader >= 0 && roles_.is_staged(reader)) where.stages.push_back(stage_[at(reader)]);
    }
    std::sort(where.stages.begin(), where.stages.end());
    where.stages.erase(std::unique(where.stages.begin(), where.stages.end()), where.stages.end());
    where.everywhere = where.stages.empty();
    return where;
  }

  void add(Reads& reads, There where, const Value& value) const {
    if (where.everywhere) return;
    reads.all.meet(where);
    reads.pieces.push_back({std::move(where), measure_.bytes(value)});
  }

  Reads reads_of(int node) const {
    Reads reads;
    for (const auto& [value, made_by] : batch_.operands(node)) {
      if (made_by < 0) {
        if (value->kind != ValueKind::state) continue;
        There where = there(*value);
        const bool forward = std::any_of(value->uses.begin(), value->uses.end(), [&](const Use& use) {
          const int reader = batch_.index_of(*use.node);
          return reader >= 0 && roles_.is_forward(reader);
        });
        reads.states = reads.states || (!forward && value->data.count() > 1);
        add(reads, std::move(where), *value);
      } else if (roles_.is_staged(made_by)) {
        reads.behind = std::max(reads.behind, stage_[at(made_by)]);
        add(reads, there(*value), *value);
      } else if (stage_[at(made_by)] == kOpen) {
        reads.behind = std::max(reads.behind, behind_[at(made_by)]);
        if (open_[at(made_by)].everywhere)
          reads.states = true;
        else
          add(reads, open_[at(made_by)], *value);
      } else if (const int stage = stage_[at(made_by)]; stage >= 0) {
        reads.behind = std::max(reads.behind, behind_[at(made_by)]);
        int& first = measure_.is_scalar(*value) ? reads.first_scalar : reads.first;
        first = std::min(first, stage);
        reads.last = std::max(reads.last, stage);
      }
    }
    return reads;
  }

  // The largest stage up to `from` that has everything; else that with the most bytes of it.
  static int nearest(const Reads& reads, int from) {
    if (const int last = reads.all.last_until(from); last >= 0) return last;
    int best = from;
    double most = 0;
    for (const Reads::Piece& piece : reads.pieces) {
      const int stage = piece.there.last_until(from);
      if (stage < 0) continue;
      double bytes = 0;
      for (const Reads::Piece& other : reads.pieces)
        if (other.there.at(stage)) bytes += other.bytes;
      if (bytes < most || (bytes == most && stage <= best)) continue;
      best = stage;
      most = bytes;
    }
    return best;
  }

  int placed(int node) {
    if (totals_.kind(node) == Totals::Kind::after) return kNone;
    const Reads reads = reads_of(node);
    behind_[at(node)] = reads.behind;
    if (!reads.has_gradients() && !reads.states && reads.pieces.empty()) return kNone;
    if (totals_.is_sum(node)) return reads.last;
    if (reads.has_gradients() && reads.pieces.empty()) return towards_home(node, reads.from(loss_));
    if (reads.has_gradients() || reads.behind == loss_) return nearest(reads, reads.from(loss_));
    open_[at(node)] = reads.all;
    if (!reads.all.everywhere && reads.all.stages.empty()) {
      int last = 0;
      for (const Reads::Piece& piece : reads.pieces) last = std::max(last, piece.there.stages.back());
      open_[at(node)].stages = {nearest(reads, last)};
    }
    return kOpen;
  }

  // Of a node that reads no gradient.
  int as_readers(int node) const {
    const There& where = open_[at(node)];
    int last = kNone;
    for (int reader : batch_.readers(node)) last = std::max(last, stage_[at(reader)]);
    if (last < 0) return where.everywhere ? kNone : where.stages.back();
    const int stage = where.last_until(last);
    return stage >= 0 ? stage : where.stages.front();
  }

  // A node that reads only gradients is where its readers are if that takes fewer bytes there.
  void move_to_readers(int node) {
    before_ = nullptr;
    int& stage = stage_[at(node)];
    if (roles_.is_forward(node) || stage < 0 || is_kept(node) || totals_.kind(node) != Totals::Kind::none) return;
    int last = kNone;
    for (int reader : batch_.readers(node)) last = std::max(last, stage_[at(reader)]);
    if (last < 0 || last >= stage) return;
    double read = 0, made = 0;
    for (const auto& [value, made_by] : batch_.operands(node)) {
      if (made_by < 0 ? value->kind == ValueKind::state : roles_.is_staged(made_by)) return;
      if (made_by < 0 || stage_[at(made_by)] < 0) continue;
      if (!is_sent_to(last, *value, made_by, node)) read += measure_.bytes(*value);
    }
    for (const Value* result : batch_.node(node).outputs)
      if (result) made += measure_.bytes(*result);
    if (read < made) stage = last;
  }

  // Outputs, and next values of states.
  bool is_kept(int node) const {
    const auto& results = batch_.node(node).outputs;
    return std::any_of(results.begin(), results.end(), [&](const Value* result) {
      return result && (result->next_of > 0 || graph_.is_output(result));
    });
  }

  void settle_free(int node) {
    const auto& readers = batch_.readers(node);
    if (stage_[at(node)] != kNone || readers.empty() || is_kept(node)) return;
    const int stage = stage_[at(readers.front())];
    if (std::all_of(readers.begin(), readers.end(), [&](int reader) { return stage_[at(reader)] == stage; }))
      stage_[at(node)] = stage;
  }

  const Graph& graph_;
  const OneBatch& batch_;
  const Roles& roles_;
  const Measure& measure_;
  const Totals totals_;
  std::vector<int> stage_;
  std::vector<int> home_;
  const std::vector<int>* before_ = nullptr;  // stages before homes were known
  std::vector<There> open_;                   // of nodes whose readers decide, where these may be
  std::vector<int> behind_;                   // as Reads::behind
  int loss_ = 0;                              // the last stage of the forward pass
};

}  // namespace

std::vector<int> place_nodes(const Graph& graph, const OneBatch& batch, const Roles& roles, const Measure& measure,
                             const std::vector<int>& of_chain) {
  return Placing(graph, batch, roles, measure, of_chain).run();
}

}  // namespace tessera::stages
