#include "tessera/dialect/forms.h"

// Dissemination: in the round of k = 1, 2, 4, … every member tells the one k after it that it has arrived. After round
// k it has heard, through others, of the 2k - 1 before it; at the end, of all.
namespace tessera::dialect {

Value* dissemination_barrier(Body& body) {
  for (int64_t k = 1; k < body.members(); k *= 2) {
    const std::string step = "round." + std::to_string(k);
    body.send(body.number(k), body.peer(body.member_at(k)), step);
    body.recv(body.peer(body.member_at(-k)), body.number(1), step);
  }
  return nullptr;
}

}  // namespace tessera::dialect
