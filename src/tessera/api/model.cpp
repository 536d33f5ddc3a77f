#include <fmt/ranges.h>

#include <set>
#include <utility>

#include "tessera/api/impl.h"
#include "tessera/base/error.h"
#include "tessera/compiler/requests.h"
#include "tessera/compiler/tensor_info.h"
#include "tessera/compiler/with_outputs.h"
#include "tessera/compiler/with_states.h"
#include "tessera/ir/glob.h"
#include "tessera/onnx/import.h"
#include "tessera/parts/sizes.h"
#include "tessera/program_io/written_program.h"
#include "tessera/rewrite/in_micro_batches.h"

namespace tessera {
namespace api {

Model model_of(const Model& from, OnnxModel changed) {
  return Model(std::make_shared<Model::Impl>(from.path(), std::move(changed), from.impl().files));
}

Model with_needed_sizes(const Model& model, const SymbolSizes& sizes, SymbolSizes* fixed) {
  Model sized = model;
  std::optional<SymbolSizes> all;
  while (!sized.impl().size_symbols().empty()) {
    if (!all) all = model.complete(sizes);
    const Symbols needed = parts::needed_sizes(sized.impl().size_symbols(), *all);
    if (fixed) fixed->insert(needed.begin(), needed.end());
    sized = sized.with_sizes(SymbolSizes(needed.begin(), needed.end()));
  }
  return sized;
}

}  // namespace api

inline namespace v1 {

std::string_view version() {
  return TESSERA_VERSION;
}

Model Model::load(const std::filesystem::path& path) {
  if (program_io::is_written_program(path))
    fail("import", "'{}' is a written program, for `Program::read`; give the original model here, an ONNX file",
         path.string());
  std::vector<uint64_t> files;
  OnnxModel read = import_model(path, &files);
  return Model(std::make_shared<Impl>(path, std::move(read), std::move(files)));
}

Model Model::parse(std::string_view bytes, const std::filesystem::path& folder) {
  return Model(std::make_shared<Impl>("model in memory", import_model_bytes(bytes, folder), std::vector<uint64_t>()));
}

const Model::Impl& Model::impl() const {
  if (!impl_) fail("model", "the model is empty; load() or parse() one");
  return *impl_;
}

const std::shared_ptr<const Model::Impl>& Model::shared_impl() const {
  impl();
  return impl_;
}

const Program::Impl& Program::impl() const {
  if (!impl_) fail("program", "the program was moved from; use the one that it was moved to");
  return *impl_;
}

const std::filesystem::path& Model::path() const {
  return impl().path;
}

std::vector<TensorInfo> Model::inputs() const {
  std::vector<TensorInfo> all;
  for (const Value* value : impl().model.graph->inputs) all.push_back(compiler::info_of(*value));
  return all;
}

std::vector<TensorInfo> Model::outputs() const {
  std::vector<TensorInfo> all;
  for (const Value* value : impl().model.graph->outputs) all.push_back(compiler::info_of(*value));
  return all;
}

std::vector<std::string> Model::symbols() const {
  const std::set<std::string> symbols = compiler::symbols_of(impl().model);
  return {symbols.begin(), symbols.end()};
}

SymbolSizes Model::complete(const SymbolSizes& sizes, std::string* note) const {
  const Graph* rewritten = nullptr;
  try {
    rewritten = impl().rewritten().graph.get();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::user) throw;  // it has no sizes at which it could run
  }
  std::vector<std::string> notes;
  SymbolSizes all = compiler::symbol_values(impl().model, rewritten, sizes, &notes);
  if (note) *note = fmt::format("{}", fmt::join(notes, "; "));
  return all;
}

Model Model::with_sizes(const SymbolSizes& sizes) const {
  return api::model_of(*this, compiler::with_sizes(impl().model, sizes));
}

ModelBlocks Model::blocks() const {
  const std::optional<rewrite::Blocks>& found = impl().blocks();
  if (!found) return {};
  ModelBlocks made{static_cast<int64_t>(found->count), static_cast<int64_t>(found->period), {}};
  for (const auto& names : rewrite::names_by_block(*impl().model.graph, *found))
    made.names.emplace_back(names.begin(), names.end());
  return made;
}

Model Model::with_blocks(int64_t count) const {
  const std::optional<rewrite::Blocks>& found = impl().blocks();
  if (!found) fail("model", "{} has no blocks that are alike, so it cannot have fewer of them", path().string());
  const auto most = static_cast<int64_t>(found->count);
  if (count < 1 || count > most)
    fail("model", "{} has {} blocks that are alike; {} of them cannot be kept, only 1 to {}", path().string(), most,
         count, most);
  return api::model_of(*this, rewrite::with_blocks(impl().model, *found, static_cast<size_t>(count)));
}

Model Model::with_states(const std::vector<std::string>& patterns) const {
  return api::model_of(*this, compiler::with_states(impl().model, patterns));
}

Model Model::in_micro_batches(Plan& plan, std::string* note) const {
  if (note) note->clear();
  const int parts = std::exchange(plan.micro_batches, 0);
  if (parts < 0) fail("plan", "`micro_batches` is {}; it must be at least 1", parts);
  if (parts <= 1) return *this;
  std::set<std::string> kept;
  for (const auto* requests : {&plan.annotations, &plan.storage})
    for (const Plan::Annotation& each : *requests) {
      const std::string pattern = compiler::AnnotationRequest::parse(each.text, each.by).pattern;
      for (const auto& value : impl().model.graph->values())
        if (value->has_data() && glob_matches(pattern, value->name)) kept.insert(value->name);
    }
  return api::model_of(*this, rewrite::in_micro_batches(impl().model, parts, plan.shapes, kept, note));
}

Model Model::with_values(const Tensors& values) const {
  return api::model_of(*this, parts::with_values(impl().model, values));
}

namespace {

Model with_needed_values(const Model& model, const Tensors& inputs) {
  const Tensors values = model.impl().needed_values(inputs);
  return values.empty() ? model : model.with_values(values);
}

}  // namespace

Model Model::for_program(const SymbolSizes& sizes, const Tensors& inputs, std::string* note) const {
  if (impl().runs_in_parts()) {
    const std::string& why = impl().why_in_parts();
    fail("run",
         "the shapes of {} depend on computed values, so it runs in parts, each compiled when the one before it has "
         "run; only `Session` does that{}{}",
         path().string(), why.empty() ? "" : "; the reason is ", why);
  }
  SymbolSizes fixed;
  const Model made =
      with_needed_values(api::with_needed_sizes(with_needed_values(*this, inputs), sizes, &fixed), inputs);
  std::string text;
  for (const auto& [symbol, size] : fixed) text += fmt::format("{}{}={}", text.empty() ? "" : ",", symbol, size);
  if (note)
    *note = fixed.empty()
                ? ""
                : fmt::format("compiled for {} only, since that decides how many tensors a sequence has", text);
  return made;
}

bool Model::runs_in_parts(const SymbolSizes& sizes, const Tensors& inputs) const {
  if (impl().runs_in_parts()) return true;
  if (inputs.empty()) return api::with_needed_sizes(*this, sizes).impl().runs_in_parts();
  return with_needed_values(*this, inputs).impl().runs_in_parts(inputs);
}

bool makes(const Model& model, std::string_view tensor) {
  const Value* value = model.impl().model.graph->find(tensor);
  return value && value->kind == ValueKind::result;
}

Model Model::with_outputs(const std::vector<std::string>& names) const {
  return api::model_of(*this, compiler::with_outputs(impl().model, names));
}

}  // namespace v1
}  // namespace tessera
