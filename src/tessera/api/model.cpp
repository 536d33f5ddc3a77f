#include <fmt/ranges.h>

#include <set>

#include "tessera/api/impl.h"
#include "tessera/base/error.h"
#include "tessera/compiler/tensor_info.h"
#include "tessera/ir/glob.h"
#include "tessera/ir/set_sizes.h"
#include "tessera/onnx/import.h"
#include "tessera/ops/library/infer.h"
#include "tessera/program_io/written_program.h"
#include "tessera/rewrite/pipeline.h"
#include "tessera/rewrite/regions/lists.h"
#include "tessera/rewrite/regions/open_regions.h"

namespace tessera {
namespace api {

Model model_of(const Model& from, OnnxModel changed) {
  auto impl = std::make_shared<Model::Impl>();
  impl->path = from.path();
  impl->files = from.impl().files;
  impl->model = std::move(changed);
  return Model(std::move(impl));
}

}  // namespace api

inline namespace v1 {

std::string_view version() {
  return TESSERA_VERSION;
}

const OnnxModel& Model::Impl::rewritten() const {
  std::lock_guard lock(mutex_);
  if (rewrite_error_) std::rethrow_exception(rewrite_error_);
  if (rewritten_) return *rewritten_;
  OnnxModel copy = model.clone();
  try {
    rewrite::rewrite_model(copy);
  } catch (const Error&) {
    rewrite_error_ = std::current_exception();
    throw;
  }
  return rewritten_.emplace(std::move(copy));
}

const std::vector<compiler::Segment>& Model::Impl::segments() const {
  {
    std::lock_guard lock(mutex_);
    if (!segments_.empty()) return segments_;
  }
  std::vector<compiler::Segment> found = compiler::segments_of(model);
  compiler::Apart apart;
  std::string reason;
  // What a program cannot hold shows when it is rewritten, once the elements that it must know are given.
  while (found.size() == 1 && found.front().values.empty() && apart.sizes.empty()) {
    bool is_new = false;
    try {
      rewritten();
    } catch (const rewrite::RegionError& error) {
      for (const std::string& region : error.regions()) is_new |= apart.regions.insert(region).second;
      reason = error.what();
    } catch (const ops::UnknownValue& error) {
      is_new = apart.values.insert(error.value()).second;
      reason = error.what();
    } catch (const rewrite::UnknownSize& error) {
      const std::set<std::string> symbols = compiler::symbols_of(model);
      for (const std::string& symbol : error.symbols())
        if (symbols.contains(symbol)) apart.sizes.insert(symbol);
      is_new = !apart.sizes.empty();
    } catch (const Error&) {
      // Whoever compiles the model hears of it.
    }
    if (!is_new) break;
    try {
      found = compiler::segments_of(model, apart);
    } catch (const Error&) {
      break;
    }
  }
  std::lock_guard lock(mutex_);
  if (segments_.empty()) {
    segments_ = std::move(found);
    if (segments_.size() > 1) why_in_parts_ = std::move(reason);
  }
  return segments_;
}

const std::string& Model::Impl::why_in_parts() const {
  segments();
  return why_in_parts_;
}

Model Model::load(const std::filesystem::path& path) {
  if (program_io::is_written_program(path))
    fail("import",
         "'{}' is a written program, which `tessera run`, `check` and `bench` take (and Program::read); this needs the "
         "original model, an ONNX file",
         path.string());
  auto impl = std::make_shared<Impl>();
  impl->path = path;
  impl->model = import_model(path, &impl->files);
  Model model;
  model.impl_ = std::move(impl);
  return model;
}

const std::filesystem::path& Model::path() const {
  return impl_->path;
}

std::vector<TensorInfo> Model::inputs() const {
  std::vector<TensorInfo> all;
  for (const Value* value : impl_->model.graph->inputs) all.push_back(compiler::info_of(*value));
  return all;
}

std::vector<TensorInfo> Model::outputs() const {
  std::vector<TensorInfo> all;
  for (const Value* value : impl_->model.graph->outputs) all.push_back(compiler::info_of(*value));
  return all;
}

std::vector<std::string> Model::symbols() const {
  const std::set<std::string> symbols = compiler::symbols_of(impl_->model);
  return {symbols.begin(), symbols.end()};
}

SymbolSizes Model::complete(const SymbolSizes& sizes, std::string* note) const {
  const Graph* rewritten = nullptr;
  try {
    rewritten = impl_->rewritten().graph.get();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::user) throw;  // a model that cannot be run has no sizes at which it runs
  }
  std::vector<std::string> notes;
  SymbolSizes all = compiler::symbol_values(impl_->model, rewritten, sizes, &notes);
  if (note) *note = fmt::format("{}", fmt::join(notes, "; "));
  return all;
}

Model Model::with_sizes(const SymbolSizes& sizes) const {
  compiler::require_symbols(impl_->model, sizes);
  OnnxModel sized = impl_->model.clone();
  set_sizes(*sized.graph, sizes);
  return api::model_of(*this, std::move(sized));
}

bool makes(const Model& model, std::string_view tensor) {
  const Value* value = model.impl().model.graph->find(tensor);
  return value && value->kind == ValueKind::result;
}

Model Model::with_outputs(const std::vector<std::string>& names) const {
  OnnxModel own = impl_->model.clone();
  Graph& graph = *own.graph;
  graph.outputs.clear();
  for (const std::string& name : names) {
    Value* value = graph.find(name);
    if (!value || value->kind != ValueKind::result) {
      std::vector<std::string_view> results;
      for (const Value* result : graph.values_of(ValueKind::result)) results.push_back(result->name);
      fail("outputs", "no node of the model makes a tensor '{}'{}; name an output, or another result of a node", name,
           nearest_names(results, name));
    }
    if (graph.is_output(value)) fail("outputs", "'{}' is named twice; name it once", name);
    graph.outputs.push_back(value);
  }
  if (names.empty()) fail("outputs", "a model without outputs computes nothing; name at least one tensor");
  graph.erase_dead();
  return api::model_of(*this, std::move(own));
}

}  // namespace v1
}  // namespace tessera
