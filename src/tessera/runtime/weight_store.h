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

/// The most bytes that a rank holds while it loads.
struct LoadPeak {
  size_t bytes = 0;    ///< all
  size_t own = 0;      ///< those that are not views of the model's data
  size_t between = 0;  ///< of these, what it may hold while another rank packs a weight
};

/// The states of one rank that never change: its shards, packed forms of them, and what init makes of them. A state of
/// two programs that is the same part of the same data is there once; ranks that need the same share it where kernels
/// read the host's memory. Where nothing will run, weights are only sized. Used only from the rank's own thread.
class WeightStore {
 public:
  /// `rank` must outlive it. `shared`: of all ranks of the process.
  WeightStore(RankState& rank, std::shared_ptr<SharedWeights> shared);

  /// Runs the program's init (spmd/partition/init.h), unless that has been done for the same data. What it made and
  /// nobody has asked for goes with the result; asked for later, it is made again.
  [[nodiscard]] std::shared_ptr<const void> initialize(const RankPrograms& programs);
  /// The rank's shard of a state of the program that it runs, where the device's kernels can read it.
  const Tensor& shard(const RankPrograms& programs, const Value* state);
  /// The same for the host: a part of the model's data where the shard lies in one piece there, else a copy; or what
  /// init made.
  const Tensor& host_shard(const RankPrograms& programs, const Value* state);
  /// A packed form of a state, which is made once.
  const Tensor& packed(const RankPrograms& programs, const bind::WeightToPack& wanted);

  /// Drops what it keeps of these programs' states only.
  void forget(const RankPrograms& programs);
  /// To be called where values of programs may go, and others may take their addresses.
  void forget_values() { names_.forget_all(); }
  /// Leaves the shards in memory for good, for communications that were under way as a run failed.
  void abandon_memory() const;

  /// Bytes of shards and packed forms.
  size_t bytes() const;
  /// Bytes of these that are not views of the model's data, by what ranks share.
  std::map<WeightForm, size_t> own_bytes() const;
  /// The most that the rank has held while weights were made or packed, or would have if no other rank had done it.
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
  std::map<WeightPart, Tensor> resident_;  // copies of the device, where it has memory of its own
  std::map<WeightForm, Tensor> packed_;
  std::map<WeightPart, Tensor> made_;  // by init, and not asked for yet
  std::set<WeightPart> initialized_;   // what init has made, now or before
  LoadPeak load_peak_;
};

}  // namespace tessera::runtime
