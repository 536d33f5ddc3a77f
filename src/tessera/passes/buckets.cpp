#include "tessera/passes/buckets.h"

#include <algorithm>
#include <map>

#include "tessera/cost/links.h"
#include "tessera/dialect/buckets.h"
#include "tessera/ir/flow.h"
#include "tessera/mesh/group.h"
#include "tessera/passes/bucket_sets.h"
#include "tessera/passes/live_bytes.h"
#include "tessera/spmd/collective_attributes.h"

namespace tessera::passes {
namespace {

constexpr double kUnknownLinks = 256 << 10;  // bytes of a bucket over unknown links
constexpr double kMost = 64 << 20;           // bytes of a bucket over any links
constexpr double kLatencies = 4;
constexpr double kUnbounded = 1e15, kPrecision = 1e-3;  // of bytes that a search finds

double bytes_by_links(const std::vector<std::string>& axes, const Mesh& mesh, const Topology& topology) {
  const auto levels = cost::levels_of(parse_axes(axes, mesh), mesh, topology);
  if (levels.empty()) return kUnknownLinks;
  double alpha = 0, beta = 0;
  for (const cost::GroupLevel& level : levels) {
    alpha = std::max(alpha, level.cost.alpha);
    beta = std::max(beta, level.cost.beta);
  }
  return std::min(kLatencies * alpha, kMost * beta) / beta;
}

// On a machine: the bytes at which an all-reduce takes five times as long as one of no bytes.
double bytes_by_prices(const std::vector<std::string>& axes, const Mesh& mesh, const cost::Prices& prices) {
  const std::vector<AxisRef> over = parse_axes(axes, mesh);
  const auto seconds = [&](double bytes) { return prices.collective(Collective::all_reduce, over, bytes); };
  const double wanted = (kLatencies + 1) * seconds(0);
  double high = 1;
  while (high < kUnbounded && seconds(high) < wanted) high *= 2;
  double low = high / 2;
  while (high > 1 && high - low > kPrecision * high) {
    const double middle = (low + high) / 2;
    (seconds(middle) < wanted ? low : high) = middle;
  }
  return high;
}

// What a bucket over these axes may have; it is asked for each collective.
class Limits {
 public:
  Limits(const Mesh& mesh, const Context& context) : mesh_(mesh), context_(context) {}

  double of(const std::vector<std::string>& axes) {
    const auto [known, added] = known_.try_emplace(axes, 0);
    if (added)
      known->second = context_.prices ? bytes_by_prices(axes, mesh_, *context_.prices)
                                      : bytes_by_links(axes, mesh_, context_.topology);
    return known->second;
  }

 private:
  const Mesh& mesh_;
  const Context& context_;
  std::map<std::vector<std::string>, double> known_;
};

}  // namespace

void buckets(spmd::Program& program, Context& context) {
  if (context.bucket_bytes == 0 || flow::has_flow(*program.graph)) return;
  const Dependences dependences(*program.graph);
  const LiveBytes live(program);
  const double now = live.peak(dependences.nodes), slack = std::max(now / 20, static_cast<double>(1 << 20));
  Limits limits(program.mesh, context);
  for (double share = 1; share > 1e-3; share /= 2) {
    const auto sets = bucket_sets(program, dependences, [&](const std::vector<std::string>& axes) {
      if (context.bucket_bytes) return static_cast<double>(*context.bucket_bytes);
      return share * limits.of(axes);
    });
    if (sets.empty()) return;
    std::vector<Node*> order = in_buckets(dependences, sets);
    if (!context.bucket_bytes && live.peak(order) > now + slack) continue;
    for (size_t b = 0; b < sets.size(); ++b)
      for (int member : sets[b].members)
        dependences.nodes[member]->set(std::string(spmd::kBucketAttribute), static_cast<int64_t>(b));
    program.graph->arrange(order);
    return;
  }
}

}  // namespace tessera::passes
