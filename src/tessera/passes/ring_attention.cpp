#include "tessera/passes/ring_attention.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "tessera/base/error.h"
#include "tessera/cost/links.h"
#include "tessera/ir/flow.h"
#include "tessera/mesh/group.h"
#include "tessera/ops/attention.h"
#include "tessera/passes/node_work.h"
#include "tessera/passes/pipeline.h"
#include "tessera/spmd/collective_attributes.h"
#include "tessera/spmd/partition/halo.h"
#include "tessera/spmd/reshard/messages.h"

namespace tessera::passes {
namespace {

using ops::AttentionDims;
using ops::AttentionPlace;
using ops::Interval;
using spmd::Messages;
using spmd::Program;

// The dimension of keys in the form with separate heads, the only form whose keys are split over ranks.
constexpr size_t kAlong = 2;

// The largest ring that is chosen by cost: programs and compile time grow with it.
constexpr int64_t kMostMembers = 64;

// FLOPs of a few cores of a server in a second, and bytes of memory that they read or write.
constexpr double kFlopsPerSecond = 1e11, kBytesPerSecond = 1e10;

// Keys or values of which each member of a group has a block, and which the group gathers.
struct Gathered {
  Value* block = nullptr;
  std::vector<AxisRef> axes;  // of the group, major first
  Expr size;                  // of the gathered dimension
  std::string name;           // of the global value

  int64_t members() const { return ranks_of(axes); }
  // What all members but the last have, which is what the last receives: no member receives more.
  Expr received() const { return size - spmd::shard_of(size, axes, members() - 1).count(); }
};

struct Site {
  Node* node = nullptr;
  AttentionDims dims;
  AttentionPlace place;
  Gathered keys, values;
  bool descends = false;  // whether no query sees a block of a later member than its own

  int64_t members() const { return keys.members(); }
};

class Rings {
 public:
  Rings(Program& program, Context& context)
      : program_(program), graph_(*program.graph), context_(context), flow_(flow::flow_of(graph_)) {}

  void run() {
    std::vector<Node*> nodes;
    for (const auto& node : graph_.nodes()) nodes.push_back(node.get());
    for (Node* node : nodes)
      if (auto site = site_of(node); site && pays(*site)) {
        site->descends = node->get_int("is_causal", 0) != 0 && !node->input(ops::kKeyLengths) && stand_with_keys(*site);
        rewrite(*site);
      }
    if (counts_.empty() && context_.ring_attention == RingAttention::always)
      context_.notes.push_back("no keys go around a ring; docs/attention.md says when they can");
    spmd::erase_dead(program_);
    for (const auto& [value, name] : renames_) graph_.rename(value, name);
    for (const auto& [axes, count] : counts_)
      context_.notes.push_back(fmt::format("keys and values of {} go around a ring of {}, instead of being gathered",
                                           count == 1 ? "an Attention" : fmt::format("{} Attentions", count), axes));
  }

 private:
  std::optional<Gathered> gathered(Value* whole) const {
    if (!whole->producer || whole->uses.size() != 1 || is_port(whole)) return std::nullopt;
    const Node& gather = *whole->producer;
    if (spmd::communication_of(gather) != Collective::all_gather || gather.inputs.size() != 1) return std::nullopt;
    const spmd::CollectiveAttributes collective = spmd::read_collective(gather, program_.mesh);
    if (collective.dim != static_cast<int64_t>(kAlong)) return std::nullopt;
    const auto piece = program_.placements.find(gather.inputs[0]), all = program_.placements.find(whole);
    if (piece == program_.placements.end() || all == program_.placements.end()) return std::nullopt;
    const Sharding &before = piece->second.sharding, &after = all->second.sharding;
    if (!before.at.empty() || before.dims[kAlong].parts.size() != 1 || after.dims[kAlong].parts.size() != 1)
      return std::nullopt;
    Gathered result{gather.inputs[0], parse_axes(collective.axes, program_.mesh), whole->shape()[kAlong],
                    piece->second.name};
    // A dimension that is split beyond the group has parts of the group's parts.
    std::vector<AxisRef> nested = after.dims[kAlong].parts[0].axes;
    nested.insert(nested.end(), result.axes.begin(), result.axes.end());
    if (join_axes(nested) != join_axes(before.dims[kAlong].parts[0].axes)) return std::nullopt;
    return result;
  }

