#pragma once

#include <optional>
#include <string>

#include "tessera/dialect/body.h"
#include "tessera/ir/graph.h"

namespace tessera::dialect {

/// The key of a function's metadata_props under which it states its specification, as JSON:
/// {"op": "AllReduce", "form": "ring", "axes": ["tp"], "reduction": "sum"}; omitted fields have the defaults of Spec.
inline constexpr std::string_view kFunctionKey = "tessera.function";

void state_spec(Function& function, const Spec& spec);

/// The specification that the function states; nullopt if it states none that can be read.
std::optional<Spec> stated_spec(const Function& function);

}  // namespace tessera::dialect
