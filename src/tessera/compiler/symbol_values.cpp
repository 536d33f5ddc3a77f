#include <fmt/ranges.h>

#include <set>

#include "tessera/base/error.h"
#include "tessera/compiler/compile.h"
#include "tessera/ir/set_sizes.h"
#include "tessera/spmd/layout/sizes.h"

namespace tessera::compiler {
namespace {

int64_t wish(const std::string& symbol) {
  constexpr int64_t kBatch = 2, kOther = 16;
  const bool batch = symbol == "N" || symbol.find("batch") != std::string::npos;
  return batch ? kBatch : kOther;
}

// Rewriting gives equal extents one name; users give sizes by the file's names.
void add_renamed(const OnnxModel& model, const Graph& rewritten, spmd::SizeDemands& demands) {
  for (const Value* input : model.graph->inputs) {
    const Value* now = rewritten.find(input->name);
    if (!input->has_shape() || !now || !now->has_shape() || now->rank() != input->rank()) continue;
    for (size_t d = 0; d < input->rank(); ++d)
      if (input->shape()[d] != now->shape()[d])
        demands.equal.push_back({now->shape()[d], input->shape()[d], "input '" + input->name + "'"});
  }
}

}  // namespace

std::set<std::string> symbols_of(const OnnxModel& model) {
  std::set<std::string> symbols;
  for (const Value* input : model.graph->inputs)
    if (input->has_shape())
      for (const Expr& extent : input->shape()) extent.collect_symbols(symbols);
  return symbols;
}

void require_symbols(const OnnxModel& model, const spmd::Hints& given) {
  const std::set<std::string> known = symbols_of(model);
  for (const auto& [name, value] : given) {
    if (!known.contains(name))
      fail("shapes", "the model has no symbol '{}'; its symbols are: {}", name,
           known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
    if (value < 0) fail("shapes", "'{}' cannot be {}; give a size of at least 0", name, value);
  }
}

OnnxModel with_sizes(const OnnxModel& model, const spmd::Hints& sizes) {
  require_symbols(model, sizes);
  OnnxModel sized = model.clone();
  set_sizes(*sized.graph, sizes);
  return sized;
}

spmd::Hints symbol_values(const OnnxModel& model, const Graph* rewritten, const spmd::Hints& given,
                          std::vector<std::string>* notes) {
  require_symbols(model, given);
  spmd::Hints wished;
  for (const std::string& name : symbols_of(model))
    if (!given.contains(name)) wished[name] = wish(name);
  if (wished.empty()) return given;
  spmd::SizeDemands demands;
  if (rewritten) {
    demands = spmd::demands_of(*rewritten);
    add_renamed(model, *rewritten, demands);
  }
  const spmd::Sizes sizes = spmd::sizes_that_run(demands, given, wished);
  if (!notes) return sizes.of;
  std::string defaults, all;
  for (const auto& [name, size] : sizes.of) {
    const std::string text = fmt::format("{}={}", name, size);
    all += (all.empty() ? "" : ",") + text;
    if (wished.contains(name)) defaults += (defaults.empty() ? "" : ",") + text;
  }
  notes->push_back(fmt::format("default sizes: {} (set them with `shapes`)", defaults));
  if (!sizes.unmet.empty())
    notes->push_back(fmt::format("no sizes were found at which the model runs; with {}: {}; give others with `shapes`",
                                 all, sizes.unmet));
  return sizes.of;
}

}  // namespace tessera::compiler
