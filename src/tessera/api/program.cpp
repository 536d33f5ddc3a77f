#include <fmt/format.h>

#include <mutex>

#include "tessera/api/impl.h"
#include "tessera/base/error.h"
#include "tessera/compiler/explain.h"
#include "tessera/compiler/rank_view.h"
#include "tessera/compiler/state_infos.h"
#include "tessera/compiler/summary.h"
#include "tessera/compiler/tensor_info.h"
#include "tessera/passes/pipeline.h"
#include "tessera/program_io/written_program.h"
#include "tessera/rewrite/pipeline.h"
#include "tessera/spmd/print.h"

namespace tessera {
inline namespace v1 {

std::vector<std::string> stages() {
  std::vector<std::string> names = {"schedule", "import"};
  for (const rewrite::Pass& pass : rewrite::passes()) names.emplace_back(pass.name);
  names.emplace_back("lower_precision");
  names.emplace_back("propagate");
  names.emplace_back("partition");
  for (const passes::Pass& pass : passes::passes()) names.emplace_back(pass.name);
  return names;
}

namespace {

std::string description_of(const std::filesystem::path& model, const Plan& plan) {
  std::string text = model.filename().string();
  if (!plan.presets.empty()) text += ", presets " + plan.presets;
  if (!plan.annotations.empty()) text += fmt::format(", {} annotations", plan.annotations.size());
  if (!plan.places.empty()) text += fmt::format(", {} places", plan.places.size());
  return text;
}

}  // namespace
}  // namespace v1

namespace api {

compiler::ProgramOptions program_options(const Mesh& mesh, const Plan& plan, const CompileOptions& options) {
  compiler::ProgramOptions asked;
  asked.mesh = mesh;
  asked.presets = plan.presets;
  for (const Plan::Annotation& annotation : plan.annotations) {
    asked.annotations.push_back(compiler::AnnotationRequest::parse(annotation.text, annotation.by));
    asked.annotations.back().optional = annotation.optional;
  }
  for (const Plan::Annotation& place : plan.places)
    asked.places.push_back(compiler::PlaceRequest::parse(place.text, place.by));
  asked.pipeline = compiler::PipelineRequest::parse(plan.pipeline, plan.stages, mesh, asked.places);
  for (const Plan::Annotation& store : plan.storage)
    asked.storage.push_back(compiler::AnnotationRequest::parse(store.text, store.by, "store"));
  asked.keep_gathered = plan.keep_gathered;
  asked.recompute_to_fit = plan.recompute == compiler::kRecomputeToFit;
  if (!asked.recompute_to_fit) asked.recompute = passes::Recompute::parse(plan.recompute);
  asked.recompute.keep_gathered = plan.keep_gathered;
  asked.ring_attention = passes::parse_ring_attention(plan.ring_attention);
  asked.product_rings = compiler::parse_product_rings(plan.overlap);
  asked.narrow_sums = compiler::parse_narrow_sums(plan.partial_sums);
  if (plan.bucket_bytes.value_or(0) < 0)
    fail("buckets", "a bucket cannot have {} bytes; give 0 or more", *plan.bucket_bytes);
  asked.bucket_bytes = plan.bucket_bytes;
  asked.max_reshard_bytes = plan.max_reshard_bytes;
  asked.shapes = plan.shapes;
  asked.compute = plan.dtype.value_or(DType::float32);
  asked.keep = options.keep;
  asked.observe = options.observe;
  asked.topology = options.topology;
  asked.topology.require_fits(mesh);
  asked.machine = options.machine;
  asked.memory_limit = options.memory_limit;
  if (options.sharing) asked.sharing = options.sharing->impl().program.get();
  asked.sizing.threads_per_rank = options.run.threads_per_rank;
  asked.sizing.machine_ranks = options.run.machine_ranks;
  asked.sizing.overlap = options.run.overlap;
  asked.sizing.prefetch = options.run.prefetch;
  asked.sizing.saves = options.run.checkpoints;
  asked.process_ranks = options.run.process_ranks;
  return asked;
}

Program program_of(compiler::CompiledProgram made, const std::filesystem::path& model, const Plan& plan) {
  ProgramSummary summary = compiler::summarize(*made.program);
  summary.notes = made.compiled->notes;
  summary.warnings = made.compiled->warnings;
  for (const compiler::RingOutcome& each : made.rings)
    summary.rings.push_back({each.collective, each.count, each.bytes, each.taken, each.why});
  return Program(std::make_shared<Program::Impl>(std::move(made), std::move(summary), description_of(model, plan)));
}

Program program_of(std::shared_ptr<const runtime::RankPrograms> programs) {
  compiler::CompiledProgram read;
  read.program = programs->programs.front();
  read.programs = std::move(programs);
  ProgramSummary summary = compiler::summarize(*read.program);
  return Program(std::make_shared<Program::Impl>(std::move(read), std::move(summary), ""));
}

}  // namespace api

inline namespace v1 {

Program compile(const Model& model, const Mesh& mesh, const Plan& plan, const CompileOptions& options) {
  if (!plan.states.empty()) {
    Plan rest = plan;
    rest.states.clear();
    return compile(model.with_states(plan.states), mesh, rest, options);
  }
  const auto source = std::shared_ptr<const compiler::Source>(model.shared_impl());
  return api::program_of(compiler::compile_program(source, api::program_options(mesh, plan, options)), model.path(),
                         plan);
}

const Mesh& Program::mesh() const {
  return impl().program->mesh;
}
std::vector<TensorInfo> Program::inputs() const {
  std::vector<TensorInfo> all;
  for (const spmd::Port& port : impl().program->inputs)
    all.push_back(compiler::info_of(port.name, impl().program->placement(port.value).global));
  return all;
}
std::vector<TensorInfo> Program::outputs() const {
  std::vector<TensorInfo> all;
  for (size_t i = 0; i < impl().program->outputs.size(); ++i)
    all.push_back(compiler::info_of(impl().program->outputs[i].name, impl().programs->output(i).placement->global));
  return all;
}
std::vector<StateInfo> Program::states() const {
  return compiler::states_of(impl().programs->programs);
}

std::vector<StateInfo> Program::states_of(int64_t rank) const {
  if (rank < 0 || rank >= mesh().size()) fail("program", "there is no rank {} on the mesh '{}'", rank, mesh().str());
  const runtime::RankPrograms& all = *impl().programs;
  const size_t own = all.program_of.empty() ? 0 : static_cast<size_t>(all.program_of[static_cast<size_t>(rank)]);
  return compiler::states_of(std::span(all.programs).subspan(own, 1));
}
const ProgramSummary& Program::summary() const {
  return impl().summary;
}
std::string Program::text() const {
  return spmd::print_program(*impl().program);
}

bool Program::can_explain(const std::string& tensor) const {
  return impl().compiled && compiler::can_explain(*impl().compiled, tensor);
}

Explanation Program::explain(const std::string& tensor) const {
  if (!impl().compiled)
    fail("explain", "'{}': a written program does not record why its layouts were chosen; explain the model", tensor);
  return compiler::explain(*impl().compiled, tensor);
}

std::vector<Explanation> Program::explanations() const {
  return impl().compiled ? compiler::explain_all(*impl().compiled) : std::vector<Explanation>{};
}

void Program::write(const std::filesystem::path& folder, const WriteOptions& options) const {
  if (!impl().compiled)
    fail("write", "'{}': a program that was read is already written; copy its folder", folder.string());
  impl().require_proof(ErrorKind::running);
  program_io::write_program(*impl().program, impl().source, folder, options);
}

Program Program::read(const std::filesystem::path& folder, bool changed_models) {
  return api::program_of(program_io::read_program(folder, changed_models));
}

bool Program::is_written(const std::filesystem::path& path) {
  return program_io::is_written_program(path);
}

RankFigures Program::figures(int64_t rank, const SymbolSizes& sizes) const {
  {
    const std::lock_guard lock(impl().known);
    if (const auto known = impl().figures.find({rank, sizes}); known != impl().figures.end()) return known->second;
  }
  const RankFigures made = compiler::RankView(impl(), rank, sizes).figures();
  const std::lock_guard lock(impl().known);
  return impl().figures.emplace(std::pair(rank, sizes), made).first->second;
}

std::vector<int64_t> Program::unlike_ranks() const {
  const std::vector<int> ranks = compiler::RankView(impl(), 0, {}).unlike_ranks();
  return {ranks.begin(), ranks.end()};
}

int64_t Program::process_bytes() const {
  return static_cast<int64_t>(compiler::process_bytes_of({&impl()}));
}

int64_t Program::process_bytes_with(const Program& other) const {
  return static_cast<int64_t>(compiler::process_bytes_of({&impl(), &other.impl()}));
}

int64_t Program::shared_bytes(int64_t rank, const Program& other) const {
  return compiler::RankView(impl(), rank, {}).bytes_shared_with(compiler::RankView(other.impl(), rank, {}));
}

std::vector<MemoryMoment> Program::memory_over_time(int64_t rank, const SymbolSizes& sizes) const {
  return compiler::RankView(impl(), rank, sizes).memory_over_time();
}

std::string Program::machine(int64_t rank, const SymbolSizes& sizes, const SessionOptions& options) const {
  runtime::ExecutorOptions asked;
  asked.device = options.device;
  asked.threads_per_rank = options.threads_per_rank;
  asked.keep_all = options.keep_all;
  asked.overlap = options.overlap;
  asked.prefetch = options.prefetch;
  return compiler::RankView(impl(), rank, sizes).machine_text(asked);
}

}  // namespace v1
}  // namespace tessera
