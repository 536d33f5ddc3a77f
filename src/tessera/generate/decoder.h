#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/generate/held_decoder.h"
#include "tessera/generation.h"

namespace tessera::generate {

/// What held caches have of a batch of texts.
struct HeldTexts {
  Tensors caches;             ///< whole, by the states' names: [batch, heads, capacity, width]
  std::vector<int64_t> held;  ///< tokens of each text
};

/// A decoder that runs a batch of texts. Rows of logits are as many as texts; where ranks are processes, there are none
/// but in that of rank 0.
class Decoder {
 public:
  virtual ~Decoder() = default;

  /// Begins texts; gives the logits of what follows each. Texts of several lengths only if `ragged`.
  virtual std::vector<std::vector<float>> start(const std::vector<std::vector<int64_t>>& texts) = 0;
  /// Loads the weights and plans what start() runs for these texts, and what next() runs where its sizes stay the same.
  virtual void prepare(const std::vector<std::vector<int64_t>>& texts) = 0;
  /// Of the run over these texts, and of the one after it.
  virtual GenerationSizes sizes(const std::vector<std::vector<int64_t>>& texts) = 0;
  /// One more token for each text; gives the logits of what follows it.
  virtual std::vector<std::vector<float>> next(const std::vector<int64_t>& tokens) = 0;

  /// What its caches have, for a decoder of the same model, which goes on with the texts in caches of its own capacity;
  /// where caches are held in this process.
  virtual HeldTexts leave() { return {}; }
  virtual void resume(const HeldTexts&) {}

  virtual const Program& program() const = 0;
  virtual const Session& session() const = 0;

  bool ragged = false;
};

/// What a decoder is made from.
struct DecoderSource {
  const Model& model;
  const Mesh& mesh;
  const Plan& plan;
  const GeneratorOptions& options;
  const CompileOptions& compile;
  const SessionOptions& session;
  const DecoderPorts& ports;
};

/// Its caches are states, to which each run appends.
std::unique_ptr<Decoder> held_decoder(const DecoderSource& source, HeldDecoder held);
/// Its caches leave each run and enter the next.
std::unique_ptr<Decoder> handed_decoder(const DecoderSource& source);
/// It runs the whole text for each token.
std::unique_ptr<Decoder> uncached_decoder(const DecoderSource& source);

}  // namespace tessera::generate
