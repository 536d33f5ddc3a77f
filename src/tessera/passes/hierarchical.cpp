#include "tessera/passes/hierarchical.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/rounded_time.h"
#include "tessera/mesh/group.h"
#include "tessera/passes/levels.h"
#include "tessera/spmd/collective_attributes.h"

namespace tessera::passes {
namespace {

using spmd::Placement;
using spmd::Program;
using spmd::ReshardKind;
using spmd::ReshardStep;

// Predictions are rough, so a rewrite must promise a gain of at least a tenth.
constexpr double kWorthwhile = 0.9;

std::optional<std::pair<ReshardKind, Collective>> kind_of(const Node& node) {
  if (node.domain != spmd::kCommDomain) return std::nullopt;
  const auto collective = collective_of_op(node.op_type);
  if (!collective || !traits_of(*collective).by_levels) return std::nullopt;
  return {{*spmd::reshard_by(*collective), *collective}};
}

// A collective between two values that stand for one global tensor.
struct Site {
  Node* node = nullptr;
  Value *in = nullptr, *out = nullptr;
  Collective kind = Collective::all_reduce;
  ReshardStep step;
};

// The summary of all equal collectives, for the note.
struct Change {
  Collective kind;
  std::string axes, levels;
  int count = 0;
  double flat = 0, hierarchical = 0;  // seconds, together

  std::string note() const {
    std::string name(name_of(kind));
    std::replace(name.begin(), name.end(), '_', '-');
    return fmt::format("{} over {} {} hierarchical: {}; predicted {} instead of {}",
                       count == 1 ? name : fmt::format("{} {}s", count, name), axes, count == 1 ? "is" : "are", levels,
                       rounded_time(hierarchical), rounded_time(flat));
  }
};

class Rewriter {
 public:
  Rewriter(Program& program, Context& context) : program_(program), context_(context) {}

  void run() {
    std::vector<Node*> nodes;
    for (const auto& node : program_.graph->nodes()) nodes.push_back(node.get());
    for (Node* node : nodes)
      if (auto site = site_of(node)) rewrite(*site);
    spmd::erase_dead(program_);
    for (const auto& [value, name] : renames_) program_.graph->rename(value, name);
    for (const Change& change : changes_) context_.notes.push_back(change.note());
  }

 private:
  bool is_placed(const Value* value) const { return program_.placements.contains(value); }

  std::optional<Site> site_of(Node* node) const {
    auto kinds = kind_of(*node);
    if (!kinds || node->inputs.size() != 1) return std::nullopt;
    Site site{node, node->inputs[0], node->outputs[0], kinds->second, {kinds->first}};
    if (!is_placed(site.in) || !is_placed(site.out)) return std::nullopt;
    const spmd::CollectiveAttributes collective = spmd::read_collective(*node, program_.mesh);
    site.step.axes = parse_axes(collective.axes, program_.mesh);
    site.step.before = program_.placement(site.in).sharding;
    site.step.after = program_.placement(site.out).sharding;
    site.step.reduction = collective.reduction;
    if (site.step.reduction == Reduction::mean) return std::nullopt;  // a mean of means is not the mean of all
    if (site.step.kind != ReshardKind::all_reduce && !find_part(site.step)) return std::nullopt;
    return site;
  }

  // Finds the part that gains or loses axes, with both sides cut into the same parts; false if there is none.
  bool find_part(ReshardStep& step) const {
    for (size_t d = 0; d < step.before.dims.size(); ++d) {
      auto before = refine(step.before.dims[d], boundaries(step.after.dims[d]));
      auto after = refine(step.after.dims[d], boundaries(step.before.dims[d]));
      if (!before || !after || before->parts.size() != after->parts.size()) return false;
      step.before.dims[d] = *before;
      step.after.dims[d] = *after;
    }
    const bool gathers = step.kind == ReshardKind::all_gather;
    for (size_t d = 0; d < step.before.dims.size(); ++d)
      for (size_t p = 0; p < step.before.dims[d].parts.size(); ++p) {
        const auto& before = step.before.dims[d].parts[p].axes;
        const auto& after = step.after.dims[d].parts[p].axes;
        const auto &longer = gathers ? before : after, &shorter = gathers ? after : before;
        if (before == after || !is_prefix(shorter, longer)) continue;
        const std::vector<AxisRef> moved(longer.begin() + static_cast<long>(shorter.size()), longer.end());
        if (join_axes(moved) != join_axes(step.axes)) continue;
        step.dim = static_cast<int>(d);
        step.part = static_cast<int>(p);
        return true;
      }
    return false;
  }

