#include "tessera/compiler/programs.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include "tessera/base/bytes_text.h"
#include "tessera/compiler/shared_states.h"
#include "tessera/compiler/summary.h"
#include "tessera/program_io/lone_model.h"
#include "tessera/program_io/rank_graph.h"
#include "tessera/proof/prove.h"
#include "tessera/sim/predict.h"

namespace tessera::compiler {
namespace {

// The simulation of a step on the options' machine; null: they name none.
Simulate simulation(const Source& source, const ProgramOptions& options) {
  if (!options.machine) return nullptr;
  return [&source, &options](const std::shared_ptr<const spmd::Program>& program) {
    runtime::DryRun run{runtime::RankPrograms::same(program, source.files), {}, options.sizing};
    run.symbols.insert(program->hints.begin(), program->hints.end());
    // Nothing of this host: processes that compile by themselves must choose alike.
    run.options.machine_ranks = 0;
    if (run.options.threads_per_rank == 0)
      run.options.threads_per_rank =
          static_cast<int>(std::max<int64_t>(1, options.machine->cores / program->mesh.size()));
    sim::PredictOptions asked;
    asked.machine = options.machine.get();
    asked.topology = options.topology;
    asked.engine = "";
    return sim::predict(run, asked).timeline.seconds;
  };
}

std::shared_ptr<Compiled> compiled(const Source& source, const ProgramOptions& given) {
  ProgramOptions options = given;
  if (!options.simulate) options.simulate = simulation(source, given);
  const bool as_rewritten = options.annotations.empty() && options.places.empty() && options.keep.empty() &&
                            !options.observe && !names_rewritten_state(source.model, source.rewritten(), options);
  return std::make_shared<Compiled>(as_rewritten ? compile_rewritten(source.model, source.rewritten(), options)
                                                 : compile(source.model, options));
}

std::string text_of(const Symbols& sizes) {
  std::string text;
  for (const auto& [symbol, size] : sizes) text += fmt::format("{}{}={}", text.empty() ? "" : ",", symbol, size);
  return text;
}

// Compiles a model for fixed sizes of some symbols, with the states of the program for all sizes, and keeps the latest
// results.
class ForSizes {
 public:
  ForSizes(std::shared_ptr<const Source> source, ProgramOptions options, std::shared_ptr<const spmd::Program> all)
      : source_(std::move(source)), options_(std::move(options)), all_(std::move(all)) {
    options_.observe = nullptr;
    options_.sharing = all_.get();
  }

  std::shared_ptr<const runtime::RankPrograms> operator()(const Symbols& fixed) {
    std::lock_guard lock(mutex_);
    auto known = std::find_if(made_.begin(), made_.end(), [&](const auto& made) { return made.first == fixed; });
    if (known == made_.end()) {
      if (made_.size() == kMost) made_.pop_back();
      known = made_.insert(made_.begin(), {fixed, make(fixed)});
    }
    std::rotate(made_.begin(), known, known + 1);
    return made_.front().second;
  }

 private:
  static constexpr size_t kMost = 8;

  std::shared_ptr<const runtime::RankPrograms> make(const Symbols& fixed) const {
    ProgramOptions options = options_;
    for (const auto& [symbol, size] : fixed) options.shapes.erase(symbol);
    try {
      const std::shared_ptr<Compiled> made =
          compiled(Source(source_->path, with_sizes(source_->model, fixed), source_->files), options);
      share_data(*made->program, *all_);
      CompiledProgram program;
      program.programs = runtime::RankPrograms::same(made->program, source_->files);
      program.require_proof(ErrorKind::running);
      return program.programs;
    } catch (const Error& error) {
      throw Error(error.kind(), "inputs",
                  fmt::format("the model does not run where {}: {}", text_of(fixed), error.what()));
    }
  }

