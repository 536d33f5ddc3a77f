#include "tessera/stages/stages.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "tessera/base/bytes_text.h"
#include "tessera/base/error.h"
#include "tessera/stages/blocks.h"
#include "tessera/stages/deal.h"
#include "tessera/stages/place.h"
#include "tessera/stages/sums.h"

namespace tessera::stages {
namespace {

void require_possible(const StageSettings& settings) {
  const auto stages = static_cast<size_t>(std::max<int64_t>(0, settings.stages));
  if (settings.stages < 1) fail("pipeline", "a pipeline cannot have {} stages; give at least 1", settings.stages);
  const auto by_stage = [&](size_t given) { return given == 0 || given == stages; };
  check(by_stage(settings.ranks_of.size()) && by_stage(settings.memory.size()) && by_stage(settings.in_flight.size()),
        "lists by stage have an entry for each");
  check(settings.micro_batches >= 1, "a step has micro-batches");
  check(settings.speeds.empty() || settings.ranks_of.empty() ||
            std::ssize(settings.speeds) > *std::max_element(settings.ranks_of.begin(), settings.ranks_of.end()),
        "lists by rank have an entry for each");
  if (!by_stage(settings.blocks.size()))
    fail("pipeline", "{} numbers of blocks are given for {} stages; give one for each", settings.blocks.size(), stages);
  for (int64_t count : settings.blocks)
    if (count < 0) fail("pipeline", "a stage cannot have {} blocks; give 0 or more", count);
}

// One class, since each part of the result comes from the same views of the graph.
class Finder {
 public:
  Finder(const Graph& graph, const StageSettings& settings)
      : graph_(graph),
        settings_(settings),
        measure_(settings.sizes, settings.seconds),
        batch_(graph),
        roles_(roles_of(graph, batch_, measure_)),
        chain_(chain_of(batch_, roles_, measure_)),
        ends_(find_blocks(chain_, batch_, roles_, measure_)) {}

  Stages run() {
    describe_blocks();
    const Dealt dealt = deal();
    result_.best = dealt.best && settings_.blocks.empty();
    describe_stages(dealt.counts);
    std::vector<int64_t> of_block;
    for (size_t stage = 0; stage < dealt.counts.size(); ++stage)
      of_block.insert(of_block.end(), static_cast<size_t>(dealt.counts[stage]), static_cast<int64_t>(stage));
    const std::vector<int> placed = place(of_block);
    for (const auto& node : graph_.nodes()) {
      if (node->number >= result_.of_node.size()) {
        result_.of_node.resize(node->number + 1, -1);
        result_.is_forward.resize(node->number + 1);
      }
      const int index = batch_.index_of(*node);
      result_.of_node[node->number] = placed[static_cast<size_t>(index)];
      result_.is_forward[node->number] = roles_.is_forward(index);
    }
    return std::move(result_);
  }

 private:
  int64_t block_count() const { return static_cast<int64_t>(ends_.size()); }

  // All nodes, if the blocks of the chain are at these stages.
  std::vector<int> place(const std::vector<int64_t>& of_block) const {
    std::vector<int> of_chain(static_cast<size_t>(batch_.size()), -1);
    size_t block = 0;
    for (int p = 0; p < chain_.size(); ++p) {
      of_chain[static_cast<size_t>(chain_.nodes[static_cast<size_t>(p)])] = static_cast<int>(of_block[block]);
      if (p == ends_[block]) ++block;
    }
    return place_nodes(graph_, batch_, roles_, measure_, of_chain);
  }

  // A block costs what its nodes would if each block were a stage.
  void describe_blocks() {
    std::vector<int64_t> each(ends_.size());
    std::iota(each.begin(), each.end(), 0);
    const std::vector<int> of_node = place(each);
    auto& blocks = result_.blocks;
    blocks.resize(ends_.size());
    for (int i = 0; i < batch_.size(); ++i) {
      const int block = of_node[static_cast<size_t>(i)];
      if (block < 0) continue;
      blocks[static_cast<size_t>(block)].seconds += measure_.seconds(batch_.node(i)) * batch_.runs(i);
      if (!roles_.is_staged(i)) continue;
      ++blocks[static_cast<size_t>(block)].nodes;
      for (const Value* result : batch_.node(i).outputs)
        if (result && is_held(*result)) blocks[static_cast<size_t>(block)].held_bytes += measure_.bytes(*result);
    }
    for (const Value* state : graph_.values_of(ValueKind::state))
      if (const int block = block_of(*state, of_node); block >= 0)
        blocks[static_cast<size_t>(block)].state_bytes += static_cast<double>(state->data.bytes);
    for (size_t b = 0; b < blocks.size(); ++b) {
      const bool last = b + 1 == blocks.size();
      if (!last) blocks[b].cut_bytes = chain_.alive[static_cast<size_t>(ends_[b])];
      const Value* alive = last ? nullptr : largest_alive(chain_, batch_, measure_, ends_[b]);
      const Node& end = batch_.node(chain_.nodes[static_cast<size_t>(ends_[b])]);
      if (!alive) alive = end.output();
      blocks[b].last = alive ? alive->name : end.label();
    }
  }

