#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/session.h"
#include "tessera/time.h"

/// Questions about recorded runs: how long would they take if an operator were faster, a link slower, or the mesh
/// larger (docs/time.md)?
namespace tessera {
inline namespace v1 {

/// The machine programs of runs at these sizes, and their conditions, as one JSON object for trace files. With it and
/// the events of profiles, the runs can be repeated by the simulator. `options`: of the session that ran. `topology`:
/// of the mesh's links, if it is known. Nothing is loaded; where ranks are processes, one of them makes this call.
std::string recorded_program(const Program& program, const SymbolSizes& sizes, const SessionOptions& options,
                             const Topology& topology = {});

/// A trace that `tessera bench --profile` or `tessera train --profile` recorded: runs, and the programs that ran.
class RunTrace {
 public:
  /// Throws a user error (stage "whatif") for a file that was cut, is no trace, or was recorded by another tool.
  static RunTrace read(const std::filesystem::path& path);

  const Mesh& mesh() const;
  const Topology& topology() const;  ///< of the mesh's links; empty: unknown
  SymbolSizes sizes() const;
  bool overlap() const;         ///< whether communication and computation could overlap
  int64_t runs() const;         ///< at least 1
  double step_ms() const;       ///< the median of their durations
  std::string command() const;  ///< what the trace says of the command that recorded it, as JSON; "{}": nothing

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  explicit RunTrace(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

/// Changes of a program whose dependences stay. Patterns are names of operators in which `*` stands for any characters:
/// of kinds ("MatMul", "AllReduce") or of single ones ("layer.3.*").
struct WhatIfChanges {
  enum class Overlap {
    as_recorded,
    off,      ///< each communication is waited for where it starts
    perfect,  ///< the bound of Prediction::bound_ms: communication hides as well as dependences and links allow
  };
  std::vector<std::pair<std::string, double>> scale_operators;  ///< by pattern: a factor on their times
  std::vector<std::pair<std::string, double>> scale_links;      ///< by level of links: a factor on its bandwidth
  std::vector<std::string> drop;                                ///< take no time; collectives wait for nobody either
  std::vector<std::pair<std::string, double>> insert;           ///< by pattern: milliseconds of an operator after each
  Overlap overlap = Overlap::as_recorded;
};

struct WhatIf {
  int64_t runs = 0;
  double measured_ms = 0;  ///< the median duration of the recorded runs
  /// What the simulator makes of the unchanged runs: the median of simulated / measured - 1. Answers are corrected by
  /// it.
  double replay_error = 0;
  double step_ms = 0;  ///< after the changes
  /// Of the run of median duration, simulated without and with the changes; or of the programs, if another one is
  /// asked about.
  Prediction before, after;
  int64_t transfers = 0;  ///< of all ranks in that run
  int64_t hidden = 0;     ///< of these, how many ended before any rank waited for them; their times are estimates
  /// What kernels' times that were not recorded rest on (Prediction::extrapolated says their share); "": all were
  /// recorded.
  std::string assumed;
};

/// Simulates the recorded runs with their own times, without and with the changes. Throws a user error for a pattern or
/// a link that the trace lacks.
WhatIf what_if(const RunTrace& trace, const WhatIfChanges& changes);

/// Another program instead of the recorded one: for another mesh, other buckets or types.
struct OtherProgram {
  Program program;
  SymbolSizes sizes;
  /// For kernels and collectives that were not recorded; those that were take the recorded times. Null: such kernels
  /// are as fast as those recorded of the nearest size, by their FLOPs or bytes (products of 16-bit floats twice as
  /// fast as of float32), and there must be no such collectives.
  std::optional<MachineModel> machine;
  Topology topology;  ///< of its mesh's links; empty: the machine's
};

/// The same changes of another program. Both programs are simulated with the recorded times of kernels of the same
/// shapes, and the measured time grows or shrinks as the simulated one does. Prediction::extrapolated says which share
/// of the kernels' time was not recorded. Throws a user error if the machine lacks what is needed.
WhatIf what_if(const RunTrace& trace, const WhatIfChanges& changes, const OtherProgram& other);

}  // namespace v1
}  // namespace tessera
