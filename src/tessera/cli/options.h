#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/bounds.h"
#include "tessera/cli/console.h"
#include "tessera/cli/launch_options.h"
#include "tessera/default_inputs.h"
#include "tessera/inspect.h"
#include "tessera/tessera.h"

/// Groups of options that several commands share.
namespace tessera::cli {

/// Reads "batch=8,sequence=128". Throws a user error.
SymbolSizes parse_shapes(std::string_view text);
/// Writes them so.
std::string sizes_text(const SymbolSizes& sizes);

/// Bytes of "512M" or "4G": K, M, G and T are powers of 1024. Throws a user error.
size_t parse_memory(std::string_view text);

/// Checks of numbers, which say in words what an option takes: one rule for all commands, which refuses NaN and
/// infinities.
CLI::Validator number_in(const Bounds& bounds);
CLI::Validator above_zero();
/// Takes the whole numbers from 0 to 2^64 - 1.
CLI::Validator seed_number();
CLI::Validator zero_or_more();

/// What an option takes that names a pipeline's schedule, for --help.
std::string schedules_help();
/// The file that such an option names, if it names one (declare_paths).
std::vector<std::string> table_of_schedule(const std::string& schedule);

/// --memory-limit
struct MemoryOption {
  void declare(CLI::App& app, const char* help);
  size_t bytes() const { return text.empty() ? 0 : parse_memory(text); }  ///< 0: not given

  std::string text;
};

/// --overlap
struct OverlapOption {
  void declare(CLI::App& app);
  bool off() const { return text == "off"; }
  bool reports() const { return text == "report"; }
  /// As Plan::overlap.
  std::string plan() const { return reports() ? "auto" : text; }

  std::string text;
};

/// --mesh, --configuration, --topology, --preset, --annotate, --place, --state, --store, --recompute, --ring-attention,
/// --overlap, --partial-sums, --micro-batches, --pipeline, --stages, --bucket-bytes, --max-reshard-bytes, --plan,
/// --shapes, --dtype
struct PlanOptions {
  void declare(CLI::App& app);
  /// --own, of commands that take models that arrive split.
  void declare_own(CLI::App& app);
  /// The plan of the options, completed by the plan file.
  Plan plan() const;
  /// The same, completed by the model's file: the plan in it or, if no mesh is given, its annotations
  /// for a device configuration. Then `model` becomes one that can follow these. Throws a user error if it is not clear
  /// for which configuration. `trains`: all parameters will change.
  Plan plan(Model& model, const Console& console, bool trains = false) const;
  Mesh mesh(const Plan& plan) const;
  /// What the file says of the mesh's links; empty without one.
  Topology topology() const;
  /// The sizes that given inputs imply for symbols go into the plan; a user error if --shapes says others.
  void add_sizes(Plan& plan, const std::vector<TensorInfo>& ports, const Tensors& inputs) const;
  bool any() const;
  /// Throws a user error if any option is given, since a written program's plan is fixed.
  void refuse_for_written(const std::string& path) const;
  /// The same, of models that are split already: a mesh and sizes may be given.
  void refuse_for_split(const std::string& path) const;

  std::string mesh_text, configuration, topology_path, preset, plan_path, shapes, dtype;
  std::vector<std::string> annotations, places, states, storage, keep_gathered, own;
  std::string recompute, ring_attention, partial_sums, pipeline, stages, bucket_bytes, max_reshard_bytes;
  OverlapOption overlap;
  int micro_batches = 0;  ///< 0: not given
};

/// The form of a written program: --form, --dialect, --lower, --order, --rank-id, --rank-type.
struct FormOptions {
  void declare(CLI::App& app);
  WriteOptions options() const;
  /// Throws a user error if any is given: a model for the open mesh `mesh` is not split yet.
  void refuse_for_open(const std::string& mesh) const;

 private:
  std::map<std::string, std::string> words_;  // as given; "": not given
};

/// --dump
struct DumpOptions {
  void declare(CLI::App& app);
  /// Prints the stages' names and returns true if that was requested.
  bool list(const Console& console) const;
  /// Throws a user error for an unknown stage.
  void check() const;
  /// Throws a user error naming the program if there are stages of compilation to print: it is written, or was split
  /// elsewhere.
  void refuse_for_written(const std::string& path) const;
  /// Prints the requested stages, or gathers them for JSON; empty if none is requested.
  StageObserver observer(const Console& console);
  /// The same for the stage after all others: the machine program of the requested rank.
  void machine(const Console& console, const Program& program, const SymbolSizes& sizes, const SessionOptions& options);
  /// Adds what was gathered.
  void add_to(Json& object) const;

 private:
  void show(const Console& console, const std::string& stage, const std::string& title,
            const std::function<std::string()>& text);

  std::vector<std::string> stages_;
  int64_t rank_ = 0;
  std::map<std::string, std::string> texts_;
};

/// --inputs, --seed
struct InputOptions {
  void declare(CLI::App& app);
  /// The model with those of its initializers as inputs that --inputs gives and that may be given (default_inputs.h).
  Model fed(const Model& model) const { return from_file() ? fed_by(model, path) : model; }
  /// The arrays of --inputs, which are read once; empty if it was not given.
  Tensors given(const std::vector<TensorInfo>& ports) const;
  /// Random ones.
  Tensors random(const Model& model, const SymbolSizes& sizes, const Console& console) const;
  /// Those of a written program, which cannot be random: its tables are cut up, so that what indexes them cannot be
  /// traced as in a model. Throws a user error if there are none.
  Tensors given_for_written(const Program& program) const;
  /// What one of `steps` takes: of arrays with one more leading dimension, of `steps`, its slice; others as they are.
  Tensors at_step(const Tensors& arrays, const std::vector<TensorInfo>& ports, int step) const;
  bool from_file() const { return !path.empty(); }

  std::string path;
  uint64_t seed = 0;
  int steps = 0;            ///< 0: a run, whose inputs are as the model has them
  size_t memory_limit = 0;  ///< bytes that the arrays may take; 0: what the machine has

 private:
  mutable std::optional<std::pair<std::vector<std::string>, Tensors>> read_;  ///< for these ports
};

/// Declares --device, on which ranks compute.
void declare_device(CLI::App& app, std::string& device);

/// --threads, --memory-limit, and how ranks come to be
struct RunOptions {
  /// `overlap`: that of the command's plan, which must outlive this.
  void declare(CLI::App& app, const OverlapOption& overlap);
  /// See LaunchOptions.
  std::optional<int> begin(Console& console, const std::string& command) const {
    return launch.begin(console, threads, command);
  }
  /// The console must outlive the sessions.
  SessionOptions session(const Console& console) const;
  /// The same for what is planned. Where nothing runs, a rank has one thread unless --threads says another number.
  RunSettings planned(const Console& console, const Mesh& mesh, bool runs) const;
  /// Ranks that a process runs, and for all of which --memory-limit is; the same where nothing runs yet. More ranks
  /// than a process can run are one in each.
  int64_t ranks_of_process(const Console& console, const Mesh& mesh) const;

  int threads = 0;
  bool overlaps() const { return !overlap->off(); }

  const OverlapOption* overlap = nullptr;
  int prefetch = 4;
  std::string device = "cpu";
  MemoryOption memory;
  LaunchOptions launch;
};

}  // namespace tessera::cli
