#include "mutants/escapes.h"

namespace tessera::mutants {

const std::vector<Escape>& known_escapes() {
  static const std::vector<Escape> all = {};
  return all;
}

}  // namespace tessera::mutants
