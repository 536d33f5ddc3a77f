#include "tessera/spmd/reshard/reshard.h"

#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "tessera/spmd/reshard/plain.h"
#include "tessera/spmd/reshard/search.h"

namespace tessera::spmd {
namespace {

// Whether other steps may move less. A single communication without a slice after it moves only what its receivers
// lack.
bool may_be_undercut(std::span<const ReshardStep> steps) {
  bool moved = false;
  for (const ReshardStep& step : steps) {
    if (moved && step.kind != ReshardKind::forget) return true;
    moved = collective_of(step.kind).has_value();
  }
  return false;
}

}  // namespace

// The results of earlier searches.
class FoundSteps {
 public:
  FoundSteps(const StepCost& cost, DType dtype) : cost_(cost), dtype_(dtype) {}

  // The steps of cheaper_steps(from, to, than); `than` follows from the two.
  const std::optional<std::vector<ReshardStep>>& between(const Sharding& from, const Sharding& to,
                                                         const std::vector<ReshardStep>& than) {
    const Key key(from, to);
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    if (known_.size() == kMost) known_.clear();
    return known_.emplace(key, cheaper_steps(from, to, than, cost_, dtype_)).first->second;
  }

 private:
  using Key = std::pair<Sharding, Sharding>;
  struct Hash {
    size_t operator()(const Key& key) const {
      size_t hash = 0;
      const auto mix = [&hash](size_t value) { hash = hash * 1099511628211U + value; };
      for (const Sharding* sharding : {&key.first, &key.second}) {
        for (const DimSharding& dim : sharding->dims)
          for (const Part& part : dim.parts) {
            mix(part.axes.size());
            mix(static_cast<size_t>(part.size.constant().value_or(0)));
          }
        for (const AxisRef& axis : sharding->axes()) {
          mix(std::hash<std::string>()(axis.axis));
          mix(static_cast<size_t>(axis.pre));
          mix(static_cast<size_t>(axis.size));
        }
      }
      return hash;
    }
  };
  static constexpr size_t kMost = 4096;

  const StepCost& cost_;
  const DType dtype_;
  std::unordered_map<Key, std::optional<std::vector<ReshardStep>>, Hash> known_;
};

namespace {

// Plain steps lead to the first layout that the search supports; the search takes over there.
std::vector<ReshardStep> plan_of_any_parts(const Sharding& from, const Sharding& to, FoundSteps& found) {
  PlainPlan plain = plain_plan(from, to);
  std::vector<ReshardStep> steps = std::move(plain.line_up);
  for (size_t done = 0; done < plain.steps.size(); ++done) {
    const Sharding& now = done == 0 ? plain.from : plain.steps[done].before;
    if (search_covers(now, plain.to)) {
      const std::vector<ReshardStep> rest(plain.steps.begin() + static_cast<ptrdiff_t>(done), plain.steps.end());
      const auto* fewer = may_be_undercut(rest) ? &found.between(now, plain.to, rest) : nullptr;
      const std::vector<ReshardStep>& chosen = fewer && *fewer ? **fewer : rest;
      steps.insert(steps.end(), chosen.begin(), chosen.end());
      break;
    }
    steps.push_back(plain.steps[done]);
  }
  return steps;
}

// Layouts of elements of less than a byte as layouts of bytes: without the dimensions at the end that no step may cut,
// and with the last one of the others counted in `unit` elements.
class InBytes {
 public:
  InBytes(const Sharding& from, const Sharding& to, DType dtype) : whole_(to), kept_(to.dims.size()) {
    int64_t missing = elements_of_whole_bytes(dtype);
    while (missing > 1 && kept_ > 0) {
      const DimSharding &before = from.dims[kept_ - 1], &after = to.dims[kept_ - 1];
      if (has_unit(before, missing) && has_unit(after, missing)) {
        unit_ = missing;
        return;
      }
      if (before.is_split() || after.is_split()) {
        kept_ = to.dims.size();  // such a layout cuts bytes; it is refused where it is made
        return;
      }
      --kept_;
      const auto size = after.size().constant();
      if (size) missing /= std::gcd(missing, *size);
    }
  }

  Sharding without(const Sharding& sharding) const {
    Sharding bytes = sharding;
    bytes.dims.resize(kept_);
    if (unit_ == 1) return bytes;
    std::vector<Part>& parts = bytes.dims.back().parts;
    parts.back().size = *Expr::exact_divide(parts.back().size, unit_);
    if (parts.size() > 1 && parts.back().size.is(1)) parts.pop_back();
    return bytes;
  }
  void add_to(ReshardStep& step) const {
    const auto splits = [&](const Sharding& layout) { return !layout.dims.back().parts.back().axes.empty(); };
    const bool apart = unit_ != 1 && (splits(step.before) || splits(step.after));
    for (Sharding* layout : {&step.before, &step.after}) {
      if (apart) layout->dims.back().parts.push_back({unit_, {}});
      if (unit_ != 1 && !apart) layout->dims.back().parts.back().size = layout->dims.back().parts.back().size * unit_;
      for (size_t d = kept_; d < whole_.dims.size(); ++d) layout->dims.push_back(whole_.dims[d]);
    }
  }
  bool is_all() const { return kept_ == whole_.dims.size() && unit_ == 1; }

 private:
  static bool has_unit(const DimSharding& dim, int64_t unit) {
    return dim.parts.back().axes.empty() && Expr::exact_divide(dim.parts.back().size, unit).has_value();
  }

  const Sharding& whole_;
  size_t kept_;
  int64_t unit_ = 1;
};

std::vector<ReshardStep> plan_by(FoundSteps& found, const Sharding& from, const Sharding& to, DType dtype) {
  const InBytes bytes(from, to, dtype);
  if (bytes.is_all()) return plan_of_any_parts(from, to, found);
  std::vector<ReshardStep> steps = plan_of_any_parts(bytes.without(from), bytes.without(to), found);
  for (ReshardStep& step : steps) bytes.add_to(step);
  return steps;
}

}  // namespace

std::vector<ReshardStep> plan_reshard(const Sharding& from, const Sharding& to, DType dtype) {
  static const StepCost by_elements;
  thread_local FoundSteps found(by_elements, DType::undefined);
  return plan_by(found, from, to, dtype);
}

struct ReshardPlanner::Found {
  const StepCost& cost;
  std::map<DType, FoundSteps> by_type;
};

ReshardPlanner::ReshardPlanner(const StepCost& cost) : found_(new Found{cost, {}}) {}
ReshardPlanner::~ReshardPlanner() = default;

std::vector<ReshardStep> ReshardPlanner::plan(const Sharding& from, const Sharding& to, DType dtype) const {
  return plan_by(found_->by_type.try_emplace(dtype, found_->cost, dtype).first->second, from, to, dtype);
}

}  // namespace tessera::spmd
