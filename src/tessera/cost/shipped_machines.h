#pragma once

#include <string_view>
#include <vector>

namespace tessera::cost {

/// A machine file that comes with Tessera (share/tessera/machines).
struct ShippedMachine {
  std::string_view name;  ///< "h100-sxm"
  std::string_view text;
};
std::vector<ShippedMachine> shipped_machines();

}  // namespace tessera::cost