  bool is_port(const Value* value) const {
    return std::any_of(program_.outputs.begin(), program_.outputs.end(),
                       [&](const spmd::Port& port) { return port.value == value; });
  }

  std::optional<Site> site_of(Node* node) const {
    const bool of_part = node->is("AttentionShard", spmd::kLocalDomain);
    if ((!of_part && !node->is("Attention")) || flow_.of(node) >= 0 || node->input(ops::kKey)->rank() != 4)
      return std::nullopt;
    if (node->output(ops::kPresentKey) || node->output(ops::kPresentValue) || (!of_part && node->output(ops::kScores)))
      return std::nullopt;
    const AttentionDims dims = ops::attention_dims(*node);
    if (node->input(ops::kPastKey) || node->input(ops::kSink) || !ops::mask_has_all_keys(*node, dims))
      return std::nullopt;
    const auto keys = gathered(node->input(ops::kKey)), values = gathered(node->input(ops::kValue));
    if (!keys || !values || keys->axes != values->axes || !differs_on(node->input(ops::kQuery), keys->axes))
      return std::nullopt;
    Site site{node, dims, {}, *keys, *values};
    if (of_part) {
      site.place = ops::place_of(*node);
    } else {
      const auto shared = Expr::exact_divide(dims.heads, dims.kv_heads);
      if (!shared) return std::nullopt;
      site.place = {0, dims.queries, 0, 0, *shared};
    }
    return site;
  }

  // Whether no two members of a group have the same part of the queries. Each begins with its own block, so equal
  // queries would get differently rounded results.
  bool differs_on(const Value* queries, const std::vector<AxisRef>& axes) const {
    const auto placed = program_.placements.find(queries);
    if (placed == program_.placements.end()) return false;
    std::set<std::vector<int64_t>> parts;
    for (const int rank : group_of(0, axes, program_.mesh)) {
      std::vector<int64_t> part;
      for (const DimSharding& dim : placed->second.sharding.dims)
        for (const Part& own : dim.parts)
          for (const AxisRef& axis : own.axes)
            part.push_back(digit_along(axis, program_.mesh, program_.mesh.coordinates(rank)));
      if (!parts.insert(std::move(part)).second) return false;
    }
    return true;
  }

  // Whether the queries of each rank are those of its own block's keys.
  bool stand_with_keys(const Site& site) const {
    const Interval block = spmd::shard_of(site.keys.size, site.keys.axes, me(site));
    const std::array<Expr, 2> apart = {site.place.first_query - site.place.first_key - block.begin,
                                       site.dims.queries - block.count()};
    std::set<std::string> symbols;
    for (const Expr& difference : apart) difference.collect_symbols(symbols);
    // All indices of the axes that they depend on.
    std::vector<std::vector<int64_t>> indices = {{}};
    for (const MeshAxis& axis : program_.mesh.axes()) {
      const int64_t count = symbols.contains("@" + axis.name) ? axis.size : 1;
      std::vector<std::vector<int64_t>> more;
      for (const std::vector<int64_t>& before : indices)
        for (int64_t index = 0; index < count; ++index) {
          more.push_back(before);
          more.back().push_back(index);
        }
      indices = std::move(more);
    }
    return std::all_of(indices.begin(), indices.end(), [&](const std::vector<int64_t>& rank) {
      return std::all_of(apart.begin(), apart.end(),
                         [&](const Expr& difference) { return bind_rank(difference, program_.mesh, rank).is(0); });
    });
  }

  Expr me(const Site& site) const { return spmd::member_along(site.keys.axes, program_.mesh); }

  // The member whose block a member has after this many steps; nullopt if it has none.
  static int64_t holder(const Site& site, int64_t member, int64_t step) {
    if (member >= step) return member - step;
    return site.descends ? Messages::nobody : member - step + site.members();
  }

  // That block, on this rank: elements of the gathered dimension.
  Interval block_after(const Site& site, int64_t step) const {
    const Expr from = me(site) - step;
    if (!site.descends)
      return spmd::shard_of(site.keys.size, site.keys.axes, step == 0 ? me(site) : mod(from, site.members()));
    const Interval block = spmd::shard_of(site.keys.size, site.keys.axes, step == 0 ? from : max(0, from));
    return {block.begin, block.begin + block.count() * (step == 0 ? Expr(1) : min(1, max(0, from + 1)))};
  }

  double bytes_of(const Value* value) const {
    return spmd::hinted(product(value->shape()), program_.hints) * bits_of(value->dtype()) / 8;
  }

