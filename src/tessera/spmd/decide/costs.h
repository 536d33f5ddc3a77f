#pragma once

#include <map>
#include <memory>
#include <vector>

#include "tessera/cost/prices.h"
#include "tessera/spmd/decide/decide.h"
#include "tessera/spmd/reshard/reshard.h"

namespace tessera::spmd {

/// The busiest rank's part of a size that is split over these axes, one within the other.
double largest_part(double size, const std::vector<AxisRef>& axes);

/// By what layouts are compared: the bytes that a rank receives or, if a machine is named, the seconds that its
/// communications take and its operators compute, one after the other. Symbols have their hinted sizes.
class Costs {
 public:
  /// All arguments outlive it. `prices`: of the machine; null: none is named.
  Costs(const Mesh& mesh, const Hints& hints, const cost::Prices* prices = nullptr);
  Costs(const Costs&) = delete;
  ~Costs();

  const Mesh& mesh() const { return mesh_; }
  const Hints& hints() const { return hints_; }
  bool in_seconds() const { return prices_ != nullptr; }

  /// The steps from one layout to another that cost the least.
  std::vector<ReshardStep> plan(const Sharding& from, const Sharding& to, DType dtype) const;
  /// Of one of them, for a tensor of that type.
  double of(const ReshardStep& step, DType dtype) const;
  /// Of all steps from one layout to another.
  double between(const Sharding& from, const Sharding& to, DType dtype) const;
  /// Of receiving so many bytes from other ranks along these axes.
  double message(double bytes, const std::vector<AxisRef>& axes) const;
  /// Of gathering parts of so many bytes from each of the ranks along these axes.
  double gather(double part, const std::vector<AxisRef>& axes) const;
  /// Of what a rank holds of an operand or result: breaks ties.
  double holding(double bytes) const;
  /// Of computing a node that splits its subfactors over `axes`, of operands and results in these layouts (without
  /// dimensions where there is none): nothing if no machine is named.
  double computing(const NodeLayout& node, const std::vector<std::vector<AxisRef>>& axes,
                   const std::vector<Sharding>& operands, const std::vector<Sharding>& results) const;

 private:
  class Seconds;

  const Mesh& mesh_;
  const Hints& hints_;
  const cost::Prices* prices_;
  std::unique_ptr<Seconds> seconds_;
  std::unique_ptr<ReshardPlanner> planner_;
  mutable std::map<const Node*, double> flops_;  // of whole nodes, those known so far
};

}  // namespace tessera::spmd
