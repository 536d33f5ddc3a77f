#pragma once

#include <string>
#include <vector>

#include "tessera/generate/held_decoder.h"
#include "tessera/tensors.h"

namespace tessera::generate {

/// What the inputs and outputs of a decoder mean, by their names, which are those of transformers' and Optimum's
/// exports. `caches` pairs inputs with outputs ("past.*=present.*"); if it is empty, known names are tried. Throws a
/// user error for a model without token ids or logits, for pairs that there are not, and for inputs that are neither
/// known nor in `constants`.
DecoderPorts decoder_ports(const Graph& graph, const std::vector<std::string>& caches, const Tensors& constants);

}  // namespace tessera::generate
