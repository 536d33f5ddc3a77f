#pragma once

#include <string>

namespace tessera::stages::test {

/// A decoder of alike layers in ONNX's text syntax, without initial values. Its head is the transposed embedding; a
/// table of positions is added before each layer; `ids` [batch, s].
std::string tied_decoder(int layers);

/// An encoder, whose result each layer of the decoder attends to; `ids` and `target` [batch, s].
std::string encoder_decoder(int encoder_layers, int decoder_layers);

/// Convolutions of falling and rising resolution, the first results added to the last; `image` [batch, 3, 32, 32].
std::string u_net();

}  // namespace tessera::stages::test
