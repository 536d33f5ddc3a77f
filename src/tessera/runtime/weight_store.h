#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tessera/bind/rank.h"
#include "tessera/ir/graph.h"
#include "tessera/kernels/kernel.h"
#include "tessera/runtime/initial_data.h"
#include "tessera/runtime/weight_names.h"

namespace tessera::runtime {

class RankState;

/// The peak of what a rank holds while it loads, in bytes.
struct LoadPeak {
  size_t bytes = 0;    ///< all
  size_t own = 0;      ///< without views of the model's data
  size_t between = 0;  ///< of `own`, what it may hold while another rank packs a weight
};

/// The states of one rank that never change: its shards, their packed forms, and the results of init. It keeps a part
/// of the same data once for several programs; ranks that need the same part share it if kernels read the host's
/// memory. In a dry run, it only counts bytes (PlannedMemory). Used only from the rank's own thread.
class WeightStore {
 public:
  /// `rank` must outlive it. `shared`: of all ranks of the process.
  WeightStore(RankState& rank, std::shared_ptr<SharedWeights> shared);

  /// Runs the program's init (spmd/partition/init.h), unless it has run for the same data. Results of init that nobody
  /// has asked for go with the returned object; if they are asked for later, they are made again.
  [[nodiscard]] std::shared_ptr<const void> initialize(const RankPrograms& programs);
  /// The rank's shard of a state of its program, in memory that the device's kernels can read.
  const Tensor& shard(const RankPrograms& programs, const Value* state);
  /// The same in memory of the host: a view of the model's data if the shard is one piece of them, else a copy, or what
  /// init made.
  const Tensor& host_shard(const RankPrograms& programs, const Value* state);
  /// A packed form of a state. It is made once.
  const Tensor& packed(const RankPrograms& programs, const bind::WeightToPack& wanted);

  /// Drops what it keeps for these programs alone.
  void forget(const RankPrograms& programs);
  /// Call it when values of programs may go, and others may take their addresses.
  void forget_values() { names_.forget_all(); }
  /// Never frees the shards, because communications that were under way when a run failed may still use them.
  void abandon_memory() const;

  /// Bytes of shards and packed forms.
  size_t bytes() const;
  /// The same without views of the model's data, by the names under which ranks share them.
  std::map<WeightForm, size_t> own_bytes() const;
  /// The peak while weights were made or packed, as if no other rank had made any of them.
  const LoadPeak& load_peak() const { return load_peak_; }
  void note_load_peak(const LoadPeak& peak);
  const std::shared_ptr<SharedWeights>& shared() const { return shared_; }

 private:
  struct Shard {
    Tensor tensor;
    bool is_view = false;  ///< of the model's data, mostly pages of its file
  };

  Tensor copied(const RankPrograms& programs, const Value* state, const WeightPart& part);
  Tensor made_once(const WeightForm& form, const std::function<Tensor()>& make);
  void make_once(const RankPrograms& programs, const std::vector<const Value*>& derived);
  void make(const RankPrograms& programs, const std::vector<const Value*>& derived);
  Tensor made(const RankPrograms& programs, const Value* derived);

  std::unique_ptr<kernels::Kernel> packer(const bind::WeightToPack& wanted) const;
  size_t bytes_to_pack(const RankPrograms& programs, const bind::WeightToPack& wanted, const kernels::Kernel& packer);
  std::vector<WeightPart> spared_parts(const RankPrograms& programs, const std::vector<const Value*>& spared);
  Tensor pack(const RankPrograms& programs, const bind::WeightToPack& wanted, kernels::Kernel& packer);
  bool is_kept(const WeightPart& part) const { return shards_.contains(part) || resident_.contains(part); }
  void let_go_of_plain(const WeightPart& part, bool is_derived, bool is_last);

  LoadPeak held() const;
  void note_packing(size_t bytes);
  size_t bytes_to_copy(const RankPrograms& programs, const Value* state);

  RankState& rank_;
  std::shared_ptr<SharedWeights> shared_;
  WeightNames names_;
  const InitialData& initial_;
  std::map<WeightPart, Shard> shards_;     // for the host
  std::map<WeightPart, Tensor> resident_;  // copies on the device, if it has memory of its own
  std::map<WeightForm, Tensor> packed_;
  std::map<WeightPart, Tensor> made_;  // results of init that nobody has asked for yet
  std::set<WeightPart> initialized_;   // results of init so far
  LoadPeak load_peak_;
};

}  // namespace tessera::runtime
