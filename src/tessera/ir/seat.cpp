#include "tessera/ir/seat.h"

#include <string_view>

namespace tessera {

std::string Seat::cell() const {
  if (!is_staged()) return "";
  constexpr std::string_view kLetters = "-FBIW";
  return std::to_string(stage) + kLetters[static_cast<size_t>(segment)] + std::to_string(micro_batch);
}

}  // namespace tessera
