#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/runtime/rank_programs.h"

namespace tessera::launch {

/// Checks that ranks which read copies of the weights have the same bytes.
///
/// The weights are cut into blocks. Ranks that read the same copy (one file, mapped by processes of one host) divide
/// its blocks among themselves. Up to `kAll` bytes, whole copies are compared, so every difference is found. Of larger
/// weights, a block is compared between those copies in which some rank reads it. If that is only one copy, the other
/// hosts should not have to read the block, so only its first bytes are compared, which detect another training.
///
///     w over tp=2, rank 0 on host a, rank 1 on host b:  both halves by their blocks' first bytes
///     w over tp=2, on each of two hosts (dp=2):         both halves whole, by both hosts
///
/// A thread hashes from the constructor on, while the ranks load.
class SameWeights {
 public:
  static constexpr uint64_t kAll = uint64_t{4} << 30;

  /// `copies`: by rank, the copy that it reads. `all`: up to this many bytes, whole copies are compared.
  SameWeights(std::shared_ptr<const runtime::RankPrograms> programs, int rank, const std::vector<uint64_t>& copies,
              uint64_t all = kAll);
  ~SameWeights();
  SameWeights(const SameWeights&) = delete;
  SameWeights& operator=(const SameWeights&) = delete;

  /// Every rank calls this once. Throws a user error that names a weight, and the ranks that differ in it from the
  /// first rank that compares it.
  void compare(comm::Communicator& everyone);

 private:
  struct Block {
    const std::byte* data = nullptr;
    size_t bytes = 0;
    uint64_t number = 0;  // in all weights
    size_t part = 0;
  };
  /// The blocks of one weight that the same copies compare.
  struct Part {
    std::string weight;
    size_t copies = 0;  // an index of sets_
    uint64_t sum = 0;   // of the hashes of those blocks that this rank hashes
  };

  struct Weight;
  void plan(int rank, const std::vector<uint64_t>& copies, uint64_t all);
  std::set<int> readers_of(const Weight& weight, size_t begin, size_t end) const;
  void hash();
  std::vector<int> strangers(comm::Communicator& everyone, const std::vector<uint64_t>& sums,
                             const std::vector<size_t>& copies, size_t& first) const;

  std::shared_ptr<const runtime::RankPrograms> programs_;
  std::vector<int> copy_of_;         // by rank: the number of its copy, from 0
  std::vector<std::set<int>> sets_;  // of copies that compare blocks
  std::vector<Part> parts_;
  std::vector<Block> own_;  // those that this rank hashes
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace tessera::launch
