#pragma once

#include <string>
#include <vector>

#include "tessera/ir/graph.h"

/// Decoders: models that continue texts, token by token.
namespace tessera::generate {

/// What the inputs and outputs of a decoder mean. "": it has no such input.
struct DecoderPorts {
  struct Cache {
    std::string past;     ///< an input [batch, heads, past, width]
    std::string present;  ///< the output [batch, heads, past + sequence, width]
  };

  std::string ids;        ///< int64 [batch, sequence]
  std::string logits;     ///< [batch, sequence, vocabulary]
  std::string mask;       ///< [batch, past + sequence]: 1 for each token
  std::string positions;  ///< [batch, sequence]: the place of each token in its text
  std::string places;     ///< [sequence]: the same, of all texts
  std::string branch;     ///< bool: whether there are earlier tokens, where two branches compute with and without
  std::vector<Cache> caches;
};

/// Inputs of a decoder whose caches are states.
inline constexpr std::string_view kHeld = "tessera.held";  ///< int64 [batch]: how many tokens the caches hold
inline constexpr std::string_view kLast = "tessera.last";  ///< int64 [batch]: of which token logits are wanted

/// A decoder whose caches are states.
struct HeldDecoder {
  OnnxModel model;                  ///< (ids, kHeld, kLast) => (logits [batch, 1, vocabulary])
  std::vector<std::string> caches;  ///< its states, [batch, heads, capacity, width]
  bool ragged = true;               ///< texts of a batch may differ in length
  bool given = false;               ///< the model had no caches of its own
};

/// The decoder `model` with its caches as states that hold `capacity` tokens of `batch` texts;
/// a model without caches is given some. A run takes any number of tokens: their keys and values are written behind the
/// `held` ones, and they attend to all of these. Tokens that follow a text in a run do not change its answer, so that
/// texts of several lengths are filled up at the right.
///
/// Throws a user error that says why this model cannot be continued in this way.
HeldDecoder hold_caches(const OnnxModel& model, const DecoderPorts& ports, int64_t batch, int64_t capacity);

/// Lets caches hold floats of another type, to which new keys and values are rounded. An Attention that reads them
/// works in that type: its queries and its result are rounded, too.
void type_caches(HeldDecoder& held, DType type);

}  // namespace tessera::generate