  bool is_held(const Value& result) const {
    return std::any_of(result.uses.begin(), result.uses.end(), [&](const Use& use) {
      const int reader = batch_.index_of(*use.node);
      return reader >= 0 && !roles_.is_forward(reader);
    });
  }

  // The first that uses the state in the forward pass, or that makes its next value; -1: none.
  int block_of(const Value& state, const std::vector<int>& of_node) const {
    int first = -1;
    for (const Use& use : state.uses) {
      const int reader = batch_.index_of(*use.node);
      if (reader < 0 || !roles_.is_staged(reader)) continue;
      const int block = of_node[static_cast<size_t>(reader)];
      if (first < 0 || block < first) first = block;
    }
    if (first >= 0 || !state.next) return first;
    const int maker = batch_.maker(state.next);
    return maker < 0 ? -1 : of_node[static_cast<size_t>(maker)];
  }

  Dealt deal() const {
    if (!settings_.blocks.empty()) {
      const int64_t given = std::accumulate(settings_.blocks.begin(), settings_.blocks.end(), int64_t{0});
      if (given != block_count())
        fail("pipeline", "stages of {} blocks are {} blocks, but the graph has {}; give numbers with that sum, or auto",
             fmt::join(settings_.blocks, ","), given, block_count());
      return {settings_.blocks};
    }
    const Dealt dealt = deal_out(loads(), deal_settings());
    if (dealt.counts.empty()) refuse_memory();
    return dealt;
  }

  std::vector<Load> loads() const {
    std::vector<Load> loads;
    for (const Block& block : result_.blocks)
      loads.push_back({block.seconds, block.state_bytes, block.held_bytes, block.cut_bytes});
    return loads;
  }

  Deal deal_settings() const {
    Deal deal{settings_.stages, settings_.ranks_of, settings_.speeds, settings_.memory, settings_.in_flight};
    if (!deal.ranks_of.empty())
      deal.fill = static_cast<double>(*std::max_element(deal.ranks_of.begin(), deal.ranks_of.end())) /
                  static_cast<double>(settings_.micro_batches);
    if (deal.ranks_of.empty()) {
      deal.ranks_of.resize(static_cast<size_t>(settings_.stages));
      std::iota(deal.ranks_of.begin(), deal.ranks_of.end(), 0);
    }
    return deal;
  }

  [[noreturn]] void refuse_memory() const {
    double all = 0;
    for (const Block& block : result_.blocks) all += block.state_bytes + block.held_bytes;
    fail("pipeline",
         "no division of {} blocks among {} stages keeps the memory of each; states, and activations of one "
         "micro-batch, are {} in all, and the stages may hold {}; allow more, or use more stages or smaller "
         "micro-batches",
         block_count(), settings_.stages, bytes_text(all),
         bytes_text(std::accumulate(settings_.memory.begin(), settings_.memory.end(), 0.0)));
  }

  void describe_stages(const std::vector<int64_t>& counts) {
    const std::vector<Load> blocks = loads();
    const Deal deal = deal_settings();
    const Sums sums(blocks, deal);
    const double all = sums.work(0, sums.blocks());
    int64_t begin = 0;
    for (int64_t stage = 0; stage < settings_.stages; ++stage) {
      const int64_t end = begin + counts[static_cast<size_t>(stage)];
      const double share = all > 0 ? sums.work(begin, end) / all : 0;
      result_.stages.push_back({sums.rank(stage), begin, end - begin, share,
                                stage + 1 < settings_.stages ? sums.cut(end) : 0, sums.memory(stage, begin, end)});
      begin = end;
    }
  }

  const Graph& graph_;
  const StageSettings& settings_;
  const Measure measure_;
  const OneBatch batch_;
  const Roles roles_;
  const Chain chain_;
  const std::vector<int> ends_;  // of blocks, in the chain
  Stages result_;
};

}  // namespace

Stages find_stages(const Graph& graph, const StageSettings& settings) {
  require_possible(settings);
  return Finder(graph, settings).run();
}

std::string stages_text(const Stages& stages) {
  std::string text = fmt::format("{:>5}  {:>4}  {:>9}  {:>6}  {:>10}  {:>10}\n", "stage", "rank", "blocks", "time",
                                 "memory", "to next");
  for (size_t s = 0; s < stages.stages.size(); ++s) {
    const StageInfo& stage = stages.stages[s];
    const std::string blocks = stage.blocks == 0   ? "none"
                               : stage.blocks == 1 ? fmt::format("{}", stage.first)
                                                   : fmt::format("{}-{}", stage.first, stage.first + stage.blocks - 1);
    text += fmt::format("{:>5}  {:>4}  {:>9}  {:>4.1f} %  {:>10}  {:>10}\n", s, stage.rank, blocks, 100 * stage.share,
                        bytes_text(stage.memory), s + 1 < stages.stages.size() ? bytes_text(stage.cut_bytes) : "");
  }
  return text;
}

}  // namespace tessera::stages
