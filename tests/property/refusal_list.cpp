#include "property/refusal_list.h"

namespace tessera::property {

const std::vector<Refusal>& refusals() {
  static const std::vector<Refusal> all = {
      {"but the operators around it see the parts",
       "the annotated parts cut across those that an operator is made of, such as the pieces of a Split"},
  };
  return all;
}

}  // namespace tessera::property
