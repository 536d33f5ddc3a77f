#include "tessera/compiler/programs.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "tessera/compiler/summary.h"
#include "tessera/program_io/lone_model.h"
#include "tessera/program_io/rank_graph.h"
#include "tessera/proof/prove.h"

namespace tessera::compiler {
namespace {

std::shared_ptr<Compiled> compiled(const Source& source, const ProgramOptions& options) {
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

// The most that any rank needs at the plan's sizes; a user error if that is more than the limit, unless it is 0.
size_t peak_bytes_of(const CompiledProgram& made, size_t limit) {
  runtime::ExecutorOptions sizing = made.sizing;
  sizing.memory_limit = limit;
  const auto& hints = made.program->hints;
  const auto programs = runtime::programs_for(made.programs, hints, made.for_sizes);
  size_t most = 0;
  for (int rank : ranks_of_classes(*programs))
    most = std::max(most, runtime::memory_of_rank(programs, rank, hints, sizing).peak);
  return most;
}

// Buckets need memory of their own, and save little time beside what a program that lacks memory has to do.
ProgramOptions without_buckets(const ProgramOptions& options) {
  ProgramOptions alone = options;
  if (!alone.bucket_bytes) alone.bucket_bytes = 0;
  return alone;
}

// The options with as much recomputation as it takes to fit into the limit. What a choice frees is an estimate, since
// buffers share memory, so the next one frees as much more as this one lacks; then, less and less more than it takes.
ProgramOptions with_recomputation(const std::shared_ptr<const Source>& source, const ProgramOptions& options) {
  if (options.memory_limit == 0)
    fail("recompute", "'auto' computes as much again as fits into a limit; say what may be used, with --memory-limit");
  ProgramOptions trial = without_buckets(options);
  trial.recompute_to_fit = false;
  trial.memory_limit = 0;
  trial.max_reshard_bytes.reset();
  trial.observe = nullptr;
  trial.recompute.kind = passes::Recompute::Kind::by_cost;
  constexpr int kMostTries = 10, kMostRefinements = 5;
  size_t too_little = 0, to_free = 0;
  std::optional<size_t> enough;
  for (int i = 0, refined = 0; i < kMostTries && refined <= kMostRefinements; ++i) {
    trial.recompute.bytes_to_free = static_cast<double>(to_free);
    const size_t peak = peak_bytes_of(compile_program(source, trial), 0);
    if (peak <= options.memory_limit) {
      enough = to_free;
    } else {
      too_little = to_free;
    }
    if (enough && *enough - too_little <= *enough / 32) break;
    if (enough) ++refined;
    to_free =
        enough ? (too_little + *enough) / 2 : std::max(to_free + (peak - options.memory_limit), to_free + to_free / 4);
  }
  ProgramOptions found = options;
  found.recompute_to_fit = false;
  found.recompute.kind = enough ? passes::Recompute::Kind::by_cost : passes::Recompute::Kind::full;
  found.recompute.bytes_to_free = static_cast<double>(enough.value_or(0));
  return found;
}

void require_small_reshards(const spmd::Program& program, int64_t most) {
  if (most < 0) fail("reshard", "changes of layout of at most {} bytes are none; give 0 or more", most);
  for (const ReshardSummary& reshard : summarize(program).reshards)
    if (reshard.bytes > most)
      fail(
          "reshard",
          "'{}' lies as {}, and {} needs it as {}: in {}, a rank receives {} bytes, more than the {} that are allowed; "
          "annotate either of the two otherwise, or allow more",
          reshard.tensor, reshard.from, reshard.consumer, reshard.to, fmt::join(reshard.steps, ", "), reshard.bytes,
          most);
}

void require_whole(const Source& source) {
  if (program_io::has_collectives(source.model) || program_io::says_shares(source.model))
    fail("compile",
         "'{}' holds collectives, or shares of tensors: it is split already; run or check it as it is, with a --mesh "
         "of as many ranks as it was split for",
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
  made.sizing = options.sizing;
  made.programs = runtime::RankPrograms::same(made.program, source->files);
  made.for_sizes = [for_sizes = std::make_shared<ForSizes>(source, options, made.program)](const Symbols& fixed) {
    return (*for_sizes)(fixed);
  };
  if (options.max_reshard_bytes) require_small_reshards(*made.program, *options.max_reshard_bytes);
  if (options.memory_limit > 0 && peak_bytes_of(made, 0) > options.memory_limit) {
    if (!options.bucket_bytes) return compile_program(source, without_buckets(options));
    peak_bytes_of(made, options.memory_limit);
  }
  return made;
}

}  // namespace tessera::compiler
