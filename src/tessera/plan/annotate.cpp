#include "tessera/plan/annotate.h"

#include <fmt/format.h>

#include <optional>
#include <set>

#include "tessera/base/bytes_text.h"

namespace tessera::plan {
namespace {

// The layout in which the program's first use of a parameter has it. Of one that the program holds in pieces: that of
// its first piece.
std::string layout_of(const Program& program, const std::string& parameter) {
  for (const StateInfo& state : program.states()) {
    if (state.tensor.name != parameter) continue;
    const StateInfo& held = state.pieces.empty() ? state : state.pieces.front();
    return held.compute.empty() ? held.storage : held.compute.front();
  }
  return "";
}

// The layouts of a kind that differ from the present one in what one axis splits.
std::vector<std::string> changes(const Candidates::Kept& now, const TensorKind& kind) {
  const Entries present(layout_of(now.program.program(), kind.names.front()), kind.extents.size());
  std::vector<std::string> all;
  for (const MeshAxis& axis : now.program.program().mesh().axes())
    for (int dim = -1; dim < static_cast<int>(kind.extents.size()); ++dim) {
      if (axis.size == 1 || dim == present.dim_of(axis.name)) continue;
      if (dim >= 0 && kind.extents[static_cast<size_t>(dim)] < axis.size) continue;
      all.push_back(present.moved(axis.name, dim).str());
    }
  return all;
}

class Annotating {
 public:
  Annotating(Candidates& candidates, const SearchLimits& limits, Annotated& made)
      : candidates_(candidates), limits_(limits), made_(made) {}

  // Until each kind has been tried since the last improvement.
  void improve(size_t layout, const std::vector<TensorKind>& kinds) {
    std::set<std::map<std::string, std::string>> known = {choice_of(layout).annotations};
    size_t unimproved = 0;
    for (size_t k = 0; unimproved < kinds.size() && !made_.ended_early; k = (k + 1) % kinds.size())
      unimproved = improves(layout, kinds[k], known) ? 0 : unimproved + 1;
  }

 private:
  const Choice& choice_of(size_t layout) const { return candidates_.choices()[candidates_.kept_of(layout).candidate]; }

  bool improves(size_t layout, const TensorKind& kind, std::set<std::map<std::string, std::string>>& known) {
    const Choice before = choice_of(layout);
    std::optional<std::pair<Outcome, size_t>> best;  // and its number among those tried
    const Outcome present = candidates_.kept_of(layout).outcome;
    for (const std::string& change : changes(candidates_.kept_of(layout), kind)) {
      Choice changed = before;
      changed.annotations[kind.pattern] = change;
      changed.parameter_shards = changed.optimizer_shards = changed.mesh.size();
      if (!known.insert(changed.annotations).second) continue;
      const size_t candidate = candidates_.add(std::move(changed));
      if (limits_.is_over && limits_.is_over()) made_.ended_early = true;
      if (limits_.has_time && !limits_.has_time(candidate)) made_.ended_early = true;
      if (made_.ended_early) break;
      const Outcome outcome = tried(before, kind.pattern + "=" + change, candidate, present);
      if (!made_.tried.back().refused.empty() || !is_better(outcome, best ? best->first : present, limits_.objective))
        continue;
      best = {outcome, made_.tried.size() - 1};
    }
    if (best) made_.tried[best->second].kept = true;
    return best.has_value();
  }

  Outcome tried(const Choice& before, const std::string& annotation, size_t candidate, const Outcome& present) {
    const Outcome outcome = candidates_.evaluate(candidate);
    TriedAnnotation made{before.str(), annotation, 0, 0, false, outcome.refused};
    if (made.refused.empty() && limits_.bytes > 0 && outcome.bytes > limits_.bytes)
      made.refused = fmt::format("a rank needs {} more than it may", bytes_text(outcome.bytes - limits_.bytes));
    if (made.refused.empty()) {
      made.gain_ms = (present.seconds - outcome.seconds) * 1e3;
      made.gain_bytes = present.bytes - outcome.bytes;
    }
    made_.tried.push_back(std::move(made));
    return outcome;
  }

  Candidates& candidates_;
  const SearchLimits& limits_;
  Annotated& made_;
};

}  // namespace

void annotate(Annotated& made, Candidates& candidates, const std::vector<TensorKind>& kinds, size_t plans,
              const SearchLimits& limits) {
  made.ended_early = false;
  std::vector<size_t> layouts;
  for (const Candidates::Kept& each : candidates.kept())
    if (layouts.size() < plans) layouts.push_back(candidates.choices()[each.candidate].layout);
  for (const size_t layout : layouts)
    if (!made.ended_early && made.layouts.insert(layout).second)
      Annotating(candidates, limits, made).improve(layout, kinds);
}

}  // namespace tessera::plan
