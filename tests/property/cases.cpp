#include "property/cases.h"

namespace tessera::property {

CaseList& CaseList::add(std::string_view type, std::string_view what, const Make& operands,
                        std::vector<Attribute> attributes, Bound bound, size_t results, std::string_view domain) {
  Builder builder(std::string(type) + ": " + std::string(what));
  Node* node = builder.node_of(results, type, operands(builder), std::move(attributes), domain);
  for (Value* result : node->outputs) builder.output(result);
  subjects_.push_back(builder.done(bound));
  return *this;
}

}  // namespace tessera::property
