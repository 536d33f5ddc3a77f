#pragma once

#include <string>

#include "tessera/generate/held_decoder.h"

namespace tessera::generate {

/// Lets caches that keep the last tokens only, as those of sliding windows do, keep all of them: where a mask hides the
/// others from every Attention anyway, the answer is the same, and so `past`, the symbol of the tokens that a cache
/// has, may mean all earlier ones. Throws a user error where a mask hides fewer tokens than a cache drops, and where
/// the model computes more than masks with their number.
void keep_all_tokens(Graph& graph, const DecoderPorts& ports, const std::string& past);

}  // namespace tessera::generate
