#include "tessera/base/lone_numbers.h"
#include "tessera/inspect.h"

namespace tessera {
inline namespace v1 {

std::string without_numbers(std::string_view text) {
  std::string pattern;
  size_t at = 0;
  for (const LoneNumber& number : lone_numbers(text)) {
    pattern += text.substr(at, number.begin - at);
    pattern += '*';
    at = number.end;
  }
  return pattern += text.substr(at);
}

}  // namespace v1
}  // namespace tessera
