#include "tessera/compiler/pairing.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::compiler {

Pairing Pairing::parse(const std::string& text) {
  const size_t equals = text.find('=');
  Pairing pairing{text.substr(0, equals), std::nullopt};
  if (equals != std::string::npos) pairing.next = text.substr(equals + 1);
  const auto stars = [](const std::string& name) { return std::count(name.begin(), name.end(), '*'); };
  if (pairing.state.empty() || (pairing.next && pairing.next->empty()) || stars(pairing.state) > 1 ||
      (pairing.next && stars(*pairing.next) != stars(pairing.state)))
    fail("state",
         "'{}' is not a pair of a state and its next value; write STATE=NEXT, as 'w=next.w', or '*=next.*' with one "
         "'*' on each side",
         text);
  return pairing;
}

std::string Pairing::next_of(const std::string& name) const {
  const size_t star = state.find('*');
  if (star == std::string::npos) return *next;
  const std::string same = name.substr(star, name.size() - (state.size() - 1));
  std::string found = *next;
  return found.replace(found.find('*'), 1, same);
}

}  // namespace tessera::compiler
