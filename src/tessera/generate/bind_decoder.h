#pragma once

#include <string>
#include <utility>

#include "tessera/generate/held_decoder.h"

namespace tessera::generate {

/// Binds a decoder, before it is rewritten, to what all its runs have in common: the number of texts, a mask of ones,
/// and the branch that continues caches, which also continues empty ones. Returns the symbols of a run's tokens and,
/// if there are caches, of those that these have (else ""). Throws a user error for inputs of other extents.
std::pair<std::string, std::string> bind_decoder(Graph& graph, const DecoderPorts& ports, int64_t batch);

/// Replaces a symbol in all extents and contents.
void substitute(Graph& graph, const std::string& symbol, const Expr& by);

}  // namespace tessera::generate
