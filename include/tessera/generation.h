#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/tessera.h"

/// Texts continued by decoders, token by token (docs/generation.md):
///
///     tessera::Generator generator(model, tessera::Mesh::parse("tp=2"), {}, {.capacity = 256});
///     tessera::Generation made = generator.generate({{11, 7, 42}}, {.max_new = 100});
///     made.texts[0].ids;
namespace tessera {
inline namespace v1 {

/// How tokens are sampled from logits. The choice depends on the logits, the seed, the number of the text, and the
/// number of tokens before it in its text, but not on mesh, batch or repetition.
struct Sampling {
  double temperature = 0;  ///< 0: the largest logit, the first of several
  int64_t top_k = 0;       ///< only the k largest logits count; 0: all
  double top_p = 1;        ///< only the largest count whose probabilities make up this much
  uint64_t seed = 0;
};

/// Throws a user error for invalid settings.
void require_sampling(const Sampling& sampling);

/// The token chosen from one text's logits, [vocabulary], after `position` tokens. Throws a user error for invalid
/// settings, and a running error for logits of which none is a number.
int64_t choose_token(const std::vector<float>& logits, const Sampling& sampling, uint64_t text, uint64_t position);

struct GenerationOptions {
  int64_t max_new = 100;           ///< tokens that a text gains at most; up to 2^31 - 1
  std::vector<int64_t> stop = {};  ///< a text ends with any of these
  Sampling sampling = {};
};

/// Throws the user error that any Generator would throw for these, whatever its model: for invalid settings, an empty
/// prompt, and too many new tokens.
void require_asked(const std::vector<std::vector<int64_t>>& prompts, const GenerationOptions& options);

/// Where the keys and values of a text's tokens are.
enum class CacheForm {
  held,    ///< in states of the ranks, to which a run appends
  handed,  ///< in outputs of a run, which are inputs of the next
  none,    ///< nowhere: each token takes a run over the whole text
};

struct GeneratorOptions {
  int64_t batch = 1;       ///< texts that run together
  int64_t capacity = 256;  ///< tokens that a text may have, its prompt included; up to 2^31 - 1
  /// Held caches that are full double their capacity, instead of refusing texts that may become longer. The program is
  /// compiled and loaded again each time, which counts as time of the run that needs it. Growth that fails throws, and
  /// leaves the caches as they were. Not with a connection.
  bool grows = false;
  /// "past_key_values.*=present.*": inputs that take the values of outputs. Empty: found by the names that transformers
  /// and Optimum give them.
  std::vector<std::string> caches = {};
  /// The type of held caches, float32, bfloat16 or float16, in which Attention then computes. By default, the type in
  /// which the model computes. If it is set, caches in another form are a user error.
  std::optional<DType> cache_dtype = {};
  CacheForm best = CacheForm::held;  ///< the best form that is tried
  Tensors constants = {};            ///< for inputs that a generator cannot make, the same in every run
};

/// As require_asked() above, for a Generator with these settings; also throws if caches that are to be held have no
/// room for a text.
void require_asked(const std::vector<std::vector<int64_t>>& prompts, const GenerationOptions& options,
                   const GeneratorOptions& generator);

/// One text, continued.
struct GeneratedText {
  std::vector<int64_t> ids;  ///< the new tokens; the last one is a stop token if `stopped`
  bool stopped = false;
};

struct Generation {
  std::vector<GeneratedText> texts;  ///< one per prompt
  double prefill_ms = 0;             ///< of all runs over prompts, without loading weights and planning
  int64_t prefill_tokens = 0;        ///< in these
  std::vector<double> decode_ms;     ///< of each run after those: a token for each text that runs
};

/// Called with each token as it is chosen.
using TokenObserver = std::function<void(size_t text, int64_t token)>;

/// A decoder on the ranks of a mesh. With a connection, all processes make the same calls and get the same texts. Calls
/// from several threads take turns; what observes tokens must not generate.
class Generator {
 public:
  /// Compiles the model for its batch and capacity. Throws user errors: as compile() does; for a model that is not a
  /// decoder; for missing inputs; and, with a connection, for caches that are handed from run to run, or grow.
  Generator(const Model& model, const Mesh& mesh, const Plan& plan, const GeneratorOptions& options = {},
            const CompileOptions& compile_options = {}, const SessionOptions& session = {});
  ~Generator();
  Generator(Generator&&) noexcept;
  Generator& operator=(Generator&&) noexcept;

  /// Continues texts, `batch` at once. Texts of different lengths run together if caches are held and the model allows
  /// each text its own positions; otherwise only those of one length do. Throws a user error for an empty prompt, for
  /// tokens of prompts or `stop` that the model does not have, and for a text that may exceed the capacity, unless it
  /// grows.
  Generation generate(const std::vector<std::vector<int64_t>>& prompts, const GenerationOptions& options,
                      const TokenObserver& observe = nullptr);

  /// Loads the weights, and plans the runs over these prompts and over single tokens, as generate() does otherwise
  /// before its first run. Throws what generate() would throw for them before it runs.
  void prepare(const std::vector<std::vector<int64_t>>& prompts, const GenerationOptions& options);

  /// Throws the user error that generate() would throw for these before it runs.
  void require(const std::vector<std::vector<int64_t>>& prompts, const GenerationOptions& options) const;

  Program program() const;
  CacheForm form() const;
  /// Why the form is not a better one; "" if it is the best.
  std::string reason() const;
  /// Whether the model had no caches, and was given some.
  bool given_caches() const;
  int64_t vocabulary() const;  ///< -1: the model does not say
  /// Tokens of a text for which caches that are held have room now.
  int64_t capacity() const;
  /// Bytes of the caches that a rank holds at most.
  int64_t cache_bytes() const;
  /// Session::process_bytes.
  int64_t process_bytes() const;
  int threads_per_rank() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The model that runs where caches are held, to run, split or write it: (input_ids, "tessera.held" int64
/// [batch]: tokens that the caches hold, "tessera.last" int64 [batch]: of which of the run's tokens logits are wanted)
/// => (logits [batch, 1, vocabulary], "next.CACHE" of each cache). Caches are initializers of zeros, [batch, heads,
/// capacity, width], and states by with_states({"CACHE=next.CACHE"}). Throws a user error if they cannot be held.
Model held_decoder(const Model& model, const GeneratorOptions& options);

/// The prompts in a .npz or .npy file: an integer array [length] is one, an array [count, length] are several; arrays
/// go by name, numbers in names by value. If a file has the array `input_ids`, as tokenizers give it, only that is
/// read; an `attention_mask` beside it, of ones for tokens and zeros for padding before or behind them, says which
/// tokens are the prompt. Throws a user error that names the array for anything else.
std::vector<std::vector<int64_t>> read_prompts(const std::filesystem::path& path);

}  // namespace v1
}  // namespace tessera