  // A message overlaps with the products of the block before it; the cost of a ring is the rest of its messages, and
  // joining results. Without a topology, ranks are assumed to share memory, where a gather is a copy that does not
  // overlap with products.
  bool pays(const Site& site) const {
    if (context_.ring_attention != RingAttention::by_cost) return context_.ring_attention == RingAttention::always;
    if (context_.prices) return site.members() <= kMostMembers && pays(site, *context_.prices);
    if (context_.topology.empty() || site.members() > kMostMembers) return false;
    std::vector<cost::Level> levels;
    for (const cost::GroupLevel& level : cost::levels_of(site.keys.axes, program_.mesh, context_.topology))
      levels.push_back(level.cost);
    if (levels.empty()) return false;
    const double members = static_cast<double>(site.members());
    const double result = spmd::hinted(product(site.node->outputs[0]->shape()), program_.hints) * sizeof(float);
    double gathers = 0, messages = 0;  // seconds, like all that follow
    for (const Value* block : {site.keys.block, site.values.block}) {
      gathers += cost::flat_time(Collective::all_gather, levels, members * bytes_of(block));
      messages += cost::flat_time(Collective::permute, levels, bytes_of(block));
    }
    const double products = spmd::hinted(ops::flops_of(*site.node), program_.hints) / members / kFlopsPerSecond;
    const double joining = 4 * result / kBytesPerSecond;  // written once, read twice, and written again
    return (members - 1) * (std::max(0.0, messages - products) + joining) < gathers;
  }

  // Adds the time by which kernels for blocks are slower than one for all keys. Where messages move only while a rank
  // waits, they do not overlap.
  bool pays(const Site& site, const cost::Prices& prices) const {
    const double members = static_cast<double>(site.members());
    double gathers = 0, messages = 0;
    cost::KernelWork whole = work_of(*site.node, program_.hints), block = whole;
    block.flops /= members;
    block.depth /= members;
    for (const Value* own : {site.keys.block, site.values.block}) {
      gathers += prices.collective(Collective::all_gather, site.keys.axes, members * bytes_of(own));
      messages += prices.collective(Collective::permute, site.keys.axes, bytes_of(own));
      block.bytes -= (members - 1) * bytes_of(own);
    }
    const double result = spmd::hinted(product(site.node->outputs[0]->shape()), program_.hints) * sizeof(float);
    const double joining = prices.kernel({.signature = "Add", .bytes = 4 * result});  // as in pays()
    const double products = prices.kernel(block);
    const double exposed = prices.overlaps() ? std::max(0.0, messages - products) : messages;
    return members * products + (members - 1) * (exposed + joining) < prices.kernel(whole) + gathers;
  }

  // The attention of all of this rank's queries over a block.
  ops::AttentionPart part(const Site& site, Value* keys, Value* values, const Expr& begin) {
    auto shard = std::make_unique<Node>(*site.node);
    ops::NodeBuilder b(graph_, site.node->outputs[0]->name, site.node);
    shard->op_type = "AttentionShard";
    shard->domain = spmd::kLocalDomain;
    shard->extra.clear();
    shard->inputs.resize(ops::kPlace + 1, nullptr);
    shard->inputs[ops::kKey] = keys;
    shard->inputs[ops::kValue] = values;
    if (Value*& mask = shard->inputs[ops::kMask]) {
      Shape shape = mask->shape();
      mask = b.slice(mask, static_cast<int64_t>(mask->rank()) - 1, begin, begin + keys->shape()[kAlong]);
      shape.back() = keys->shape()[kAlong];
      mask->type.shape = std::move(shape);
    }
    const AttentionPlace& place = site.place;
    shard->inputs[ops::kPlace] = graph_.add_expression(
        site.node->outputs[0]->name + ".place",
        {place.first_query, place.queries, place.first_key + begin, place.first_head, place.heads_per_key});
    Shape rows = site.node->outputs[0]->shape();
    shard->outputs.assign(ops::kRowSums + 1, nullptr);
    const auto result = [&](size_t r, std::string_view suffix, const Shape& shape) {
      shard->outputs[r] = graph_.add_value(fmt::format("{}.{}", site.node->outputs[0]->name, suffix), ValueKind::result,
                                           {DType::float32, shape});
    };
    result(ops::kOutput, "part", rows);
    rows.back() = 1;
    result(ops::kRowMost, "most", rows);
    result(ops::kRowSums, "sums", rows);
    const Node* added = graph_.adopt_node(std::move(shard), site.node);
    return {added->outputs[ops::kOutput], added->outputs[ops::kRowMost], added->outputs[ops::kRowSums]};
  }

