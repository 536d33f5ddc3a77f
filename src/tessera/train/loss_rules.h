#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "tessera/rules.h"

namespace tessera::train {

using LossRule = std::variant<CrossEntropy, ZLoss, OtherLoss>;

/// Labels of this name are none (ZLoss).
inline constexpr std::string_view kNoLabels = "none";

/// "cross-entropy"
std::string name_of(const LossRule& rule);

/// The terms of a loss, whose numbers are within their bounds, with the names of losses that there are. A text is terms
/// "WEIGHT*NAME:TENSOR,labels=INPUT,key=value" joined by '+', of which only the name is required. Throws a user error
/// for an unknown name or key.
LossSum value_of(const tessera::Loss& rule);

}  // namespace tessera::train
