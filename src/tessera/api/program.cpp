#include "tessera/api/impl.h"
#include "tessera/api/written_program.h"
#include "tessera/base/error.h"
#include "tessera/join.h"
#include "tessera/ops/op.h"
#include "tessera/passes/pipeline.h"
#include "tessera/rewrite/pipeline.h"
#include "tessera/runtime/executor.h"
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

Program compile(const Model& model, const Mesh& mesh, const Plan& plan, const CompileOptions& options) {
  if (has_collectives(model))
    fail(
        "compile",
        "'{}' holds collectives, or shares of tensors: it is split already; run or check it as it is, with a --mesh of "
        "as many ranks as it was split for",
        model.path().string());
  api::CompileOptions asked;
  asked.mesh = mesh;
  asked.presets = plan.presets;
  for (const Plan::Annotation& annotation : plan.annotations)
    asked.annotations.push_back(api::AnnotationRequest::parse(annotation.text, annotation.by));
  for (const Plan::Annotation& place : plan.places)
    asked.places.push_back(api::PlaceRequest::parse(place.text, place.by));
  asked.shapes = plan.shapes;
  asked.compute = plan.dtype.value_or(DType::float32);
  asked.keep = options.keep;
  asked.observe = options.observe;
  asked.topology = options.topology;
  asked.topology.require_fits(mesh);
  auto impl = std::make_shared<Program::Impl>();
  impl->source = model.path().filename().string();
  if (!plan.presets.empty()) impl->source += ", presets " + plan.presets;
  if (!plan.annotations.empty()) impl->source += fmt::format(", {} annotations", plan.annotations.size());
  if (!plan.places.empty()) impl->source += fmt::format(", {} places", plan.places.size());
  bool as_rewritten = asked.annotations.empty() && asked.places.empty() && asked.keep.empty() && !asked.observe;
  impl->compiled = as_rewritten ? api::compile_rewritten(model.impl().model, model.impl().rewritten(), asked)
                                : api::compile(model.impl().model, asked);
  impl->program = impl->compiled->program;
  impl->programs = runtime::RankPrograms::same(impl->program);
  impl->summary = api::summarize(*impl->program);
  impl->summary.notes = impl->compiled->notes;
  impl->summary.warnings = impl->compiled->warnings;
  return Program(std::move(impl));
}

const Mesh& Program::mesh() const {
  return impl_->program->mesh;
}
std::vector<TensorInfo> Program::inputs() const {
  std::vector<TensorInfo> all;
  for (const spmd::Port& port : impl_->program->inputs)
    all.push_back(api::info_of(port.name, impl_->program->placement(port.value).global));
  return all;
}
std::vector<TensorInfo> Program::outputs() const {
  std::vector<TensorInfo> all;
  for (size_t i = 0; i < impl_->program->outputs.size(); ++i)
    all.push_back(api::info_of(impl_->program->outputs[i].name, impl_->programs->output(i).placement->global));
  return all;
}
const ProgramSummary& Program::summary() const {
  return impl_->summary;
}
std::string Program::text() const {
  return spmd::print_program(*impl_->program);
}

Explanation Program::explain(const std::string& tensor) const {
  if (!impl_->compiled)
    fail("explain", "'{}': a written program does not tell why its layouts are as they are; explain the model", tensor);
  return api::explain(*impl_->compiled, tensor);
}

void Program::write(const std::filesystem::path& folder, const WriteOptions& options) const {
  if (!impl_->compiled)
    fail("write", "'{}': a program that was read is written already; copy its folder", folder.string());
  api::require_proof(*this, ErrorKind::running);
  api::write_program(*impl_->program, impl_->source, folder, options);
}

Program Program::read(const std::filesystem::path& folder, bool changed_models) {
  auto impl = std::make_shared<Program::Impl>();
  impl->programs = api::read_program(folder, changed_models);
  impl->program = impl->programs->programs.front();
  impl->summary = api::summarize(*impl->program);
  return Program(std::move(impl));
}

bool Program::is_written(const std::filesystem::path& path) {
  return api::is_written_program(path);
}

RankFigures Program::figures(int64_t rank, const SymbolSizes& sizes) const {
  int64_t ranks = mesh().size();
  if (rank < 0 || rank >= ranks) fail("plan", "the mesh has no rank {}; its ranks are 0 to {}", rank, ranks - 1);
  SymbolSizes all = sizes;
  all.insert(impl_->program->hints.begin(), impl_->program->hints.end());
  const spmd::Program& program = impl_->programs->of(static_cast<int>(rank));
  const std::vector<int64_t> coordinates = mesh().coordinates(rank);
  auto of_rank = [&](const Expr& expr) { return spmd::hinted(bind_rank(expr, mesh(), coordinates), all); };
  double flops = 0;
  int64_t parameter_bytes = 0;
  for (const auto& node : program.graph->nodes()) flops += of_rank(ops::flops_of(*node));
  for (const Value* state : program.graph->values_of(ValueKind::state))
    parameter_bytes +=
        static_cast<int64_t>(bytes_of(state->dtype(), static_cast<int64_t>(of_rank(product(state->shape())))));
  const size_t peak = runtime::peak_bytes_of_rank(*impl_->programs, static_cast<int>(rank), all);
  return {static_cast<int64_t>(peak), parameter_bytes, static_cast<int64_t>(flops)};
}

}  // namespace v1
}  // namespace tessera
