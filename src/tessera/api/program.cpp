#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "tessera/api/impl.h"
#include "tessera/base/error.h"
#include "tessera/base/saturated.h"
#include "tessera/compiler/explain.h"
#include "tessera/compiler/summary.h"
#include "tessera/compiler/tensor_info.h"
#include "tessera/ir/flow.h"
#include "tessera/ir/on_demand.h"
#include "tessera/join.h"
#include "tessera/ops/op.h"
#include "tessera/passes/pipeline.h"
#include "tessera/program_io/written_program.h"
#include "tessera/rewrite/pipeline.h"
#include "tessera/runtime/dry_run.h"
#include "tessera/spmd/partition/init.h"
#include "tessera/spmd/print.h"

namespace tessera {
inline namespace v1 {

std::vector<std::string> stages() {
  std::vector<std::string> names = {"import"};
  for (const rewrite::Pass& pass : rewrite::passes()) names.emplace_back(pass.name);
  names.emplace_back("lower_precision");
  names.emplace_back("propagate");
  names.emplace_back("partition");
  for (const passes::Pass& pass : passes::passes()) names.emplace_back(pass.name);
  return names;
}

namespace {

void require_rank(const Mesh& mesh, int64_t rank) {
  const int64_t ranks = mesh.size();
  if (rank < 0 || rank >= ranks) fail("plan", "the mesh has no rank {}; its ranks are 0 to {}", rank, ranks - 1);
}

std::shared_ptr<Program::Impl> compiled(const Model& model, const Mesh& mesh, const Plan& plan,
                                        const CompileOptions& options, const spmd::Program* sharing) {
  compiler::CompileOptions asked;
  asked.sharing = sharing;
  asked.mesh = mesh;
  asked.presets = plan.presets;
  for (const Plan::Annotation& annotation : plan.annotations) {
    asked.annotations.push_back(compiler::AnnotationRequest::parse(annotation.text, annotation.by));
    asked.annotations.back().optional = annotation.optional;
  }
  for (const Plan::Annotation& place : plan.places)
    asked.places.push_back(compiler::PlaceRequest::parse(place.text, place.by));
  for (const Plan::Annotation& store : plan.storage)
    asked.storage.push_back(compiler::AnnotationRequest::parse(store.text, store.by, "store"));
  asked.keep_gathered = plan.keep_gathered;
  asked.recompute = passes::Recompute::parse(plan.recompute);
  asked.recompute.keep_gathered = plan.keep_gathered;
  asked.ring_attention = passes::parse_ring_attention(plan.ring_attention);
  if (plan.bucket_bytes.value_or(0) < 0)
    fail("buckets", "a bucket cannot have {} bytes; give 0 or more", *plan.bucket_bytes);
  asked.bucket_bytes = plan.bucket_bytes;
  asked.shapes = plan.shapes;
  asked.compute = plan.dtype.value_or(DType::float32);
  asked.keep = options.keep;
  asked.observe = options.observe;
  asked.topology = options.topology;
  asked.topology.require_fits(mesh);
  auto impl = std::make_shared<Program::Impl>();
  impl->sizing.threads_per_rank = options.run.threads_per_rank;
  impl->sizing.machine_ranks = options.run.machine_ranks;
  impl->sizing.overlap = options.run.overlap;
  impl->sizing.prefetch = options.run.prefetch;
  impl->sizing.saves = options.run.checkpoints;
  impl->process_ranks = options.run.process_ranks;
  const bool as_rewritten = asked.annotations.empty() && asked.places.empty() && asked.keep.empty() && !asked.observe &&
                            !compiler::names_rewritten_state(model.impl().model, model.impl().rewritten(), asked);
  impl->compiled = as_rewritten ? compiler::compile_rewritten(model.impl().model, model.impl().rewritten(), asked)
                                : compiler::compile(model.impl().model, asked);
  impl->program = impl->compiled->program;
  return impl;
}

// Ranks of a class are equally large, or differ by a unit of a dimension.
std::vector<int> ranks_of_classes(const runtime::RankPrograms& programs) {
  if (programs.program_of.empty()) return {0};
  std::vector<int> ranks;
  std::set<int> seen;
  for (size_t rank = 0; rank < programs.program_of.size(); ++rank)
    if (seen.insert(programs.program_of[rank]).second) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

// The ranks of each process, one for all that run alike programs.
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

runtime::DryRun dry_run(const Program::Impl& impl, const SymbolSizes& given) {
  SymbolSizes sizes = given;
  sizes.insert(impl.program->hints.begin(), impl.program->hints.end());
  return {runtime::programs_for(impl.programs, sizes, impl.for_sizes), sizes, impl.sizing};
}

runtime::PlannedRank planned(const Program::Impl& impl, int rank, const SymbolSizes& sizes) {
  std::lock_guard lock(impl.known);
  if (const auto known = impl.planned.find({rank, sizes}); known != impl.planned.end()) return known->second;
  return impl.planned.emplace(std::pair(rank, sizes), runtime::planned_rank(dry_run(impl, sizes), rank)).first->second;
}

// The most that any process needs for its ranks at the plan's sizes, which run all of these programs; a user error if
// that is more than the limit, unless it is 0.
size_t process_bytes_of(const std::vector<const Program::Impl*>& all, size_t limit) {
  size_t most = 0;
  for (const std::vector<int>& ranks : ranks_of_processes(*all.front()->programs, all.front()->process_ranks)) {
    runtime::ProcessMemory memory;
    for (const Program::Impl* impl : all)
      runtime::add_ranks(memory, dry_run(*impl, {}), ranks, [&](int rank) { return planned(*impl, rank, {}); });
    if (limit > 0)
      device::MemoryLimit(limit).require_plan(memory.peak(), [&] {
        std::vector<device::NamedBytes> pieces = runtime::pieces_of(dry_run(*all.front(), {}), ranks);
        memory.add_to(pieces);
        return pieces;
      });
    most = std::max(most, memory.peak());
  }
  return most;
}

// Compiles a model for fixed sizes of some symbols, with the states of the program for all sizes, and keeps the latest
// results.
class ForSizes {
 public:
  ForSizes(Model model, Mesh mesh, Plan plan, CompileOptions options, std::shared_ptr<const spmd::Program> all)
      : model_(std::move(model)),
        mesh_(std::move(mesh)),
        plan_(std::move(plan)),
        options_(std::move(options)),
        all_(std::move(all)) {
    options_.observe = nullptr;
  }

  std::shared_ptr<const runtime::RankPrograms> operator()(const SymbolSizes& fixed) {
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

  std::shared_ptr<const runtime::RankPrograms> make(const SymbolSizes& fixed) const {
    Plan plan = plan_;
    for (const auto& [symbol, size] : fixed) plan.shapes.erase(symbol);
    try {
      std::shared_ptr<Program::Impl> impl = compiled(model_.with_sizes(fixed), mesh_, plan, options_, all_.get());
      compiler::share_data(*impl->compiled->program, *all_);
      impl->programs = runtime::RankPrograms::same(impl->program, model_.impl().files);
      Program program(impl);
      api::require_proof(program, ErrorKind::running);
      return impl->programs;
    } catch (const Error& error) {
      std::string sizes;
      for (const auto& [symbol, size] : fixed) sizes += fmt::format("{}{}={}", sizes.empty() ? "" : ",", symbol, size);
      throw Error(error.kind(), "inputs", fmt::format("the model does not run where {}: {}", sizes, error.what()));
    }
  }

  const Model model_;
  const Mesh mesh_;
  Plan plan_;
  CompileOptions options_;
  const std::shared_ptr<const spmd::Program> all_;  ///< for sizes that are not fixed
  std::mutex mutex_;
  std::vector<std::pair<SymbolSizes, std::shared_ptr<const runtime::RankPrograms>>> made_;  ///< the last used first
};

// Buckets need memory of their own, and save little time beside what a plan that lacks memory has to do.
Plan without_buckets(const Plan& plan) {
  Plan alone = plan;
  if (!alone.bucket_bytes) alone.bucket_bytes = 0;
  return alone;
}

// The plan with as much recomputation as it takes to fit into the limit. What a choice frees on a rank is an estimate,
// since buffers share memory, so the next one frees as much more as this one lacks; then, less and less more than it
// takes.
Plan with_recomputation(const Model& model, const Mesh& mesh, const Plan& plan, const CompileOptions& options) {
  if (options.memory_limit == 0)
    fail("recompute", "'auto' recomputes what does not fit into a memory limit; give one with --memory-limit");
  CompileOptions trial = options;
  trial.memory_limit = 0;
  trial.observe = nullptr;
  Plan tried = without_buckets(plan);
  constexpr int kMostTries = 10, kMostRefinements = 5;
  const auto all = static_cast<size_t>(mesh.size());
  const size_t ranks = options.run.process_ranks > 0 ? std::min<size_t>(options.run.process_ranks, all) : all;
  size_t too_little = 0, to_free = 0;
  std::optional<size_t> enough;
  for (int i = 0, refined = 0; i < kMostTries && refined <= kMostRefinements; ++i) {
    tried.recompute = fmt::format("auto:{}", to_free);
    const Program program = compile(model, mesh, tried, trial);
    const size_t peak = process_bytes_of({&program.impl()}, 0);
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
  tried.bucket_bytes = plan.bucket_bytes;
  tried.recompute = enough ? fmt::format("auto:{}", *enough) : "full";
  return tried;
}

}  // namespace

namespace {

void require_small_reshards(const ProgramSummary& summary, int64_t most) {
  if (most < 0) fail("reshard", "changes of layout cannot be limited to {} bytes; give 0 or more", most);
  for (const ReshardSummary& reshard : summary.reshards)
    if (reshard.bytes > most)
      fail("reshard",
           "'{}' has the layout {}, and {} needs it as {}: in {}, a rank receives {} bytes, more than the {} that are "
           "allowed; annotate one of the two otherwise, or allow more",
           reshard.tensor, reshard.from, reshard.consumer, reshard.to, fmt::join(reshard.steps, ", "), reshard.bytes,
           most);
}

}  // namespace

Program compile(const Model& model, const Mesh& mesh, const Plan& plan, const CompileOptions& options) {
  if (!plan.states.empty()) {
    Plan rest = plan;
    rest.states.clear();
    return compile(model.with_states(plan.states), mesh, rest, options);
  }
  if (has_collectives(model))
    fail(
        "compile",
        "'{}' holds collectives, or shares of tensors: it is split already; run or check it as it is, with a --mesh of "
        "as many ranks as it was split for",
        model.path().string());
  if (plan.recompute == "auto") return compile(model, mesh, with_recomputation(model, mesh, plan, options), options);
  const spmd::Program* sharing = options.sharing ? options.sharing->impl().program.get() : nullptr;
  if (sharing && sharing->mesh.str() != mesh.str())
    fail("state", "states are shared with a program for the mesh {}, but this one is for {}; compile both for one mesh",
         sharing->mesh.str(), mesh.str());
  std::shared_ptr<Program::Impl> impl = compiled(model, mesh, plan, options, sharing);
  impl->source = model.path().filename().string();
  if (!plan.presets.empty()) impl->source += ", presets " + plan.presets;
  if (!plan.annotations.empty()) impl->source += fmt::format(", {} annotations", plan.annotations.size());
  if (!plan.places.empty()) impl->source += fmt::format(", {} places", plan.places.size());
  impl->programs = runtime::RankPrograms::same(impl->program, model.impl().files);
  impl->for_sizes = [made = std::make_shared<ForSizes>(model, mesh, plan, options, impl->program)](
                        const SymbolSizes& fixed) { return (*made)(fixed); };
  impl->summary = compiler::summarize(*impl->program);
  impl->summary.notes = impl->compiled->notes;
  impl->summary.warnings = impl->compiled->warnings;
  if (plan.max_reshard_bytes) require_small_reshards(impl->summary, *plan.max_reshard_bytes);
  if (options.memory_limit > 0 && process_bytes_of({impl.get()}, 0) > options.memory_limit) {
    if (const Plan alone = without_buckets(plan); alone.bucket_bytes != plan.bucket_bytes)
      return compile(model, mesh, alone, options);
    process_bytes_of({impl.get()}, options.memory_limit);
  }
  return Program(std::move(impl));
}

const Mesh& Program::mesh() const {
  return impl_->program->mesh;
}
std::vector<TensorInfo> Program::inputs() const {
  std::vector<TensorInfo> all;
  for (const spmd::Port& port : impl_->program->inputs)
    all.push_back(compiler::info_of(port.name, impl_->program->placement(port.value).global));
  return all;
}
std::vector<TensorInfo> Program::outputs() const {
  std::vector<TensorInfo> all;
  for (size_t i = 0; i < impl_->program->outputs.size(); ++i)
    all.push_back(compiler::info_of(impl_->program->outputs[i].name, impl_->programs->output(i).placement->global));
  return all;
}
std::vector<StateInfo> Program::states() const {
  std::vector<StateInfo> all;
  std::set<std::string> seen;
  std::map<std::string, size_t> divided;  // by name
  const auto place_for = [&](const spmd::Placement& placement) -> StateInfo& {
    if (!placement.origin) return all.emplace_back();
    const StateOrigin& origin = *placement.origin;
    auto [known, fresh] = divided.try_emplace(origin.name, all.size());
    if (fresh)
      all.emplace_back().tensor =
          compiler::info_of(origin.name, {placement.global.dtype, Shape(origin.dims.begin(), origin.dims.end())});
    StateInfo& piece = all[known->second].pieces.emplace_back();
    piece.begin = origin.begin;
    return piece;
  };
  for (const auto& program : impl_->programs->programs) {
    const auto layouts = spmd::layouts_in_use(*program);
    for (const Value* value : program->graph->values_of(ValueKind::state)) {
      if (program->derived.contains(value)) continue;
      const spmd::Placement& placement = program->placement(value);
      if (!seen.insert(placement.name).second) continue;
      StateInfo& state = place_for(placement);
      state.tensor = compiler::info_of(placement.name, placement.global);
      state.changes = value->changing;
      if (placement.origin) all[divided.at(placement.origin->name)].changes = value->changing;
      state.storage = placement.sharding.str(program->mesh);
      state.bytes = static_cast<int64_t>(spmd::hinted(largest_shard(placement.sharding, program->mesh), {})) *
                    bits_of(value->dtype()) / 8;
      if (auto used = layouts.find(placement.name); used != layouts.end()) state.compute = used->second;
    }
  }
  for (StateInfo& state : all)
    for (const StateInfo& piece : state.pieces) state.bytes += piece.bytes;
  return all;
}
const ProgramSummary& Program::summary() const {
  return impl_->summary;
}
std::string Program::text() const {
  return spmd::print_program(*impl_->program);
}

bool Program::can_explain(const std::string& tensor) const {
  return impl_->compiled && compiler::can_explain(*impl_->compiled, tensor);
}

Explanation Program::explain(const std::string& tensor) const {
  if (!impl_->compiled)
    fail("explain", "'{}': a written program does not record why its layouts were chosen; explain the model", tensor);
  return compiler::explain(*impl_->compiled, tensor);
}

void Program::write(const std::filesystem::path& folder, const WriteOptions& options) const {
  if (!impl_->compiled)
    fail("write", "'{}': a program that was read is already written; copy its folder", folder.string());
  api::require_proof(*this, ErrorKind::running);
  program_io::write_program(*impl_->program, impl_->source, folder, options);
}

Program Program::read(const std::filesystem::path& folder, bool changed_models) {
  auto impl = std::make_shared<Program::Impl>();
  impl->programs = program_io::read_program(folder, changed_models);
  impl->program = impl->programs->programs.front();
  impl->summary = compiler::summarize(*impl->program);
  return Program(std::move(impl));
}

bool Program::is_written(const std::filesystem::path& path) {
  return program_io::is_written_program(path);
}

namespace {

// A program at some sizes, as one rank has it.
struct OfRank {
  OfRank(const Program::Impl& impl, int64_t which, const SymbolSizes& given) : rank(static_cast<int>(which)) {
    require_rank(impl.program->mesh, which);
    sizes = given;
    sizes.insert(impl.program->hints.begin(), impl.program->hints.end());
    programs = runtime::programs_for(impl.programs, sizes, impl.for_sizes);
  }

  const spmd::Program& program() const { return programs->of(rank); }
  double at(const Expr& expr) const {
    const Mesh& mesh = programs->mesh();
    return spmd::hinted(bind_rank(expr, mesh, mesh.coordinates(rank)), sizes);
  }
  std::vector<const Value*> states() const {  // that it holds during steps
    std::vector<const Value*> held;
    for (const Value* state : program().graph->values_of(ValueKind::state))
      if (spmd::step_keeps(program(), state)) held.push_back(state);
    return held;
  }
  int64_t bytes_of_state(const Value* state) const {
    return static_cast<int64_t>(bytes_of(state->dtype(), saturated(at(product(state->shape())))));
  }
  int64_t state_bytes() const {
    int64_t bytes = 0;
    for (const Value* state : states()) bytes += bytes_of_state(state);
    return bytes;
  }
  // Those of one text have the same elements.
  std::string text_of(const Value* state) const {
    const auto data = program().initial.find(state);
    if (data == program().initial.end()) return "";
    const spmd::Placement& placement = program().placement(state);
    return fmt::format("{} {} {} {} {}", state->name, name_of(state->dtype()), to_string(state->shape()),
                       placement.sharding.str(programs->mesh()), origin_of(data->second));
  }

  int rank;
  SymbolSizes sizes;
  std::shared_ptr<const runtime::RankPrograms> programs;
};

}  // namespace

RankFigures Program::figures(int64_t rank, const SymbolSizes& sizes) const {
  {
    const std::lock_guard lock(impl_->known);
    if (const auto known = impl_->figures.find({rank, sizes}); known != impl_->figures.end()) return known->second;
  }
  const OfRank of(*impl_, rank, sizes);
  double flops = 0;
  const Graph& graph = *of.program().graph;
  const flow::Flow flow = flow::flow_of(graph);
  for (const auto& node : graph.nodes()) flops += of.at(flow::runs_of(flow, node.get())) * of.at(ops::flops_of(*node));
  const runtime::MemoryUse use = planned(*impl_, of.rank, sizes).use;
  const RankFigures made{static_cast<int64_t>(use.peak),        of.state_bytes(),
                         static_cast<int64_t>(use.activations), static_cast<int64_t>(use.gradients),
                         static_cast<int64_t>(use.copies),      saturated(flops)};
  const std::lock_guard lock(impl_->known);
  return impl_->figures.emplace(std::pair(rank, sizes), made).first->second;
}

std::vector<int64_t> Program::unlike_ranks() const {
  const std::vector<int> ranks = ranks_of_classes(*OfRank(*impl_, 0, {}).programs);
  return {ranks.begin(), ranks.end()};
}

int64_t Program::process_bytes() const {
  return static_cast<int64_t>(process_bytes_of({impl_.get()}, 0));
}

int64_t Program::process_bytes_with(const Program& other) const {
  return static_cast<int64_t>(process_bytes_of({impl_.get(), &other.impl()}, 0));
}

int64_t Program::shared_bytes(int64_t rank, const Program& other) const {
  const OfRank own(*impl_, rank, {}), beside(other.impl(), rank, {});
  std::set<std::string> fixed;
  for (const Value* state : beside.states())
    if (std::string text = beside.text_of(state); !text.empty() && !state->changing) fixed.insert(std::move(text));
  int64_t bytes = 0;
  for (const Value* state : own.states())
    if (state->changing || fixed.contains(own.text_of(state))) bytes += own.bytes_of_state(state);
  return bytes;
}

std::vector<MemoryMoment> Program::memory_over_time(int64_t rank, const SymbolSizes& sizes) const {
  const OfRank of(*impl_, rank, sizes);
  const int64_t states = of.state_bytes();
  std::vector<MemoryMoment> moments;
  for (const runtime::MemoryMoment& moment :
       runtime::memory_over_time({of.programs, of.sizes, impl_->sizing}, of.rank)) {
    const auto activations = static_cast<int64_t>(moment.use.activations),
               gradients = static_cast<int64_t>(moment.use.gradients);
    moments.push_back({moment.operation, states, activations, gradients,
                       static_cast<int64_t>(moment.use.peak) - states - activations - gradients});
  }
  return moments;
}

std::string Program::machine(int64_t rank, const SymbolSizes& sizes, const SessionOptions& options) const {
  const OfRank of(*impl_, rank, sizes);
  runtime::ExecutorOptions asked;
  asked.device = options.device;
  asked.threads_per_rank = options.threads_per_rank;
  asked.keep_all = options.keep_all;
  asked.overlap = options.overlap;
  asked.prefetch = options.prefetch;
  std::string title;
  for (const auto& [symbol, size] : of.sizes) title += fmt::format("{}{}={}", title.empty() ? ", " : ",", symbol, size);
  return fmt::format("rank {} of {}{}\n", rank, mesh().axes().empty() ? "one" : mesh().str(), title) +
         runtime::machine_text_of_rank({of.programs, of.sizes, asked}, of.rank);
}

}  // namespace v1
}  // namespace tessera
