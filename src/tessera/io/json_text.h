#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace tessera {

/// Reads JSON that people write. Throws a user error from `stage` that names `source` and the place, also for a key
/// that an object has twice, of which JSON would silently drop the first.
nlohmann::ordered_json parse_json(std::string_view stage, std::string_view text, std::string_view source);

}  // namespace tessera
