#pragma once

#include <optional>
#include <utility>

#include "tessera/model.h"

namespace tessera::plan {

/// The samples of a batch: the first extent of the model's first input that has dimensions; and the number of its
/// tokens, if its elements are tokens in sequences (integers with a second dimension).
std::pair<int64_t, std::optional<int64_t>> samples_and_tokens(const Model& model, const SymbolSizes& sizes);

}  // namespace tessera::plan
