#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/data/mixture.h"
#include "tessera/data/permutation.h"
#include "tessera/data/source_spec.h"
#include "tessera/data/token_file.h"

namespace tessera::data {

/// The label of a token whose successor is not to be predicted; losses ignore it (ONNX's ignore_index).
constexpr int64_t kIgnored = -100;

/// Which tokens of each file serve.
enum class Part {
  training,  ///< all but the held-out fraction
  held_out,  ///< the last tokens of the file, as many as the fraction says
};

/// Which sample is which.
enum class Order {
  shuffled,  ///< mixed by weight; each epoch of a source is another permutation
  in_order,  ///< mixed by weight; each epoch of a source is its samples in the file's order
  once,      ///< the sources one after another, each sample once, weights ignored
};

struct SampleOptions {
  std::vector<SourceSpec> sources;
  int64_t sequence = 0;    ///< tokens of a sample, ≥ 1
  int64_t vocabulary = 0;  ///< see TokenFile
  uint64_t seed = 0;
  std::optional<Separator> separator;  ///< what ends a document; none: a file is one document
  double held_out = 0;                 ///< fraction of each file, 0 ≤ held_out < 1
  Part part = Part::training;
  Order order = Order::shuffled;
};

/// Samples of token files by global index. A sample is a function of the options and its index, and of nothing else.
///
/// A source's part of n tokens has ⌊(n - 1) / sequence⌋ samples: sample k is the tokens from k·sequence on, and the
/// label of each token is its successor. With a separator, a token that completes one ends its document and has the
/// label kIgnored; the next token begins a document. Whether it does depends on the part's tokens before it only, so
/// samples are found without reading the file from its start.
class TokenSamples {
 public:
  /// Throws user errors: no source, a file that cannot be read, a part too short for one sample.
  explicit TokenSamples(const SampleOptions& options);

  /// One row of each array, of `sequence` elements; null pointers: not wanted.
  struct Row {
    int64_t* tokens = nullptr;
    int64_t* labels = nullptr;
    int64_t* positions = nullptr;  ///< of the token within its document, from 0 at the sample's start
    int64_t* documents = nullptr;  ///< the number of the token's document within the sample, from 0
  };
  /// Fills the row with sample `index` ≥ 0 (with Order::once, below pass()), and returns how many labels count.
  int64_t fill(int64_t index, const Row& row) const;

  /// The samples of all sources together.
  int64_t pass() const { return pass_; }

 private:
  struct Source {
    TokenFile file;
    int64_t begin = 0, samples = 0;  ///< first token of the part; samples in it
  };
  struct Chunk {
    const Source& source;
    int64_t index;
  };
  Chunk chunk_of(int64_t index) const;

  SampleOptions options_;
  std::vector<Source> sources_;
  Mixture mixture_;
  int64_t pass_ = 0;
};

}  // namespace tessera::data
