#pragma once

#include <optional>
#include <utility>

#include "tessera/model.h"

namespace tessera::api {

/// Of a batch: the extent of the first dimension of the model's first input that has one, and, if the input's elements
/// are tokens in sequences (integers with a second dimension), their number.
std::pair<int64_t, std::optional<int64_t>> samples_and_tokens(const Model& model, const SymbolSizes& sizes);

}  // namespace tessera::api
