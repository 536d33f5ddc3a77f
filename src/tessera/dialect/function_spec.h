#pragma once

#include <optional>
#include <string>

#include "tessera/dialect/body.h"
#include "tessera/ir/graph.h"

namespace tessera::dialect {

/// The key of a function's metadata_props under which it says what it is to do, as JSON:
/// {"op": "AllReduce", "form": "ring", "axes": ["tp"], "reduction": "sum"}; what is left out is as in Spec.
inline constexpr std::string_view kFunctionKey = "tessera.function";

void state_spec(Function& function, const Spec& spec);

/// What the function says that it does; nullopt if it says nothing that can be read.
std::optional<Spec> stated_spec(const Function& function);

}  // namespace tessera::dialect