  double bytes_of_whole(const Site& site) const {
    const Value* whole = site.kind == Collective::all_gather ? site.out : site.in;
    return spmd::hinted(product(whole->shape()), program_.hints) * bits_of(whole->dtype()) / 8;
  }

  void rewrite(const Site& site) {
    const auto levels = cost::levels_of(site.step.axes, program_.mesh, context_.topology);
    if (levels.size() < 2) return;
    const auto steps = by_levels(site.step, levels, program_.mesh, program_.hints);
    if (!steps) return;
    std::vector<cost::Level> costs;
    for (const cost::GroupLevel& level : levels) costs.push_back(level.cost);
    const double bytes = bytes_of_whole(site), flat = cost::flat_time(site.kind, costs, bytes),
                 hierarchical = cost::hierarchical_time(site.kind, costs, bytes * steps->imbalance);
    if (hierarchical > kWorthwhile * flat) return;

    const Placement placed = program_.placement(site.out);
    Value* value = site.in;
    for (const ReshardStep& step : steps->steps)
      value = emit_reshard(program_, value, step, placed.global, placed.name, site.node);
    program_.placements[value] = placed;
    replace(site.out, value);
    record(site, steps->steps);
    count(site, levels, flat, hierarchical);
  }

  void replace(Value* old, Value* value) {
    program_.graph->replace_uses(old, value);
    for (spmd::Port& port : program_.outputs)
      if (port.value == old) port.value = value;
    value->extra = old->extra;
    renames_.emplace_back(value, old->name);
  }

  // Records of layout changes must name the steps actually taken.
  void record(const Site& site, const std::vector<ReshardStep>& steps) {
    const std::string name = program_.placement(site.in).name, flat = site.step.str(program_.mesh);
    for (spmd::ReshardRecord& record : program_.reshards) {
      auto found = std::find(record.steps.begin(), record.steps.end(), flat);
      if (record.value != name || found == record.steps.end()) continue;
      found = record.steps.erase(found);
      for (auto step = steps.rbegin(); step != steps.rend(); ++step)
        found = record.steps.insert(found, step->str(program_.mesh));
      return;
    }
  }

  void count(const Site& site, const std::vector<cost::GroupLevel>& levels, double flat, double hierarchical) {
    Change change{site.kind, "", ""};
    for (const AxisRef& axis : site.step.axes)
      change.axes += (change.axes.empty() ? "" : ",") + axis.str(program_.mesh);
    for (const cost::GroupLevel& level : levels) {
      std::string name = level.name;
      for (const AxisRef& axis : level.axes)
        if (level.name.empty()) name += (name.empty() ? "" : ",") + axis.str(program_.mesh);
      change.levels += fmt::format("{}{} by {}", change.levels.empty() ? "" : ", then ", level.cost.size, name);
    }
    auto known = std::find_if(changes_.begin(), changes_.end(), [&](const Change& other) {
      return other.kind == change.kind && other.axes == change.axes && other.levels == change.levels;
    });
    if (known == changes_.end()) known = changes_.insert(known, std::move(change));
    ++known->count;
    known->flat += flat;
    known->hierarchical += hierarchical;
  }

  Program& program_;
  Context& context_;
  std::vector<Change> changes_;
  std::vector<std::pair<Value*, std::string>> renames_;
};

}  // namespace

void hierarchical(Program& program, Context& context) {
  if (context.topology.empty()) return;
  Rewriter(program, context).run();
}

}  // namespace tessera::passes
