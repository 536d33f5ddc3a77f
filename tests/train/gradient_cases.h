#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "property/cases.h"

namespace tessera::train {

using property::key_of;
using property::name_of;
using property::OperatorKey;

/// One-node graphs: those of the property tests, and more attributes where gradients have cases of their own. These are
/// not among the examples of operators' records, each of which is tried under every legal sharding: splits of the
/// forward operator do not depend on them, and there are some four hundred.
std::vector<property::Subject> gradient_cases();

/// Operators that have one.
std::vector<OperatorKey> with_gradient();

/// Operators whose kernels, or those that their gradients are made of, have no float64.
const std::map<OperatorKey, std::string>& without_float64();

/// Whether a message is of a form of an operator that has no gradient, and says so.
bool is_refused(std::string_view message);

}  // namespace tessera::train