  const std::shared_ptr<const Source> source_;
  ProgramOptions options_;
  const std::shared_ptr<const spmd::Program> all_;  ///< for sizes that are not fixed
  std::mutex mutex_;
  std::vector<std::pair<Symbols, std::shared_ptr<const runtime::RankPrograms>>> made_;  ///< the last used first
};

// The ranks of each process; one stands for all that run the same program.
std::vector<std::vector<int>> ranks_of_processes(const runtime::RankPrograms& programs, int process_ranks) {
  const auto ranks = static_cast<int>(programs.mesh().size());
  const int each = process_ranks > 0 ? std::min(process_ranks, ranks) : ranks;
  std::set<std::vector<int>> seen;
  std::vector<std::vector<int>> processes;
  for (int first = 0; first < ranks; first += each) {
    std::vector<int> here, classes;
    for (int rank = first; rank < std::min(first + each, ranks); ++rank) {
      here.push_back(rank);
      classes.push_back(programs.program_of.empty() ? 0 : programs.program_of[rank]);
    }
    if (seen.insert(std::move(classes)).second) processes.push_back(std::move(here));
  }
  return processes;
}

// Early gathers and buckets need memory, and the time that they save is small compared with what a lack of it costs.
// Buckets of a size that somebody asked for stay.
ProgramOptions without_extra_memory(const ProgramOptions& options) {
  ProgramOptions alone = options;
  alone.early_starts = false;
  if (!alone.bucket_bytes) alone.bucket_bytes = 0;
  return alone;
}

bool has_rings(const Compiled& compiled) {
  return std::any_of(compiled.rings.begin(), compiled.rings.end(), [](const RingOutcome& each) { return each.taken; });
}

// Time is not worth a program that does not fit. `rings`: which a process that needs `bytes` would have.
CompiledProgram compile_without_rings(const std::shared_ptr<const Source>& source, const ProgramOptions& options,
                                      std::vector<RingOutcome> rings, size_t bytes) {
  ProgramOptions whole = options;
  whole.product_rings = ProductRings::never;
  CompiledProgram made = compile_program(source, whole);
  const ComparedBytes texts = compared_bytes(bytes, options.memory_limit);
  for (RingOutcome& each : rings)
    if (std::exchange(each.taken, false))
      each.why =
          fmt::format("with rings, a process would need {}, more than the limit of {}", texts.first, texts.second);
  made.rings = std::move(rings);
  return made;
}

// The options with just enough recomputation to fit into the limit. The memory that a choice frees is an estimate,
// since buffers share memory. So each attempt frees as much more as the last one lacked; later ones reduce the excess.
ProgramOptions with_recomputation(const std::shared_ptr<const Source>& source, const ProgramOptions& options) {
  if (options.memory_limit == 0) fail("recompute", "'auto' recomputes what does not fit into a memory limit; give one");
  ProgramOptions trial = without_extra_memory(options);
  trial.recompute_to_fit = false;
  trial.memory_limit = 0;
  trial.max_reshard_bytes.reset();
  trial.observe = nullptr;
  if (trial.product_rings == ProductRings::by_cost) trial.product_rings = ProductRings::never;  // the limit goes first
  trial.recompute.kind = passes::Recompute::Kind::by_cost;
  constexpr int kMostTries = 10, kMostRefinements = 5;
  const auto all = static_cast<size_t>(options.mesh.size());
  const size_t ranks = options.process_ranks > 0 ? std::min<size_t>(options.process_ranks, all) : all;
  size_t too_little = 0, to_free = 0;
  std::optional<size_t> enough;
  for (int i = 0, refined = 0; i < kMostTries && refined <= kMostRefinements; ++i) {
    trial.recompute.bytes_to_free = static_cast<double>(to_free);
    const CompiledProgram made = compile_program(source, trial);
    const size_t peak = process_bytes_of({&made});
    if (peak <= options.memory_limit) {
      enough = to_free;
    } else {
      too_little = to_free;
    }
    if (enough && *enough - too_little <= *enough / 32) break;
    if (enough) ++refined;
    const size_t each = (peak - std::min(peak, options.memory_limit)) / ranks + 1;
    to_free = enough ? (too_little + *enough) / 2 : std::max(to_free + each, to_free + to_free / 4);
  }
  ProgramOptions found = options;
  found.recompute_to_fit = false;
  found.recompute.kind = enough ? passes::Recompute::Kind::by_cost : passes::Recompute::Kind::full;
  found.recompute.bytes_to_free = static_cast<double>(enough.value_or(0));
  return found;
}

void require_small_reshards(const spmd::Program& program, int64_t most) {
  if (most < 0) fail("reshard", "changes of layout cannot be limited to {} bytes; give 0 or more", most);
  for (const ReshardSummary& reshard : summarize(program).reshards)
    if (reshard.bytes > most)
      fail("reshard",
           "'{}' has the layout {}, and {} needs it as {}: in {}, a rank receives {} bytes, more than the {} that are "
           "allowed; annotate one of the two differently, or allow more",
           reshard.tensor, reshard.from, reshard.consumer, reshard.to, fmt::join(reshard.steps, ", "), reshard.bytes,
           most);
}

void require_whole(const Source& source) {
  if (program_io::has_collectives(source.model) || program_io::says_shares(source.model))
    fail("compile",
         "'{}' contains collectives or shards of tensors, so it is split already; run or check it as it is, with a "
         "`mesh` of as many ranks as it was split for",
         source.path.string());
}

}  // namespace

void CompiledProgram::require_proof(ErrorKind kind) const {
  const proof::Report report = proof::prove(*programs);
  if (report.good()) return;
  const std::string fix = kind == ErrorKind::running ? ""
                          : programs->placed         ? "; write the program again"
                                                     : "; fix the ranks' models";
  throw Error(kind, "check", report.findings.front().message + fix);
}

runtime::DryRun CompiledProgram::dry_run(const Symbols& given) const {
  Symbols sizes = given;
  sizes.insert(program->hints.begin(), program->hints.end());
  return {runtime::programs_for(programs, sizes, for_sizes), sizes, sizing};
}

runtime::PlannedRank CompiledProgram::planned(int rank, const Symbols& sizes) const {
  const std::lock_guard lock(planned_->mutex);
  const auto known = planned_->ranks.find({rank, sizes});
  if (known != planned_->ranks.end()) return known->second;
  return planned_->ranks.emplace(std::pair(rank, sizes), runtime::planned_rank(dry_run(sizes), rank)).first->second;
}

size_t process_bytes_of(const std::vector<const CompiledProgram*>& all, size_t limit) {
  size_t most = 0;
  for (const std::vector<int>& ranks : ranks_of_processes(*all.front()->programs, all.front()->process_ranks)) {
    runtime::ProcessMemory memory;
    for (const CompiledProgram* program : all)
      runtime::add_ranks(memory, program->dry_run(), ranks, [&](int rank) { return program->planned(rank); });
    if (limit > 0)
      device::MemoryLimit(limit).require_plan(memory.peak(), [&] {
        std::vector<device::NamedBytes> pieces = runtime::pieces_of(all.front()->dry_run(), ranks);
        memory.add_to(pieces);
        return pieces;
      });
    most = std::max(most, memory.peak());
  }
  return most;
}

std::vector<int> ranks_of_classes(const runtime::RankPrograms& programs) {
  if (programs.program_of.empty()) return {0};
  std::vector<int> ranks;
  std::set<int> seen;
  for (size_t rank = 0; rank < programs.program_of.size(); ++rank)
    if (seen.insert(programs.program_of[rank]).second) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

CompiledProgram compile_program(const std::shared_ptr<const Source>& source, const ProgramOptions& options) {
  require_whole(*source);
  if (options.recompute_to_fit) return compile_program(source, with_recomputation(source, options));
  if (options.sharing && options.sharing->mesh.str() != options.mesh.str())
    fail("state", "states are shared with a program for the mesh {}, but this one is for {}; compile both for one mesh",
         options.sharing->mesh.str(), options.mesh.str());
  CompiledProgram made;
  const std::shared_ptr<Compiled> found = compiled(*source, options);
  made.compiled = found;
  made.program = found->program;
  made.rings = found->rings;
  made.sizing = options.sizing;
  made.process_ranks = options.process_ranks;
  made.programs = runtime::RankPrograms::same(made.program, source->files);
  made.for_sizes = [for_sizes = std::make_shared<ForSizes>(source, options, made.program)](const Symbols& fixed) {
    return (*for_sizes)(fixed);
  };
  if (options.max_reshard_bytes) require_small_reshards(*made.program, *options.max_reshard_bytes);
  const size_t needed = options.memory_limit > 0 ? process_bytes_of({&made}) : 0;
  if (needed > options.memory_limit) {
    if (options.product_rings == ProductRings::by_cost && has_rings(*found))
      return compile_without_rings(source, options, made.rings, needed);
    if (!options.bucket_bytes || options.early_starts) return compile_program(source, without_extra_memory(options));
    process_bytes_of({&made}, options.memory_limit);
  }
  return made;
}

}  // namespace tessera::compiler