  void rewrite(const Site& site) {
    ops::NodeBuilder b(graph_, site.node->outputs[0]->name, site.node);
    Value *keys = site.keys.block, *values = site.values.block;
    std::optional<ops::AttentionPart> all;
    for (int64_t step = 0; step < site.members(); ++step) {
      Value *next_keys = nullptr, *next_values = nullptr;
      if (step + 1 < site.members()) {
        const Expr extent = block_after(site, step + 1).count();
        next_keys = passed_on(site, site.keys, keys, step, extent);
        next_values = passed_on(site, site.values, values, step, extent);
      }
      const ops::AttentionPart own = part(site, keys, values, block_after(site, step).begin);
      all = all ? ops::joined(b, *all, own) : own;
      keys = next_keys;
      values = next_values;
    }
    if (site.node->is("AttentionShard", spmd::kLocalDomain) && site.node->output(ops::kRowMost)) {
      replace(site.node->outputs[ops::kRowMost], all->most);
      replace(site.node->outputs[ops::kRowSums], all->sums);
    }
    replace(site.node->outputs[0], b.cast(all->mean, site.node->outputs[0]->dtype()));
    std::vector<std::string> axes;
    for (const AxisRef& axis : join_axes(site.keys.axes)) axes.push_back(axis.str(program_.mesh));
    const std::string names = fmt::format("{}", fmt::join(axes, ","));
    ++counts_[names];
    for (const Gathered* passed : {&site.keys, &site.values}) record(*passed, names);
  }

  // Each member sends the block that it has to the next member, and gets one from the member before.
  Value* passed_on(const Site& site, const Gathered& passed, Value* block, int64_t step, const Expr& extent) {
    const int64_t members = site.members();
    std::vector<int64_t> to(static_cast<size_t>(members), Messages::nobody), from = to;
    for (int64_t m = 0; m < members; ++m)
      if (holder(site, m, step + 1) != Messages::nobody) {
        const int64_t before = (m + members - 1) % members;
        from[static_cast<size_t>(m)] = before;
        to[static_cast<size_t>(before)] = m;
      }
    Messages messages(program_, {passed.name, fmt::format("ring_{}", step + 1), passed.axes}, site.node);
    messages.send(block, to);
    Shape shape = block->shape();
    shape[kAlong] = extent;
    return messages.receive({block->dtype(), shape}, from);
  }

  void replace(Value* old, Value* value) {
    graph_.replace_uses(old, value);
    for (spmd::Port& port : program_.outputs)
      if (port.value == old) port.value = value;
    if (const auto placed = program_.placements.find(old); placed != program_.placements.end())
      program_.placements[value] = placed->second;
    value->extra = old->extra;
    renames_.emplace_back(value, old->name);
  }

  // Records of layout changes must name the steps actually taken.
  void record(const Gathered& passed, const std::string& axes) {
    const std::string gather = "AllGather " + axes;
    for (spmd::ReshardRecord& record : program_.reshards) {
      const auto found = std::find(record.steps.begin(), record.steps.end(), gather);
      if (record.value != passed.name || found == record.steps.end()) continue;
      *found = "Ring " + axes;
      if (record.steps.size() == 1) {
        Shape shape = passed.block->shape();
        shape[kAlong] = passed.received();
        record.bytes = ceildiv(product(shape) * bits_of(passed.block->dtype()), 8);
      }
      return;
    }
  }

  Program& program_;
  Graph& graph_;
  Context& context_;
  const flow::Flow flow_;
  std::map<std::string, int> counts_;  // of sites, by the axes of their rings
  std::vector<std::pair<Value*, std::string>> renames_;
};

}  // namespace

RingAttention parse_ring_attention(std::string_view text) {
  if (text.empty() || text == "auto") return RingAttention::by_cost;
  if (text == "always") return RingAttention::always;
  if (text == "never") return RingAttention::never;
  fail("ring attention", "'{}' is not a mode of ring attention; write auto, always or never", text);
}

void ring_attention(Program& program, Context& context) {
  if (context.ring_attention != RingAttention::never) Rings(program, context).run();
}

}  // namespace tessera::passes
