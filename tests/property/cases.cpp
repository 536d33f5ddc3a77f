#include "property/cases.h"

namespace tessera::property {

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"elementwise", elementwise_cases},
      {"movement", movement_cases},
      {"indexing", indexing_cases},
      {"reduction", reduction_cases},
      {"normalization", normalization_cases},
      {"product", product_cases},
      {"window", window_cases},
      {"attention", attention_cases},
      {"experts", experts_cases},
      {"recurrent", recurrent_cases},
      {"resize", resize_cases},
      {"quantization", quantization_cases},
      {"quantized", quantized_cases},
      {"random", random_cases},
      {"flow", flow_cases},
  };
  return all;
}

CaseList& CaseList::add(std::string_view type, std::string_view what, const Make& operands,
                        std::vector<Attribute> attributes, Bound bound, size_t results, std::string_view domain) {
  Builder builder(std::string(type) + ": " + std::string(what));
  Node* node = builder.node_of(results, type, operands(builder), std::move(attributes), domain);
  for (Value* result : node->outputs) builder.output(result);
  subjects_.push_back(builder.done(bound));
  return *this;
}

}  // namespace tessera::property
