#pragma once

#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::rewrite {

/// A local simplification: true if it changed the graph. Results keep their shapes and types.
struct Rule {
  std::string_view op_type;  ///< empty: tried on every node
  bool (*apply)(Graph&, Node*);
};

std::vector<Rule> shape_rules();    // shape.cpp: Reshape and its kin, Transpose, Expand, Slice, Concat
std::vector<Rule> algebra_rules();  // algebra.cpp: neutral elements, Cast, Not, Dropout, Identity
std::vector<Rule> linear_rules();   // linear.cpp: Gemm, reshapes around matrix products

}  // namespace tessera::rewrite
