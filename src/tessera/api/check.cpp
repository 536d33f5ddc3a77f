#include "tessera/check.h"

#include "tessera/api/impl.h"
#include "tessera/proof/prove.h"

namespace tessera {
inline namespace v1 {

CheckReport check_program(const Program& program) {
  return proof::prove(*program.impl().programs);
}

}  // namespace v1
}  // namespace tessera
