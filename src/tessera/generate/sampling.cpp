#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/generation.h"
#include "tessera/ir/random.h"

namespace tessera {
inline namespace v1 {
namespace {

struct Candidate {
  double weight;  // exp((logit - largest) / temperature)
  int64_t id;
};

// Whether `a` counts after `b`: heavier tokens first, then smaller ids.
bool is_lighter(const Candidate& a, const Candidate& b) {
  return a.weight < b.weight || (a.weight == b.weight && a.id > b.id);
}

// The heaviest candidates, heaviest first: `most` of them, or so many that they make up `share` of all weight.
std::vector<Candidate> heaviest(std::vector<Candidate> all, size_t most, double share) {
  double total = 0, gathered = 0;
  std::vector<Candidate> kept;
  std::make_heap(all.begin(), all.end(), is_lighter);
  const auto take = [&] {
    std::pop_heap(all.begin(), all.end(), is_lighter);
    kept.push_back(all.back());
    all.pop_back();
  };
  if (most < all.size()) {
    while (kept.size() < most) take();
    all = std::move(kept);
    kept.clear();
    std::make_heap(all.begin(), all.end(), is_lighter);
  }
  for (const Candidate& candidate : all) total += candidate.weight;
  while (!all.empty() && (kept.empty() || gathered < share * total)) {
    take();
    gathered += kept.back().weight;
  }
  return kept;
}

}  // namespace

void require_sampling(const Sampling& sampling) {
  if (!(sampling.temperature >= 0) || !std::isfinite(sampling.temperature))
    fail("generate", "temperature is {}; it must be at least 0 (0: the likeliest token)", sampling.temperature);
  if (sampling.top_k < 0) fail("generate", "top_k is {}; it must be at least 0 (0: all tokens)", sampling.top_k);
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    fail("generate", "top_p is {}; it must be above 0 and at most 1", sampling.top_p);
}

int64_t choose_token(const std::vector<float>& logits, const Sampling& sampling, uint64_t text, uint64_t position) {
  require_sampling(sampling);
  int64_t best = -1;
  for (size_t i = 0; i < logits.size(); ++i)
    if (!std::isnan(logits[i]) && (best < 0 || logits[i] > logits[static_cast<size_t>(best)]))
      best = static_cast<int64_t>(i);
  if (best < 0 || std::isinf(logits[static_cast<size_t>(best)]))
    throw Error(ErrorKind::running, "generate",
                fmt::format("no logit of token {} of text {} is a finite number", position, text));
  if (sampling.temperature == 0 || sampling.top_k == 1) return best;
  const double largest = logits[static_cast<size_t>(best)];
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    const double weight = std::exp((static_cast<double>(logits[i]) - largest) / sampling.temperature);
    if (weight > 0) candidates.push_back({weight, static_cast<int64_t>(i)});
  }
  const size_t most = sampling.top_k > 0 ? static_cast<size_t>(sampling.top_k) : candidates.size();
  if (most < candidates.size() || sampling.top_p < 1)
    candidates = heaviest(std::move(candidates), most, sampling.top_p);
  double total = 0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  // Two words for each text, in a run of their own for each position.
  const random::Stream stream{
      static_cast<uint64_t>(random::seeded(sampling.seed, random::key_of_name("tessera.generate"))), position};
  std::array<uint32_t, 2> words{};
  stream.words(2 * text, 2, words.data());
  double left = random::fraction(words[0], words[1], 53) * total;
  for (const Candidate& candidate : candidates) {
    left -= candidate.weight;
    if (left < 0) return candidate.id;
  }
  return candidates.back().id;
}

}  // namespace v1
}  // namespace tessera
