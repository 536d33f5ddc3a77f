#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/explain.h"
#include "tessera/mesh/topology.h"
#include "tessera/model.h"
#include "tessera/write.h"

namespace tessera {
inline namespace v1 {

/// Called after each stage of compilation with its name; `text` makes the text form.
using StageObserver = std::function<void(std::string_view stage, const std::function<std::string()>& text)>;

/// The names of all stages, in order. lower_precision runs only if a plan asks for another dtype.
std::vector<std::string> stages();

struct SessionOptions;

struct MachineModel;  // tessera/time.h

/// One program for all ranks of a mesh, communication included. Immutable; copies share.
class Program {
 public:
  const Mesh& mesh() const;
  std::vector<TensorInfo> inputs() const;
  std::vector<TensorInfo> outputs() const;
  /// Parameters and other states as the model names them.
  std::vector<StateInfo> states() const;
  /// Those that the rank holds.
  std::vector<StateInfo> states_of(int64_t rank) const;
  const ProgramSummary& summary() const;
  /// The text form: ONNX text syntax, with each value's sharding as a comment.
  std::string text() const;
  /// Throws a user error for a tensor that the model lacks, or that became part of a larger operator: name it in
  /// CompileOptions::keep. can_explain() tells beforehand.
  bool can_explain(const std::string& tensor) const;
  Explanation explain(const std::string& tensor) const;
  /// The same of all tensors that carry data, constants left out, in the order in which nodes make or read them. None
  /// for a written program, which does not record why its layouts were chosen.
  std::vector<Explanation> explanations() const;
  /// Bytes that `rank` needs at its peak, weights included, at those sizes. For a mesh of any size.
  int64_t peak_bytes(int64_t rank, const SymbolSizes& sizes) const { return figures(rank, sizes).peak_bytes; }
  /// All figures of a rank; sizes that are not given are those that cost estimates assumed.
  RankFigures figures(int64_t rank, const SymbolSizes& sizes = {}) const;
  /// Bytes that a process needs at its peak for all of its ranks (RunSettings::process_ranks), at the sizes that cost
  /// estimates assumed; if processes differ, the most. Weights that ranks share count once; weights that stay mapped
  /// from files do not count. This is what SessionOptions::memory_limit counts.
  int64_t process_bytes() const;
  /// The same for a process that also has a session of `other`, with which it shares states.
  int64_t process_bytes_with(const Program& other) const;
  /// One rank of each class of ranks with equal programs: figures of the others are equal, or differ by a unit of a
  /// dimension.
  std::vector<int64_t> unlike_ranks() const;
  /// Bytes of this program's states on `rank` that its sessions share with those of `other` (share_states): of changing
  /// states, and of other states that both store in the same way.
  int64_t shared_bytes(int64_t rank, const Program& other) const;
  /// What `rank` holds during each operation of a run, in order.
  std::vector<MemoryMoment> memory_over_time(int64_t rank, const SymbolSizes& sizes = {}) const;
  /// The machine program of `rank` at those sizes, as text (docs/devices.md): every step with places, queues and costs,
  /// and every buffer, as a session with these options has them on a host of its own. Nothing is loaded.
  std::string machine(int64_t rank, const SymbolSizes& sizes, const SessionOptions& options) const;

  /// Writes the program as a folder of ONNX models, whole or not at all. An older program there is replaced; anything
  /// else there is a user error, and so is a program that was itself read.
  void write(const std::filesystem::path& folder, const WriteOptions& options = {}) const;
  /// Reads what write() wrote. Changed files are a user error, except models if `changed_models` is set, for models
  /// that an ONNX tool has saved again: check_program then checks them (check.h).
  static Program read(const std::filesystem::path& folder, bool changed_models = false);
  /// Whether `path` looks like a folder that write() wrote.
  static bool is_written(const std::filesystem::path& path);

  struct Impl;
  explicit Program(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  const Impl& impl() const;

 private:
  std::shared_ptr<const Impl> impl_;
};

/// The options of a run that affect its memory (SessionOptions).
struct RunSettings {
  int threads_per_rank = 1;  ///< 0: the cores divided among `machine_ranks`
  int machine_ranks = 0;     ///< ranks on one machine; 0: all
  bool overlap = true;
  int prefetch = 4;
  bool checkpoints = false;
  int process_ranks = 1;  ///< ranks that one process runs as threads; 0: all
};

struct CompileOptions {
  std::vector<std::string> keep;  ///< tensors to keep by name through rewriting, for later questions about them
  StageObserver observe;
  /// The mesh's links. If an axis runs over several kinds, collectives over it run level by level if that is faster.
  Topology topology;
  /// The machine by whose seconds choices are made (docs/time.md); null: they count bytes and constants.
  /// PredictSettings::choose() sets both.
  std::shared_ptr<const MachineModel> machine = nullptr;
  /// Bytes that a process may need at its peak for all of its ranks (Program::process_bytes), at the plan's sizes; more
  /// is a user error that names the largest tensors. 0: any.
  size_t memory_limit = 0;
  RunSettings run;  ///< the run that figures, memory_limit, and recomputation under a limit assume
  /// An earlier program whose sessions share states with those of this program (SessionOptions::share_states): changing
  /// states are stored as they are there. Compile a training step first, then its evaluation. States that cannot be
  /// stored in the same way are a user error; entries of Plan::storage for states that only the other program has are
  /// not.
  std::optional<Program> sharing = std::nullopt;
};

/// Throws user errors that name the invalid operator, annotation, preset, axis or link.
Program compile(const Model& model, const Mesh& mesh, const Plan& plan = {}, const CompileOptions& options = {});

}  // namespace v1
}  // namespace tessera
