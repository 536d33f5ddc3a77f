#include "tessera/launch/same_weights.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/comm/group.h"
#include "tessera/ir/hash.h"
#include "tessera/ir/on_demand.h"
#include "tessera/mesh/box.h"

namespace tessera::launch {
namespace {

constexpr size_t kBlockBytes = size_t{4} << 20;
constexpr size_t kFirstBytes = 64;

}  // namespace

/// A tensor of the model, or a shard that came already cut, and the parts that ranks read.
struct SameWeights::Weight {
  struct Span {
    size_t begin = 0, end = 0;  // bytes
  };
  std::string name;
  Tensor data;
  std::map<int, Span> read_by;  // rank

  void read(int rank, const Span& span);

  static Span elements_of(const Tensor& whole, const spmd::Placement& placement, const Mesh& mesh, int rank);
  static std::vector<Weight> all_of(const runtime::RankPrograms& programs);
};

/// Extends the range that a rank reads.
void SameWeights::Weight::read(int rank, const Span& span) {
  if (span.begin == span.end) return;
  const auto [known, fresh] = read_by.try_emplace(rank, span);
  if (!fresh) known->second = {std::min(known->second.begin, span.begin), std::max(known->second.end, span.end)};
}

/// From the first to the last element of the whole tensor that a rank's shard uses.
SameWeights::Weight::Span SameWeights::Weight::elements_of(const Tensor& whole, const spmd::Placement& placement,
                                                           const Mesh& mesh, int rank) {
  if (placement.sharding.is_whole() || bits_of(whole.dtype) % 8 != 0) return {0, static_cast<size_t>(whole.count())};
  const auto none = [](std::string_view) -> std::optional<int64_t> { return std::nullopt; };
  const Box box = box_of(placement.sharding, mesh, mesh.coordinates(rank), none);
  if (box.count() == 0) return {};
  int64_t last = 0;
  for (size_t d = 0; d < box.dims.size(); ++d) last = last * box.dims[d] + box.offsets[d] + box.extents[d] - 1;
  return {static_cast<size_t>(box.first()), static_cast<size_t>(last + 1)};
}

/// All weights, in an order that is the same on all ranks.
std::vector<SameWeights::Weight> SameWeights::Weight::all_of(const runtime::RankPrograms& programs) {
  std::vector<Weight> all;
  const auto ranks = static_cast<int>(programs.mesh().size());
  for (size_t p = 0; p < programs.programs.size(); ++p) {
    const spmd::Program& program = *programs.programs[p];
    // By address and bytes: several tensors may be made of one.
    std::map<std::pair<const std::byte*, size_t>, size_t> known;
    for (const auto& value : program.graph->values()) {
      const auto initial = program.initial.find(value.get());
      if (initial == program.initial.end()) continue;
      const Tensor& data = initial->second;
      std::vector<SourceRange> ranges;
      add_sources_of(data, 0, data.count(), ranges);
      for (const auto& [source, begin, end] : ranges)
        if (known.try_emplace({source->data, source->bytes}, all.size()).second)
          all.push_back({value->name, *source, {}});
      for (int rank = 0; rank < ranks; ++rank) {
        if (!programs.program_of.empty() && programs.program_of[rank] != static_cast<int>(p)) continue;
        const Span elements = elements_of(data, program.placement(value.get()), program.mesh, rank);
        ranges.clear();
        add_sources_of(data, static_cast<int64_t>(elements.begin), static_cast<int64_t>(elements.end - elements.begin),
                       ranges);
        for (const auto& [source, begin, end] : ranges)
          all[known.at({source->data, source->bytes})].read(
              rank, {bytes_of(source->dtype, begin), bytes_of(source->dtype, end)});
      }
    }
  }
  for (size_t s = 0; s < programs.shards.size(); ++s)
    for (const auto& [name, shard] : programs.shards[s]) {
      Weight weight{name, shard, {}};
      for (int rank = 0; rank < ranks; ++rank)
        if (programs.shards_of[rank] == static_cast<int>(s)) weight.read_by[rank] = {0, shard.bytes};
      all.push_back(std::move(weight));
    }
  return all;
}

SameWeights::SameWeights(std::shared_ptr<const runtime::RankPrograms> programs, int rank,
                         const std::vector<uint64_t>& copies, uint64_t all)
    : programs_(std::move(programs)) {
  plan(rank, copies, all);
  thread_ = std::thread([this] { hash(); });
}

SameWeights::~SameWeights() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void SameWeights::plan(int rank, const std::vector<uint64_t>& copies, uint64_t all) {
  std::map<uint64_t, int> numbers;
  for (uint64_t copy : copies)
    copy_of_.push_back(numbers.emplace(copy, static_cast<int>(numbers.size())).first->second);
  // This rank's place among those that read its copy.
  const int own = copy_of_[rank];
  const auto fellows = std::count(copy_of_.begin(), copy_of_.end(), own);
  const auto place = std::count(copy_of_.begin(), copy_of_.begin() + rank, own);

  const std::vector<Weight> weights = Weight::all_of(*programs_);
  uint64_t bytes = 0;
  for (const Weight& weight : weights) bytes += weight.data.bytes;
  std::set<int> everybody;
  for (int copy = 0; copy < static_cast<int>(numbers.size()); ++copy) everybody.insert(copy);
  std::map<std::set<int>, size_t> known;
  uint64_t number = 0;
  int64_t dealt = 0;
  for (const Weight& weight : weights) {
    std::map<size_t, size_t> parts;  // of this weight, by their copies
    for (size_t begin = 0; begin < weight.data.bytes; begin += kBlockBytes, ++number) {
      size_t end = std::min(begin + kBlockBytes, weight.data.bytes);
      std::set<int> copies_here = bytes <= all ? everybody : readers_of(weight, begin, end);
      if (copies_here.size() < 2) {
        end = std::min(begin + kFirstBytes, end);
        copies_here = everybody;
      }
      const auto [set, unknown] = known.emplace(copies_here, sets_.size());
      if (unknown) sets_.push_back(copies_here);
      const auto [part, fresh] = parts.emplace(set->second, parts_.size());
      if (fresh) parts_.push_back({weight.name, set->second});
      if (copies_here.contains(own) && dealt++ % fellows == place)
        own_.push_back({weight.data.data + begin, end - begin, number, part->second});
    }
  }
}

std::set<int> SameWeights::readers_of(const Weight& weight, size_t begin, size_t end) const {
  std::set<int> readers;
  for (const auto& [rank, span] : weight.read_by)
    if (span.begin < end && begin < span.end) readers.insert(copy_of_[rank]);
  return readers;
}

void SameWeights::hash() {
  for (const Block& block : own_) {
    if (stop_) return;
    Hash hash;
    hash.add(block.number);
    hash.add(hash_of_bytes(block.data, block.bytes));
    parts_[block.part].sum += hash.value();
  }
}

/// Given sums over blocks that some copies compare: the first sum in which copies differ, and the ranks that differ
/// from the first copy that compares it. Every rank finds the same.
std::vector<int> SameWeights::strangers(comm::Communicator& everyone, const std::vector<uint64_t>& sums,
                                        const std::vector<size_t>& copies, size_t& first) const {
  std::vector<uint64_t> all(copy_of_.size() * sums.size());
  const std::vector<int64_t> counts(copy_of_.size(), static_cast<int64_t>(sums.size()));
  everyone.run({.kind = comm::Kind::all_gather,
                .dtype = DType::uint64,
                .in = sums.data(),
                .out = all.data(),
                .counts = counts,
                .label = "weights",
                .joins = true});
  std::vector<int> ranks;
  for (first = 0; first < sums.size() && ranks.empty(); ++first) {
    std::map<int, uint64_t> of_copy;
    for (size_t rank = 0; rank < copy_of_.size(); ++rank)
      if (sets_[copies[first]].contains(copy_of_[rank])) of_copy[copy_of_[rank]] += all[rank * sums.size() + first];
    for (size_t rank = 0; rank < copy_of_.size(); ++rank)  // copies are numbered by their first ranks
      if (const auto own = of_copy.find(copy_of_[rank]); own != of_copy.end() && own->second != of_copy.begin()->second)
        ranks.push_back(static_cast<int>(rank));
  }
  --first;
  return ranks;
}

void SameWeights::compare(comm::Communicator& everyone) {
  thread_.join();
  // If nothing differs, which is usual, only a few numbers are exchanged.
  std::vector<uint64_t> sums(sets_.size()), of_parts;
  std::vector<size_t> sets, of_part;
  for (size_t set = 0; set < sets_.size(); ++set) sets.push_back(set);
  for (const Part& part : parts_) {
    sums[part.copies] += part.sum;
    of_parts.push_back(part.sum);
    of_part.push_back(part.copies);
  }
  size_t first = 0;
  if (sums.empty() || strangers(everyone, sums, sets, first).empty()) return;
  const std::vector<int> ranks = strangers(everyone, of_parts, of_part, first);
  check(!ranks.empty(), "sums that differ have parts that do");
  const int known = *sets_[of_part[first]].begin();
  const auto like = std::find(copy_of_.begin(), copy_of_.end(), known) - copy_of_.begin();
  fail("handshake",
       "the data of the weights of {} is not that of rank {}: '{}' differs; give all ranks the same model file",
       comm::rank_text(ranks), like, parts_[first].weight);
}

}  // namespace tessera::launch
