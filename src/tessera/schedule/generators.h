#pragma once

#include "tessera/schedule/table.h"

/// The schedules that make_pipeline knows, one file each.
namespace tessera::schedule {

struct Generator {
  std::string_view name;       ///< "interleaved", as users write it
  std::string_view parameter;  ///< "V" in "interleaved:V", or ""
  std::string_view describes;
  /// `stages` for each rank.
  PipelineTable (*make)(int64_t ranks, int64_t micro_batches, int64_t stages);
  int64_t stages;            ///< on each rank; 0: the parameter says how many
  int64_t least_rounds = 0;  ///< the micro-batches for each rank that it takes at least
};
/// The one visible list.
const std::vector<Generator>& generators();
/// Throws a user error that lists the schedules: "'1f2b' is no schedule, and " + why.
[[noreturn]] void fail_unknown(std::string_view name, std::string_view why);

/// Throws a user error for numbers of ranks, micro-batches or stages that no schedule can have.
void require_possible(std::string_view name, const PipelineSizes& sizes);

PipelineTable make_gpipe(int64_t ranks, int64_t micro_batches, int64_t stages);        // gpipe.cpp
PipelineTable make_1f1b(int64_t ranks, int64_t micro_batches, int64_t stages);         // one_f_one_b.cpp
PipelineTable make_interleaved(int64_t ranks, int64_t micro_batches, int64_t stages);  // interleaved.cpp
PipelineTable make_zb_h1(int64_t ranks, int64_t micro_batches, int64_t stages);        // zb_h.cpp
PipelineTable make_zb_h2(int64_t ranks, int64_t micro_batches, int64_t stages);        // zb_h.cpp
PipelineTable make_zb_v(int64_t ranks, int64_t micro_batches, int64_t stages);         // zb_v.cpp
PipelineTable make_v_half(int64_t ranks, int64_t micro_batches, int64_t stages);       // v_shaped.cpp
PipelineTable make_v_min(int64_t ranks, int64_t micro_batches, int64_t stages);        // v_shaped.cpp
PipelineTable make_dualpipe_v(int64_t ranks, int64_t micro_batches, int64_t stages);   // dualpipe_v.cpp

}  // namespace tessera::schedule
