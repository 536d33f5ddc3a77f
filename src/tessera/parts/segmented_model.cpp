#include "tessera/parts/segmented_model.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/compiler/compile.h"
#include "tessera/compiler/programs.h"
#include "tessera/ops/library/infer.h"
#include "tessera/parts/sizes.h"
#include "tessera/rewrite/regions/lists.h"
#include "tessera/rewrite/regions/open_regions.h"

namespace tessera::parts {

const std::vector<Segment>& SegmentedModel::segments() const {
  {
    std::lock_guard lock(mutex_);
    if (!segments_.empty()) return segments_;
  }
  std::vector<Segment> found = segments_of(model);
  Apart apart;
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
      found = segments_of(model, apart);
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

const std::string& SegmentedModel::why_in_parts() const {
  segments();
  return why_in_parts_;
}

bool SegmentedModel::runs_in_parts(const Tensors& inputs) const {
  if (runs_in_parts()) return true;
  if (const std::set<std::string>& needed = size_symbols(); !needed.empty()) {
    const Symbols known = sizes_at(*model.graph, inputs);
    // A run refuses inputs that do not say them.
    const bool all =
        std::all_of(needed.begin(), needed.end(), [&](const auto& symbol) { return known.contains(symbol); });
    return all && with_sizes(needed_sizes(needed, known))->runs_in_parts(inputs);
  }
  const Symbols sizes = EqualSizes(*this).contradicted_by(sizes_at(*model.graph, inputs));
  return !sizes.empty() && with_sizes(sizes)->runs_in_parts();
}

std::vector<std::string> SegmentedModel::value_inputs() const {
  std::vector<std::string> names;
  for (const Segment& segment : segments())
    for (const std::string& name : segment.values) {
      const Value* input = model.graph->find(name);
      if (input && input->kind == ValueKind::input && std::find(names.begin(), names.end(), name) == names.end())
        names.push_back(name);
    }
  return names;
}

bool SegmentedModel::is_one_program() const {
  return !runs_in_parts() && segments().front().values.empty() && size_symbols().empty();
}

std::shared_ptr<const SegmentedModel> SegmentedModel::with(OnnxModel changed) const {
  return std::make_shared<SegmentedModel>(path, std::move(changed), files);
}

std::shared_ptr<const SegmentedModel> SegmentedModel::with_sizes(const Symbols& sizes) const {
  return with(compiler::with_sizes(model, sizes));
}

std::shared_ptr<const SegmentedModel> SegmentedModel::with_values(const Tensors& values) const {
  return with(parts::with_values(model, values));
}

}  // namespace tessera::parts
