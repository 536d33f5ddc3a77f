#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/mesh/box.h"
#include "tessera/spmd/program.h"

namespace tessera::spmd {

/// The value of a symbol or an axis index ("@tp") for the rank at `coordinates`.
std::optional<int64_t> look_up(std::string_view name, const Symbols& symbols, const Mesh& mesh,
                               const std::vector<int64_t>& coordinates);

/// The part of `value`'s global tensor that the rank at `coordinates` holds.
Box held_part(const spmd::Program& program, const Value* value, const std::vector<int64_t>& coordinates,
              const Symbols& symbols);

/// Whether that rank writes its part: it must be the first, along every axis, of the ranks that hold the same part.
bool writes_part(const spmd::Program& program, const Value* value, const std::vector<int64_t>& coordinates);

}  // namespace tessera::spmd
