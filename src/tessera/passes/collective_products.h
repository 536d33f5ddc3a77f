#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tessera/passes/gather_product.h"
#include "tessera/passes/pipeline.h"
#include "tessera/passes/product_reduce.h"
#include "tessera/passes/product_scatter.h"

/// Collectives that can go around a ring in pieces while products compute: all-gathers that products read,
/// reduce-scatters of products, and all-reduces, which are both.
namespace tessera::passes {

/// An all-gather, a reduce-scatter or an all-reduce of a program.
struct ProductCollective {
  size_t at = 0;                                                                 ///< its number among the graph's nodes
  std::variant<std::string, GatherProduct, ProductScatter, ProductReduce> site;  ///< or why it has none

  bool is_candidate() const { return site.index() > 0; }
  const Node& collective() const;
  /// Those that are computed in pieces, in the order in which they are.
  std::vector<const Node*> products() const;
  const std::vector<AxisRef>& axes() const;
};

/// All of them, in the graph's order.
std::vector<ProductCollective> product_collectives(const spmd::Program& program);

/// The pass: decomposes the collectives that Context::choose_rings names, and says how many.
void collective_products(spmd::Program& program, Context& context);

}  // namespace tessera::passes
