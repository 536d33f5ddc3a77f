#pragma once

#include <string>

#include "tessera/cost/prices.h"
#include "tessera/passes/collective_products.h"

namespace tessera::passes {

/// What a collective and its products take, in seconds, with nothing else beside them.
struct RingPrice {
  double transfer = 0;  ///< of the collective
  double products = 0;  ///< of the products, whole
  double pieces = 0;    ///< of the products in pieces, and of joining or adding these
  double ring = 0;      ///< until the ring ends: pieces, and messages that they do not hide
  std::string parts;    ///< pieces of the first product, rows x depth x columns: "4 pieces of 128x512x512"

  double apart() const { return transfer + products; }
  double gain() const { return apart() - ring; }
  /// "4 pieces of 128x512x512 take 1.12 times the whole"
  std::string pieces_text() const;
};

/// Of a candidate in that form, by the prices of a machine, at the sizes of the program's hints. Messages leave a
/// member one after the other, also those to two neighbours; a block's product waits for the block, and a sum is sent
/// once its last term is there. This is the condition of Wang et al. 2023 (section 5.4), with the pieces' own kernel
/// times.
RingPrice price_of(const spmd::Program& program, const ProductCollective& candidate, const RingForm& form,
                   const cost::Prices& prices);

/// Of the whole tensor that the collective gathers or scatters, at the hinted sizes.
double bytes_of(const spmd::Program& program, const Node& collective);

}  // namespace tessera::passes
