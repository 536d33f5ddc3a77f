#pragma once

#include <vector>

#include "tessera/spmd/presets/presets.h"

/// Dimensions of inputs that presets split.
namespace tessera::spmd {

struct InputDim {
  const Value* input = nullptr;
  int dim = 0;
};

/// The dimensions of inputs that run along the queries of some attention, through operators that can all be split along
/// them: the sequence of tokens and, where there are any, of their labels and positions.
std::vector<InputDim> contexts_of(const Graph& graph, const Layout& layout);

/// Splits a dimension of an input over the preset's axis, within what earlier presets split.
void split_input(PresetContext& context, const InputDim& where);

/// The axes that earlier presets split inputs over, along what ties to that dimension of a value.
std::vector<AxisRef> input_axes_along(const PresetContext& context, const Value* value, int dim);

}  // namespace tessera::spmd
