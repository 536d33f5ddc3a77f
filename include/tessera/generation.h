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

/// How tokens are chosen by logits. The choice depends on the logits, the seed, the number of the text, and the number
/// of tokens before it in its text: on no mesh, batch or repetition.
struct Sampling {
  double temperature = 0;  ///< 0: the largest logit, the first of several
  int64_t top_k = 0;       ///< only the k largest logits count; 0: all
  double top_p = 1;        ///< only the largest count whose probabilities make up this much
  uint64_t seed = 0;
};

/// Throws a user error for settings that are none.
void require_sampling(const Sampling& sampling);

/// The token chosen by one text's logits, [vocabulary], where `position` tokens stand before it. Throws a user error
/// for settings that are none, and a running error for logits of which none is a number.
int64_t choose_token(const std::vector<float>& logits, const Sampling& sampling, uint64_t text, uint64_t position);

struct GenerationOptions {
  int64_t max_new = 100;           ///< tokens that a text gains at most; up to 2^31 - 1
  std::vector<int64_t> stop = {};  ///< a text ends with any of these
  Sampling sampling = {};
};

/// Throws the user error that any Generator would throw for these, whatever its model: for settings that are none, an
/// empty prompt, and too many new tokens.
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
  /// Caches that are held and full get twice the capacity, instead of refusing texts that may become longer. The
  /// program is compiled and loaded anew each time, which counts as time of the run that needs it. Growth that fails
  /// throws, and leaves caches with the room that they had. Not with a connection.
  bool grows = false;
  /// "past_key_values.*=present.*": inputs that take the values of outputs. Empty: found by the names that transformers
  /// and Optimum give them.
  std::vector<std::string> caches = {};
  /// What caches that are held store, float32, bfloat16 or float16: Attention, which reads them, works in it. By
  /// default, what the model computes in. Other forms of caches than held ones are a user error then.
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
/// from several threads take turns.
class Generator {
 public:
  /// Compiles the model for its batch and capacity. Throws user errors: as compile() does; for a model
  /// that is no decoder; for inputs that nobody gives; and for caches that are handed on, or grow, with a connection.
  Generator(const Model& model, const Mesh& mesh, const Plan& plan, const GeneratorOptions& options = {},
            const CompileOptions& compile_options = {}, const SessionOptions& session = {});
  ~Generator();
  Generator(Generator&&) noexcept;
  Generator& operator=(Generator&&) noexcept;

  /// Continues texts, as many at once as the batch says. Texts of several lengths run together where caches are held
  /// and the model lets each text have positions of its own; else those of one length do. Throws a user error for an
  /// empty prompt, prompts' or stop tokens that the model does not have, and a text that may grow beyond the capacity,
  /// unless that grows, too.
  Generation generate(const std::vector<std::vector<int64_t>>& prompts, const GenerationOptions& options,
                      const TokenObserver& observe = nullptr);

  /// Loads the weights, and plans the runs over these prompts and over single tokens, as generate() does otherwise
  /// before its first run. Throws what generate() would throw for them before it runs.
  void prepare(const std::vector<std::vector<int64_t>>& prompts, const GenerationOptions& options);

  /// Throws the user error that generate() would throw for these before it runs.
  void require(const std::vector<std::vector<int64_t>>& prompts, const GenerationOptions& options) const;

  const Program& program() const;
  CacheForm form() const;
  /// Why the form is not a better one; "" if it is the best.
  const std::string& reason() const;
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

/// The model that runs where caches are held, for who would run, split or write it: (input_ids, "tessera.held" int64
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
