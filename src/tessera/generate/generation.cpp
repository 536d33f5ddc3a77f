#include "tessera/generation.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <string_view>

#include "tessera/api/impl.h"
#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/base/unmoved.h"
#include "tessera/generate/decoder.h"
#include "tessera/generate/decoder_ports.h"
#include "tessera/launch/engines.h"
#include "tessera/program_io/compute_sizes.h"
#include "tessera/rewrite/passes.h"

namespace tessera {
inline namespace v1 {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();

void require_options(const GeneratorOptions& options) {
  if (options.batch < 1) fail("generate", "batch is {}; it must be at least 1", options.batch);
  if (options.capacity < 2)
    fail("generate", "a capacity of {} is too small; give at least 2", counted(options.capacity, "token"));
  if (options.capacity > kMostTokens)
    fail("generate", "a capacity of {} is too large; give at most {}", counted(options.capacity, "token"), kMostTokens);
  const std::optional<DType>& type = options.cache_dtype;
  if (type && *type != DType::float32 && *type != DType::bfloat16 && *type != DType::float16)
    fail("generate", "caches cannot be stored in {}; use float32, bfloat16 or float16", name_of(*type));
  if (type && options.best != CacheForm::held)
    fail("generate", "only held caches may have a type of their own; leave it out, or hold the caches");
}

void require_room(const std::vector<std::vector<int64_t>>& prompts, int64_t max_new, const GeneratorOptions& options) {
  const int64_t most = options.grows ? kMostTokens : options.capacity;
  for (size_t i = 0; i < prompts.size(); ++i)
    if (const auto length = static_cast<int64_t>(prompts[i].size()); length > most - max_new)
      fail("generate", "prompt {} has {} and may gain {}, but caches hold {}{}", i, counted(length, "token"), max_new,
           most, options.grows ? " at most; request fewer new tokens" : "; give them a larger capacity");
}

generate::HeldDecoder held_in(const Model& model, const generate::DecoderPorts& ports, const GeneratorOptions& options,
                              int64_t capacity) {
  generate::HeldDecoder held = generate::hold_caches(model.impl().model, ports, options.batch, capacity);
  if (options.cache_dtype) generate::type_caches(held, *options.cache_dtype);
  return held;
}

int64_t longest_of(const std::vector<std::vector<int64_t>>& texts) {
  size_t longest = 0;
  for (const std::vector<int64_t>& text : texts) longest = std::max(longest, text.size());
  return static_cast<int64_t>(longest);
}

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace

void require_asked(const std::vector<std::vector<int64_t>>& prompts, const GenerationOptions& options) {
  require_sampling(options.sampling);
  if (options.max_new < 1) fail("generate", "max_new is {}; it must be at least 1", options.max_new);
  if (options.max_new > kMostTokens)
    fail("generate", "max_new is {}; it must be at most {}", options.max_new, kMostTokens);
  for (size_t i = 0; i < prompts.size(); ++i)
    if (prompts[i].empty()) fail("generate", "prompt {} is empty; give at least one token", i);
}

void require_asked(const std::vector<std::vector<int64_t>>& prompts, const GenerationOptions& options,
                   const GeneratorOptions& generator) {
  require_asked(prompts, options);
  require_options(generator);
  if (generator.best == CacheForm::held) require_room(prompts, options.max_new, generator);
}

struct Generator::Impl {
  Model model;
  Mesh mesh;
  Plan plan;
  GeneratorOptions options;
  CompileOptions compile_options;
  SessionOptions session;
  generate::DecoderPorts ports;
  std::shared_ptr<Connection> connection = session.connection;
  std::unique_ptr<generate::Decoder> decoder;
  CacheForm form = CacheForm::held;
  std::string reason;
  bool given = false;
  int64_t vocabulary = -1, cache_bytes = 0;
  /// Calls take turns; an observer may ask, but not generate.
  std::unique_ptr<std::recursive_mutex> turn = std::make_unique<std::recursive_mutex>();
  bool generates = false;

  generate::DecoderSource source() const { return {model, mesh, plan, options, compile_options, session, ports}; }

  void make() {
    if (options.best == CacheForm::held)
      if (auto held = hold(options.capacity, reason)) return load(std::move(*held));
    if (options.cache_dtype)
      fail("generate", "only held caches may have a type of their own, and these are not held: {}", reason);
    form = options.best == CacheForm::none || ports.caches.empty() ? CacheForm::none : CacheForm::handed;
    if (connection && form == CacheForm::handed)
      fail("generate",
           "caches that are handed from run to run are in rank 0's process only; run ranks as threads of one process, "
           "or run over the whole text for each token{}{}",
           reason.empty() ? "" : ". They are not held since: ", reason);
    decoder = form == CacheForm::none ? generate::uncached_decoder(source()) : generate::handed_decoder(source());
  }

  /// The model with caches of that capacity in them; nullopt, and why, if it is none that can have them.
  std::optional<generate::HeldDecoder> hold(int64_t capacity, std::string& why_not) const {
    try {
      return held_in(model, ports, options, capacity);
    } catch (const Error& error) {
      // Caches too large for any memory are not a fault of the model: the caller is told.
      const bool is_too_large = error.stage() == "memory";
      if (error.kind() != ErrorKind::user || is_too_large) throw;
      why_not = error.what();
      return std::nullopt;
    }
  }

  void load(generate::HeldDecoder held) {
    given = held.given;
    decoder = generate::held_decoder(source(), std::move(held));
    cache_bytes = 0;
    for (const StateInfo& state : decoder->program().states())
      if (state.changes) cache_bytes += state.bytes;
  }

  const generate::Decoder& loaded() const {
    if (!decoder) fail("generate", "caches could neither grow nor be restored; make a new generator, with more memory");
    return *decoder;
  }

  /// The prompts that run together, by number: as many as the batch, of one length unless the decoder takes several.
  std::vector<std::vector<size_t>> groups_of(const std::vector<std::vector<int64_t>>& prompts) const {
    std::vector<size_t> order;
    for (size_t i = 0; i < prompts.size(); ++i) order.push_back(i);
    if (!decoder->ragged)
      std::stable_sort(order.begin(), order.end(),
                       [&](size_t a, size_t b) { return prompts[a].size() < prompts[b].size(); });
    std::vector<std::vector<size_t>> groups;
    for (size_t i : order) {
      const bool fits = !groups.empty() && static_cast<int64_t>(groups.back().size()) < options.batch &&
                        (decoder->ragged || prompts[groups.back().front()].size() == prompts[i].size());
      if (!fits) groups.emplace_back();
      groups.back().push_back(i);
    }
    return groups;
  }

  bool is_token(int64_t id) const { return id >= 0 && (vocabulary < 0 || id < vocabulary); }
  std::string tokens_text() const { return vocabulary < 0 ? "0 or more" : fmt::format("0 to {}", vocabulary - 1); }

  void require_prompts(const std::vector<std::vector<int64_t>>& prompts, const GenerationOptions& asked) const {
    loaded();
    require_asked(prompts, asked);
    for (int64_t id : asked.stop)
      if (!is_token(id))
        fail("generate", "the stop token {} is not a token of the model, whose tokens are {}", id, tokens_text());
    if (form == CacheForm::held) require_room(prompts, asked.max_new, options);
    for (size_t i = 0; i < prompts.size(); ++i)
      for (int64_t id : prompts[i])
        if (!is_token(id))
          fail("generate", "prompt {} has the token {}, but the model's tokens are {}", i, id, tokens_text());
  }

  /// Sees to it that caches have room for so many tokens of a text; keeps what they have, if it `goes_on`. If that
  /// fails, they have the room that they had before.
  void make_room(int64_t tokens, bool goes_on) {
    if (form != CacheForm::held || tokens <= options.capacity) return;
    const int64_t before = options.capacity, wanted = std::max(tokens, std::min(kMostTokens, 2 * before));
    std::string why_not;
    std::optional<generate::HeldDecoder> larger = hold(wanted, why_not);
    if (!larger) fail("generate", "caches of {} tokens cannot grow: {}", before, why_not);
    const generate::HeldTexts texts = goes_on ? decoder->leave() : generate::HeldTexts();
    decoder.reset();  // its weights go before they come again
    options.capacity = wanted;
    try {
      load(std::move(*larger));
      decoder->resume(texts);
    } catch (...) {
      const std::exception_ptr why = std::current_exception();
      options.capacity = before;
      restore();
      std::rethrow_exception(why);
    }
  }

  /// Caches of the capacity that they had; none, which loaded() says, if not even that can be.
  void restore() {
    decoder.reset();
    try {
      std::string why_not;
      load(hold(options.capacity, why_not).value());
    } catch (...) {
      decoder.reset();
    }
  }

  /// The tokens that rank 0's process has chosen, since logits are in no other.
  std::vector<int64_t> of_first(std::vector<int64_t> own) const {
    comm::Communicator& everyone = *connection->impl().everyone;
    const size_t count = own.size();
    const std::vector<int64_t> counts(static_cast<size_t>(everyone.size()), static_cast<int64_t>(count));
    std::vector<int64_t> all(count * counts.size());
    everyone.run({.kind = comm::Kind::all_gather,
                  .dtype = DType::int64,
                  .in = own.data(),
                  .out = all.data(),
                  .counts = counts,
                  .label = "tokens"});
    all.resize(count);
    return all;
  }

  /// The texts that run together for a group of prompts.
  std::vector<std::vector<int64_t>> texts_of(const std::vector<size_t>& group,
                                             const std::vector<std::vector<int64_t>>& prompts) const {
    std::vector<std::vector<int64_t>> texts;
    for (size_t i : group) texts.push_back(prompts[i]);
    // Held caches have rows for a whole batch; what they hold of no text is ignored.
    while (form == CacheForm::held && static_cast<int64_t>(texts.size()) < options.batch)
      texts.push_back(texts.front());
    return texts;
  }

  /// The same, for which everything is loaded and planned.
  std::vector<std::vector<int64_t>> prepared(const std::vector<size_t>& group,
                                             const std::vector<std::vector<int64_t>>& prompts) {
    std::vector<std::vector<int64_t>> texts = texts_of(group, prompts);
    make_room(longest_of(texts), false);
    decoder->prepare(texts);
    return texts;
  }

  void run(const std::vector<size_t>& group, const std::vector<std::vector<int64_t>>& prompts,
           const GenerationOptions& asked, const TokenObserver& observe, Generation& made) {
    const std::vector<std::vector<int64_t>> texts = prepared(group, prompts);
    const int64_t longest = longest_of(texts);
    Clock::time_point start = Clock::now();
    auto logits = decoder->start(texts);
    made.prefill_ms += milliseconds_since(start);
    for (size_t i : group) made.prefill_tokens += static_cast<int64_t>(prompts[i].size());
    std::vector<int64_t> tokens(texts.size(), 0);
    for (int64_t step = 0;; ++step) {
      for (size_t row = 0; row < logits.size() && row < group.size(); ++row) {
        const GeneratedText& text = made.texts[group[row]];
        const auto position = static_cast<uint64_t>(prompts[group[row]].size()) + text.ids.size();
        if (!text.stopped) tokens[row] = choose_token(logits[row], asked.sampling, group[row], position);
      }
      if (connection) tokens = of_first(std::move(tokens));
      bool goes_on = false;
      for (size_t row = 0; row < group.size(); ++row) {
        GeneratedText& text = made.texts[group[row]];
        if (text.stopped) continue;
        text.ids.push_back(tokens[row]);
        if (observe) observe(group[row], tokens[row]);
        text.stopped = std::find(asked.stop.begin(), asked.stop.end(), tokens[row]) != asked.stop.end();
        goes_on |= !text.stopped;
      }
      if (!goes_on || step + 1 == asked.max_new) return;
      start = Clock::now();
      make_room(longest + step + 1, true);
      logits = decoder->next(tokens);
      made.decode_ms.push_back(milliseconds_since(start));
    }
  }
};

namespace {

// A call that generates.
class Turn {
 public:
  template <typename Impl>
  explicit Turn(Impl& generator) : lock_(*generator.turn), generates_(generator.generates) {
    if (generates_) fail("generate", "the generator generates, and calls its observer; let that return first");
    generates_ = true;
  }
  ~Turn() { generates_ = false; }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::unique_lock<std::recursive_mutex> lock_;
  bool& generates_;
};

}  // namespace

Generator::Generator(const Model& model, const Mesh& mesh, const Plan& plan, const GeneratorOptions& options,
                     const CompileOptions& compile_options, const SessionOptions& session) {
  require_options(options);
  if (options.cache_dtype == DType::float32 && plan.dtype.value_or(DType::float32) != DType::float32)
    fail("generate", "a model that computes in {} has no float32 keys and values for caches of float32",
         name_of(*plan.dtype));
  if (options.grows && session.connection)
    fail("generate", "caches of ranks that are processes do not grow; give them the capacity that texts may need");
  impl_ = std::make_unique<Impl>(
      Impl{model, mesh, plan, options, compile_options, session,
           generate::decoder_ports(*model.impl().model.graph, options.caches, options.constants)});
  impl_->make();
  for (const TensorInfo& output : program().outputs())
    if (output.name == impl_->ports.logits && !output.shape.empty())
      if (const auto size = Expr::parse(output.shape.back()); size && size->constant())
        impl_->vocabulary = *size->constant();
}

Generator::~Generator() = default;
Generator::Generator(Generator&&) noexcept = default;
Generator& Generator::operator=(Generator&&) noexcept = default;

void Generator::require(const std::vector<std::vector<int64_t>>& prompts, const GenerationOptions& options) const {
  const Turn turn(unmoved(impl_));
  impl_->require_prompts(prompts, options);
}

void Generator::prepare(const std::vector<std::vector<int64_t>>& prompts, const GenerationOptions& options) {
  const Turn turn(unmoved(impl_));
  impl_->require_prompts(prompts, options);
  const std::vector<std::vector<size_t>> groups = impl_->groups_of(prompts);
  if (!groups.empty()) impl_->prepared(groups.front(), prompts);
}

GenerationSizes Generator::sizes(const std::vector<std::vector<int64_t>>& prompts, const GenerationOptions& options) {
  const Turn turn(unmoved(impl_));
  impl_->require_prompts(prompts, options);
  const std::vector<std::vector<size_t>> groups = impl_->groups_of(prompts);
  if (groups.empty()) return {};
  GenerationSizes sizes = impl_->decoder->sizes(impl_->texts_of(groups.front(), prompts));
  sizes.prompts = static_cast<int64_t>(groups.front().size());
  return sizes;
}

Generation Generator::generate(const std::vector<std::vector<int64_t>>& prompts, const GenerationOptions& options,
                               const TokenObserver& observe) {
  const Turn turn(unmoved(impl_));
  impl_->require_prompts(prompts, options);
  Generation made;
  made.texts.resize(prompts.size());
  for (const std::vector<size_t>& group : impl_->groups_of(prompts)) impl_->run(group, prompts, options, observe, made);
  return made;
}

Model held_decoder(const Model& model, const GeneratorOptions& options) {
  require_options(options);
  const generate::DecoderPorts ports =
      generate::decoder_ports(*model.impl().model.graph, options.caches, options.constants);
  generate::HeldDecoder held = held_in(model, ports, options, options.capacity);
  Graph& graph = *held.model.graph;
  for (const std::string& name : held.caches) {
    Value* cache = graph.find(name);
    graph.outputs.push_back(cache->next);
    graph.set_next(cache, nullptr);
    cache->changing = false;
  }
  rewrite::spell_out(graph);
  program_io::compute_sizes(graph);
  return api::model_of(model, std::move(held.model));
}

Program Generator::program() const {
  const Generator::Impl& held = unmoved(impl_);
  const std::lock_guard lock(*held.turn);
  return held.loaded().program();
}
CacheForm Generator::form() const {
  const Generator::Impl& held = unmoved(impl_);
  const std::lock_guard lock(*held.turn);
  return held.form;
}
std::string Generator::reason() const {
  const Generator::Impl& held = unmoved(impl_);
  const std::lock_guard lock(*held.turn);
  return held.reason;
}
bool Generator::given_caches() const {
  const Generator::Impl& held = unmoved(impl_);
  const std::lock_guard lock(*held.turn);
  return held.given;
}
int64_t Generator::vocabulary() const {
  const Generator::Impl& held = unmoved(impl_);
  const std::lock_guard lock(*held.turn);
  return held.vocabulary;
}
int64_t Generator::capacity() const {
  const Generator::Impl& held = unmoved(impl_);
  const std::lock_guard lock(*held.turn);
  return held.options.capacity;
}
int64_t Generator::cache_bytes() const {
  const Generator::Impl& held = unmoved(impl_);
  const std::lock_guard lock(*held.turn);
  return held.cache_bytes;
}
int64_t Generator::process_bytes() const {
  const Generator::Impl& held = unmoved(impl_);
  const std::lock_guard lock(*held.turn);
  return held.loaded().session().process_bytes();
}
int Generator::threads_per_rank() const {
  const Generator::Impl& held = unmoved(impl_);
  const std::lock_guard lock(*held.turn);
  return held.loaded().session().threads_per_rank();
}

}  // namespace v1
}  // namespace tessera
