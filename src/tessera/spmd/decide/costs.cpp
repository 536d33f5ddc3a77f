#include "tessera/spmd/decide/costs.h"

#include <cmath>

#include "tessera/spmd/decide/nodes.h"
#include "tessera/spmd/program.h"
#include "tessera/spmd/reshard/search.h"

namespace tessera::spmd {

double largest_part(double size, const std::vector<AxisRef>& axes) {
  for (const AxisRef& axis : axes) size = std::ceil(size / static_cast<double>(axis.size));
  return size;
}

namespace {

double bytes_of(double elements, DType dtype) {
  return elements * static_cast<double>(bits_of(dtype)) / 8;
}

}  // namespace

// Seconds of a communication, by the bytes of the whole tensor that it moves.
class Costs::Seconds : public StepCost {
 public:
  Seconds(const cost::Prices& prices, const Hints& hints) : prices_(prices), hints_(hints) {}

  double extent(const Expr& size) const override { return hinted(size, hints_); }
  double of(Collective collective, const std::vector<AxisRef>& axes, double in, double out,
            DType dtype) const override {
    const double whole = traits_of(collective).block == BlockSide::operand ? out : in;
    return prices_.collective(collective, axes, bytes_of(whole, dtype));
  }

 private:
  const cost::Prices& prices_;
  const Hints& hints_;
};

Costs::Costs(const Mesh& mesh, const Hints& hints, const cost::Prices* prices)
    : mesh_(mesh), hints_(hints), prices_(prices) {
  if (!prices) return;
  seconds_ = std::make_unique<Seconds>(*prices, hints);
  planner_ = std::make_unique<ReshardPlanner>(*seconds_);
}

Costs::~Costs() = default;

std::vector<ReshardStep> Costs::plan(const Sharding& from, const Sharding& to, DType dtype) const {
  return planner_ ? planner_->plan(from, to, dtype) : plan_reshard(from, to, dtype);
}

double Costs::of(const ReshardStep& step, DType dtype) const {
  if (!seconds_) return hinted(bytes_received(step, dtype, mesh_), hints_);
  const auto collective = collective_of(step.kind);
  if (!collective) return 0;
  return seconds_->of(*collective, step.axes, hinted(largest_shard(step.before, mesh_), hints_),
                      hinted(largest_shard(step.after, mesh_), hints_), dtype);
}

double Costs::between(const Sharding& from, const Sharding& to, DType dtype) const {
  double sum = 0;
  for (const ReshardStep& step : plan(from, to, dtype)) sum += of(step, dtype);
  return sum;
}

double Costs::message(double bytes, const std::vector<AxisRef>& axes) const {
  return prices_ && bytes > 0 ? prices_->collective(Collective::permute, axes, bytes) : bytes;
}

double Costs::gather(double part, const std::vector<AxisRef>& axes) const {
  const auto ranks = static_cast<double>(ranks_of(axes));
  return prices_ ? prices_->collective(Collective::all_gather, axes, part * ranks) : part * (ranks - 1);
}

double Costs::holding(double bytes) const {
  return kTie * (prices_ ? prices_->kernel({.bytes = bytes}) : bytes);
}

double Costs::computing(const NodeLayout& node, const std::vector<std::vector<AxisRef>>& axes,
                        const std::vector<Sharding>& operands, const std::vector<Sharding>& results) const {
  if (!prices_) return 0;
  cost::KernelWork work;
  work.signature = node.node->op_type;
  const auto [known, added] = flops_.try_emplace(node.node, 0);
  if (added) known->second = hinted(ops::flops_of(*node.node), hints_);
  work.flops = known->second;
  for (size_t s = 0; s < node.subfactors.size(); ++s)
    if (const double size = hinted(node.subfactors[s].size, hints_); size > 0)
      work.flops *= largest_part(size, axes[s]) / size;
  double all = 0;
  bool typed = false;
  const auto add = [&](const Value* value, const Sharding& sharding) {
    const double elements = hinted(largest_shard(sharding, mesh_), hints_);
    all += elements;
    work.bytes += bytes_of(elements, value->dtype());
    if (!typed && is_float(value->dtype())) work.dtype = value->dtype();
    typed = typed || is_float(value->dtype());
    return elements;
  };
  for (size_t t = 0; t < node.operand_slots.size(); ++t)
    if (node.operand_slots[t] >= 0) add(node.node->inputs[t], operands[t]);
  double first = -1, columns = 1;
  for (size_t t = 0; t < node.result_slots.size(); ++t) {
    if (node.result_slots[t] < 0) continue;
    const double elements = add(node.node->outputs[t], results[t]);
    if (first >= 0 || results[t].dims.empty()) continue;
    first = elements;
    for (const Part& part : results[t].dims.back().parts) columns *= hinted(local_extent(part, mesh_), hints_);
  }
  if (first >= 0) cost::add_extents(work, all, first, columns);
  return prices_->kernel(work);
}

}  // namespace tessera::spmd
