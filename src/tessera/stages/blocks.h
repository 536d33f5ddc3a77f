#pragma once

#include <vector>

#include "tessera/stages/chain.h"

namespace tessera::stages {

/// Cuts the chain into blocks: for each its last place, ascending.
///
/// If something repeats in it, each copy is a block: a layer of a transformer, of the encoder and of the decoder. What
/// comes before the first copy belongs to it, and what comes after the last one to that, unless it is much as well: at
/// least half of a copy by time and by products with parameters. Then it has blocks of its own, as have the different
/// blocks of a convolutional network. All cuts are where the fewest bytes are alive.
std::vector<int> find_blocks(const Chain& chain, const OneBatch& batch, const Roles& roles, const Measure& measure);

}  // namespace tessera::stages
