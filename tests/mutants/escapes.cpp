#include "mutants/escapes.h"

namespace tessera::mutants {

const std::vector<Escape>& known_escapes() {
  static const std::vector<Escape> all = {
      {"none", "a dimension of parts that two axes split is not read back in the form parallel-for", 225},
      {"take types and metadata away", "members of a group have to say the same of layouts, or all nothing", 35},
      {"take metadata away", "members of a group have to say the same of layouts, or all nothing", 724},
  };
  return all;
}

}  // namespace tessera::mutants
