#include "tessera/parts/segmented_model.h"

#include <algorithm>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/compiler/compile.h"
#include "tessera/parts/sizes.h"

namespace tessera::parts {

namespace {

struct Parts {
  std::vector<Segment> segments;
  std::string why;  // set if only rewriting showed it
};

// Finds a model's parts in two steps: from its nodes and, if these form one part that needs no values, from the
// rewritten model.
Parts parts_of(const compiler::Source& source) {
  Parts parts{segments_of(source.model), ""};
  if (parts.segments.size() > 1 || !parts.segments.front().values.empty()) return parts;
  std::optional<compiler::Obstacle> obstacle = source.obstacle();
  if (!obstacle) return parts;
  const std::set<std::string> symbols = compiler::symbols_of(source.model);
  std::erase_if(obstacle->needs.symbols, [&](const std::string& symbol) { return !symbols.contains(symbol); });
  try {
    return {segments_of(source.model, obstacle->needs), std::move(obstacle->why)};
  } catch (const Error&) {
    return parts;  // compiling the model will report the obstacle
  }
}

}  // namespace

const std::vector<Segment>& SegmentedModel::segments() const {
  {
    std::lock_guard lock(mutex_);
    if (!segments_.empty()) return segments_;
  }
  Parts found = parts_of(*this);
  std::lock_guard lock(mutex_);
  if (segments_.empty()) {
    segments_ = std::move(found.segments);
    if (segments_.size() > 1) why_in_parts_ = std::move(found.why);
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
    // A run refuses inputs that do not determine them.
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

Tensors SegmentedModel::needed_values(const Tensors& inputs) const {
  Tensors values;
  for (const std::string& name : value_inputs()) {
    const auto given = inputs.find(name);
    if (given == inputs.end())
      fail("inputs", "the shapes of {} depend on the elements of its input '{}'; give it with `inputs`", path.string(),
           name);
    const Value* port = model.graph->find(name);
    if (port->has_shape() && port->shape().size() != given->second.dims.size())
      fail("inputs",
           "the elements of input '{}' decide shapes, so that it must have {} and not {}; give one array for "
           "all steps",
           name, counted(port->shape().size(), "dimension"), given->second.dims.size());
    values.insert(*given);
  }
  return values;
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
