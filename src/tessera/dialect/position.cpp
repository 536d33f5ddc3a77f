#include "tessera/dialect/forms.h"

// A rank's position on the mesh, from its number: on dp=2,tp=3 the index along tp is rank mod 3, that along dp rank
// / 3.
namespace tessera::dialect {

Value* axis_index(Body& body) {
  return body.scalar(body.me());
}

Value* neighbor(Body& body) {
  return body.peer(body.member_at(body.spec().offset));
}

}  // namespace tessera::dialect
