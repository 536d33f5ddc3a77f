#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/tessera.h"

/// Continues texts with decoders, token by token (docs/generation.md):
///
///     tessera::Generator generator(model, tessera::Mesh::parse("tp=2"), {}, {.capacity = 256});
///     tessera::Generation made = generator.generate({{11, 7, 42}}, {.max_new = 100});
///     made.texts[0].ids;
namespace tessera {
inline namespace v1 {

/// How tokens are sampled from logits. The choice depends on the logits, the seed, the index of the text, and the
/// number of tokens before it in its text, but not on the mesh or the batch, and is the same in every run.
struct Sampling {
  double temperature = 0;  ///< 0: the largest logit, the first of several
  int64_t top_k = 0;       ///< only the k largest logits count; 0: all
  double top_p = 1;        ///< only the largest logits count whose probabilities reach this sum
  uint64_t seed = 0;
};

/// Throws a user error for invalid settings.
void require_sampling(const Sampling& sampling);

/// The token chosen from one text's logits, [vocabulary], after `position` tokens. Throws a user error for invalid
/// settings, and a running error if all logits are NaN.
int64_t choose_token(const std::vector<float>& logits, const Sampling& sampling, uint64_t text, uint64_t position);

struct GenerationOptions {
  int64_t max_new = 100;           ///< most new tokens of a text; up to 2^31 - 1
  std::vector<int64_t> stop = {};  ///< tokens that end a text
  Sampling sampling = {};
};

/// Throws the user error that any Generator would throw for these, whatever its model: for invalid settings, an empty
/// prompt, and too many new tokens.
void require_asked(const std::vector<std::vector<int64_t>>& prompts, const GenerationOptions& options);

/// Where the keys and values of earlier tokens are kept.
enum class CacheForm {
  held,    ///< in states of the ranks, to which a run appends
  handed,  ///< in outputs of a run, which are inputs of the next
  none,    ///< nowhere: each token needs a run over the whole text
};

struct GeneratorOptions {
  int64_t batch = 1;       ///< texts that run together
  int64_t capacity = 256;  ///< most tokens of a text, its prompt included; up to 2^31 - 1
  /// Full held caches double their capacity, instead of refusing texts that may become longer. The program is then
  /// compiled and loaded again, which counts as time of the run that needs it. If growth fails, it throws and leaves
  /// the caches unchanged. Not supported with a connection.
  bool grows = false;
  /// "past_key_values.*=present.*": inputs that take the values of outputs. Empty: found by the names that transformers
  /// and Optimum give them.
  std::vector<std::string> caches = {};
  /// The type of held caches, float32, bfloat16 or float16, in which Attention then computes. By default, the type in
  /// which the model computes. If it is set, caches in another form are a user error.
  std::optional<DType> cache_dtype = {};
  CacheForm best = CacheForm::held;  ///< the best form to try
  Tensors constants = {};            ///< for inputs that a generator cannot make, the same in every run
};

/// Like require_asked() above, for a Generator with these settings; also throws if held caches have no room for a text.
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

/// The sizes of a Generator's runs: of its program's symbols.
struct GenerationSizes {
  SymbolSizes prefill;  ///< the run over the prompts that run together first
  SymbolSizes decode;   ///< the run after it, of one token for each text
  int64_t prompts = 0;  ///< that run together first
};

/// Called with each token as it is chosen.
using TokenObserver = std::function<void(size_t text, int64_t token)>;

/// A decoder on the ranks of a mesh. With a connection, all processes make the same calls and get the same texts. Calls
/// from several threads take turns; a TokenObserver must not call generate().
class Generator {
 public:
  /// Compiles the model for its batch and capacity. Throws user errors: like compile(); for a model that is not a
  /// decoder; for missing inputs; and, with a connection, for caches that are handed from run to run, or grow.
  Generator(const Model& model, const Mesh& mesh, const Plan& plan, const GeneratorOptions& options = {},
            const CompileOptions& compile_options = {}, const SessionOptions& session = {});
  ~Generator();
  Generator(Generator&&) noexcept;
  Generator& operator=(Generator&&) noexcept;

  /// Continues texts, `batch` at once. Texts of different lengths run together if caches are held and the model allows
  /// each text its own positions; otherwise only those of one length do. Throws a user error for an empty prompt, for
  /// tokens of prompts or `stop` that are not in the model's vocabulary, and for a text that may exceed the capacity,
  /// unless that grows.
  Generation generate(const std::vector<std::vector<int64_t>>& prompts, const GenerationOptions& options,
                      const TokenObserver& observe = nullptr);

  /// Loads the weights, and plans the runs over these prompts and over single tokens, which generate() otherwise does
  /// before its first run. Throws what generate() would throw for them before it runs.
  void prepare(const std::vector<std::vector<int64_t>>& prompts, const GenerationOptions& options);

  /// Throws the user error that generate() would throw for these before it runs.
  void require(const std::vector<std::vector<int64_t>>& prompts, const GenerationOptions& options) const;

  /// Of the runs over these prompts, and after them. Throws like require().
  GenerationSizes sizes(const std::vector<std::vector<int64_t>>& prompts, const GenerationOptions& options);

  Program program() const;
  CacheForm form() const;
  /// Why no better form is used; "" if the form is the best.
  std::string reason() const;
  /// Whether the model had no caches and got them from the Generator.
  bool given_caches() const;
  int64_t vocabulary() const;  ///< -1: unknown
  /// Tokens of a text that held caches currently have room for.
  int64_t capacity() const;
  /// Most bytes of caches that a rank holds.
  int64_t cache_bytes() const;
  /// Session::process_bytes.
  int64_t process_bytes() const;
  int threads_per_rank() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The model that runs if caches are held, to run, split or write it: (input_ids, "tessera.held" int64 [batch]: tokens
/// that the caches hold, "tessera.last" int64 [batch]: index of the run's token whose logits are needed) => (logits
/// [batch, 1, vocabulary], "next.CACHE" of each cache). Caches are initializers of zeros, [batch, heads, capacity,
/// width], and states by with_states({"CACHE=next.CACHE"}). Throws a user error if they cannot be held.
Model held_decoder(const Model& model, const GeneratorOptions& options);

/// The prompts in a .npz or .npy file: an integer array [length] is one, an array [count, length] is several; arrays
/// are ordered by name, numbers in names by value. If a file has the array `input_ids`, as tokenizers give it, only
/// that is read; an `attention_mask` beside it, of ones for tokens and zeros for padding before or after them, says
/// which tokens are the prompt. Throws a user error that names the array for anything else.
std::vector<std::vector<int64_t>> read_prompts(const std::filesystem::path& path);

}  // namespace v1
}  // namespace tessera
