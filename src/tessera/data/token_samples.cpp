#include "tessera/data/token_samples.h"

#include <algorithm>
#include <span>

#include "tessera/base/error.h"

namespace tessera::data {
namespace {

std::vector<double> weights_of(const std::vector<SourceSpec>& sources) {
  if (sources.empty()) fail("data", "no training data is given; name files with `data`");
  std::vector<double> weights;
  for (const SourceSpec& source : sources) weights.push_back(source.weight);
  return weights;
}

void require_separator_fits(const Separator& separator, const SourceSpec& source, int64_t vocabulary) {
  for (int64_t token : separator.tokens)
    if (vocabulary > 0 && token >= vocabulary)
      fail("data", "the document separator has the token {}, which is outside the vocabulary of {} (0 to {})", token,
           vocabulary, vocabulary - 1);
  if (separator.text && source.storage != Storage::uint8)
    fail("data", "{}: a text separator works for text files only; write token:ID for files of tokens",
         source.path.string());
}

}  // namespace

TokenSamples::TokenSamples(const SampleOptions& options) : options_(options), mixture_(weights_of(options.sources)) {
  if (options.sequence < 1) fail("data", "sequence is {}; it must be at least 1", options.sequence);
  if (!(options.held_out >= 0 && options.held_out < 1))
    fail("data", "the held-out fraction {} is not in [0, 1); give 0.05, for example", options.held_out);
  for (const SourceSpec& spec : options.sources) {
    if (options.separator) require_separator_fits(*options.separator, spec, options.vocabulary);
    TokenFile file(spec, options.vocabulary);
    const int64_t total = file.size();
    const auto kept_back = static_cast<int64_t>(options.held_out * static_cast<double>(total));
    const bool training = options.part == Part::training;
    const int64_t begin = training ? 0 : total - kept_back, size = training ? total - kept_back : kept_back;
    if (size - 1 < options.sequence) {
      const std::string part = options.held_out == 0 ? "" : training ? " of training data" : " that are held out";
      fail("data",
           "{}: its {} tokens{} are too few for one sample, a sequence of {} and the label of its last token; give a "
           "longer file or a shorter sequence",
           file.name(), size, part, options.sequence);
    }
    const int64_t samples = (size - 1) / options.sequence;
    pass_ += samples;
    sources_.push_back({std::move(file), begin, samples});
  }
}

TokenSamples::Chunk TokenSamples::chunk_of(int64_t index) const {
  check(index >= 0, "samples count from 0");
  if (options_.order == Order::once) {
    check(index < pass_, "a single pass ends with its last sample");
    auto source = sources_.begin();
    for (; index >= source->samples; ++source) index -= source->samples;
    return {*source, index};
  }
  const Mixture::Draw draw = mixture_.at(index);
  const Source& source = sources_[draw.source];
  const int64_t epoch = draw.index / source.samples, within = draw.index % source.samples;
  if (options_.order == Order::in_order) return {source, within};
  const Permutation permutation(source.samples, options_.seed, static_cast<uint32_t>(draw.source),
                                static_cast<uint32_t>(epoch));
  return {source, permutation.at(within)};
}

int64_t TokenSamples::fill(int64_t index, const Row& row) const {
  const Chunk chunk = chunk_of(index);
  const int64_t sequence = options_.sequence, first = chunk.index * sequence;
  const std::span<const int64_t> separator =
      options_.separator ? std::span<const int64_t>(options_.separator->tokens) : std::span<const int64_t>();
  const auto length = static_cast<int64_t>(separator.size());
  // The sample, its last label, and what may be the begin of a separator that ends within the sample.
  const int64_t before = std::min(first, std::max<int64_t>(length - 1, 0));
  std::vector<int64_t> read(static_cast<size_t>(before + sequence + 1));
  chunk.source.file.read(chunk.source.begin + first - before, static_cast<int64_t>(read.size()), read.data());
  const auto ends_document = [&](int64_t at) {  // whether a separator ends with read[at]
    return length > 0 && at + 1 >= length &&
           std::equal(separator.begin(), separator.end(), read.begin() + (at + 1 - length));
  };
  int64_t counted = 0, position = 0, document = 0;
  for (int64_t i = 0; i < sequence; ++i) {
    const int64_t at = before + i;
    const bool last = ends_document(at);
    counted += last ? 0 : 1;
    if (row.tokens) row.tokens[i] = read[static_cast<size_t>(at)];
    if (row.labels) row.labels[i] = last ? kIgnored : read[static_cast<size_t>(at + 1)];
    if (row.positions) row.positions[i] = position;
    if (row.documents) row.documents[i] = document;
    position = last ? 0 : position + 1;
    document += last ? 1 : 0;
  }
  return counted;
}

}  // namespace tessera::data
