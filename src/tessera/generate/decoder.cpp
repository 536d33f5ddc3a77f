#include "tessera/generate/decoder.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "tessera/api/impl.h"
#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/base/float16.h"
#include "tessera/inspect.h"

namespace tessera::generate {
namespace {

using Rows = std::vector<std::vector<float>>;
using Texts = std::vector<std::vector<int64_t>>;

template <typename T>
std::vector<float> widened(const Tensor& tensor, int64_t first, int64_t count) {
  const auto elements = tensor.as<T>().subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  std::vector<float> row;
  row.reserve(elements.size());
  for (const T& element : elements) row.push_back(static_cast<float>(element));
  return row;
}

/// Elements [first, first + count) as floats.
std::vector<float> floats(const Tensor& tensor, int64_t first, int64_t count) {
  switch (tensor.dtype) {
    case DType::float32:
      return widened<float>(tensor, first, count);
    case DType::float64:
      return widened<double>(tensor, first, count);
    case DType::bfloat16:
      return widened<BFloat16>(tensor, first, count);
    case DType::float16:
      return widened<Float16>(tensor, first, count);
    default:
      fail("generate", "logits are {}; they must be floats", name_of(tensor.dtype));
  }
}

/// The rows of token `last` of each text, in logits [batch, sequence, vocabulary]. Some models give those of the last
/// token only, [batch, 1, vocabulary].
Rows rows_of(const Tensor& logits, int64_t last) {
  if (logits.dims.size() != 3)
    fail("generate", "logits have {}; they must be [batch, sequence, vocabulary]",
         counted(logits.dims.size(), "dimension"));
  const int64_t sequence = logits.dims[1], vocabulary = logits.dims[2];
  if (sequence == 1) last = 0;
  if (last >= sequence)
    fail("generate", "logits are of {}, but the run has at least {}; a decoder gives those of all, or of the last",
         counted(sequence, "token"), last + 1);
  Rows rows;
  for (int64_t text = 0; text < logits.dims[0]; ++text)
    rows.push_back(floats(logits, (text * sequence + last) * vocabulary, vocabulary));
  return rows;
}

Tensor integers(DType dtype, Dims dims, const std::vector<int64_t>& elements) {
  if (dtype == DType::int64) return Tensor::of(dtype, std::move(dims), elements);
  if (dtype == DType::int32)
    return Tensor::of(dtype, std::move(dims), std::vector<int32_t>(elements.begin(), elements.end()));
  std::vector<uint8_t> bytes(elements.begin(), elements.end());
  if (dtype == DType::boolean || dtype == DType::uint8) return Tensor::of(dtype, std::move(dims), bytes);
  if (dtype == DType::float32)
    return Tensor::of(dtype, std::move(dims), std::vector<float>(elements.begin(), elements.end()));
  fail("generate", "an input of ids, masks or positions is {}; it must be of integers, bools or float32",
       name_of(dtype));
}

/// What the plan does not say of the model to compile: choices by cost are for one token of each text, as most runs
/// have them, behind as many others as there is room for.
Plan for_decoding(const DecoderSource& source, const Model& model) {
  Plan plan = source.plan;
  const DecoderPorts& ports = source.ports;
  const std::vector<std::string> symbols = model.symbols();
  const auto suppose = [&](const TensorInfo& input, size_t dim, int64_t size) {
    if (dim < input.shape.size() && std::find(symbols.begin(), symbols.end(), input.shape[dim]) != symbols.end())
      plan.shapes.try_emplace(input.shape[dim], size);
  };
  for (const TensorInfo& input : model.inputs()) {
    const bool is_cache = std::any_of(ports.caches.begin(), ports.caches.end(),
                                      [&](const DecoderPorts::Cache& cache) { return cache.past == input.name; });
    if (is_cache || input.name == ports.ids) suppose(input, 0, source.options.batch);
    if (is_cache) suppose(input, 2, source.options.capacity - 1);
    if (input.name == ports.ids) suppose(input, 1, 1);
  }
  // A mask may be as long as both together.
  for (const TensorInfo& input : model.inputs())
    if (input.name == ports.mask) suppose(input, 1, source.options.capacity);
  return plan;
}

/// [batch, heads, capacity, width] as the same with more capacity, zeros behind. Itself if it has that capacity.
Tensor with_capacity(const Tensor& cache, int64_t capacity) {
  if (cache.dims.at(2) == capacity) return cache;
  Dims dims = cache.dims;
  dims[2] = capacity;
  Tensor larger = Tensor::zeros(cache.dtype, dims);
  const int64_t heads = dims[0] * dims[1];
  const size_t from = heads == 0 ? 0 : cache.bytes / static_cast<size_t>(heads);
  const size_t to = heads == 0 ? 0 : larger.bytes / static_cast<size_t>(heads);
  for (int64_t head = 0; head < heads; ++head)
    std::memcpy(larger.mutable_data() + head * to, static_cast<const std::byte*>(cache.data) + head * from, from);
  return larger;
}

/// What all forms share: a session, and the inputs that are the same in every run.
class LoadedDecoder : public Decoder {
 public:
  LoadedDecoder(const DecoderSource& source, const Model& model)
      : ports_(source.ports),
        inputs_(source.options.constants),
        program_(compile(model, source.mesh, for_decoding(source, model), source.compile)),
        session_(program_, source.session) {
    for (const TensorInfo& input : program_.inputs()) {
      dtypes_[input.name] = input.dtype;
      if (input.name == ports_.mask && input.shape.size() == 2)
        sees_caches_only_ = input.shape[1].find('+') != std::string::npos;
    }
  }

  const Program& program() const override { return program_; }
  const Session& session() const override { return session_; }

 protected:
  void give(std::string_view name, Dims dims, const std::vector<int64_t>& elements) {
    if (const auto dtype = dtypes_.find(name); dtype != dtypes_.end())
      inputs_[std::string(name)] = integers(dtype->second, std::move(dims), elements);
  }

  // The tokens of a run, [texts, sequence], that stand behind `past` others, of which caches hold `cached`; all texts
  // have as many.
  void give_tokens(const std::vector<int64_t>& ids, int64_t texts, int64_t past, int64_t cached) {
    const int64_t sequence = static_cast<int64_t>(ids.size()) / texts;
    std::vector<int64_t> places, positions;
    for (int64_t i = 0; i < sequence; ++i) places.push_back(past + i);
    for (int64_t text = 0; text < texts; ++text) positions.insert(positions.end(), places.begin(), places.end());
    give(ports_.ids, {texts, sequence}, ids);
    const int64_t seen = sees_caches_only_ ? cached + sequence : past + sequence;
    give(ports_.mask, {texts, seen}, std::vector<int64_t>(static_cast<size_t>(texts * seen), 1));
    give(ports_.positions, {texts, sequence}, positions);
    give(ports_.places, {sequence}, places);
  }

  // Of a run with the inputs that are given now.
  SymbolSizes sizes_now() const { return sizes_of(program_.inputs(), inputs_); }

  // The logits of token `last` of each text; none in processes that rank 0 is not in.
  Rows rows(const Tensors& outputs, int64_t last) const {
    const auto logits = outputs.find(ports_.logits);
    return logits == outputs.end() ? Rows{} : rows_of(logits->second, last);
  }

  DecoderPorts ports_;
  Tensors inputs_;
  Program program_;
  Session session_;
  std::map<std::string, DType, std::less<>> dtypes_;
  bool sees_caches_only_ = false;  // the mask is as long as a cache and the run's tokens together
};

class HoldingDecoder : public LoadedDecoder {
 public:
  HoldingDecoder(const DecoderSource& source, HeldDecoder held)
      : LoadedDecoder(source, api::model_of(source.model, std::move(held.model))) {
    ragged = held.ragged;
    capacity_ = source.options.capacity;
  }

  HeldTexts leave() override { return {session_.states(), held_}; }
  void resume(const HeldTexts& texts) override {
    // One by one, so that at most one cache exists twice.
    for (const auto& [name, cache] : texts.caches) session_.set_states({{name, with_capacity(cache, capacity_)}});
    held_ = texts.held;
  }

  void prepare(const Texts& texts) override {
    give_texts(texts);
    session_.peak_bytes(inputs_);
    const std::vector<int64_t> one_each(texts.size(), 0);
    give_run(one_each, one_each, one_each);
    session_.peak_bytes(inputs_);
  }

  GenerationSizes sizes(const Texts& texts) override {
    give_texts(texts);
    SymbolSizes prefill = sizes_now();
    const std::vector<int64_t> one_each(texts.size(), 0);
    give_run(one_each, one_each, one_each);
    return {std::move(prefill), sizes_now()};
  }

  Rows start(const Texts& texts) override {
    give_texts(texts);
    Rows rows = this->rows(session_.run(inputs_), 0);
    held_.clear();
    for (const std::vector<int64_t>& text : texts) held_.push_back(static_cast<int64_t>(text.size()));
    return rows;
  }

  Rows next(const std::vector<int64_t>& tokens) override {
    give_run(tokens, held_, std::vector<int64_t>(tokens.size(), 0));
    Rows rows = this->rows(session_.run(inputs_), 0);
    for (int64_t& held : held_) ++held;
    return rows;
  }

 private:
  // Behind a text that is not the longest, any token will do.
  void give_texts(const Texts& texts) {
    size_t longest = 0;
    for (const std::vector<int64_t>& text : texts) longest = std::max(longest, text.size());
    std::vector<int64_t> ids, last;
    for (const std::vector<int64_t>& text : texts) {
      ids.insert(ids.end(), text.begin(), text.end());
      ids.insert(ids.end(), longest - text.size(), 0);
      last.push_back(static_cast<int64_t>(text.size()) - 1);
    }
    give_run(ids, std::vector<int64_t>(texts.size(), 0), last);
  }

  // A run's tokens, how many caches hold before, and of which token logits are wanted: of each text.
  void give_run(const std::vector<int64_t>& ids, const std::vector<int64_t>& held, const std::vector<int64_t>& last) {
    const auto texts = static_cast<int64_t>(held.size());
    give(ports_.ids, {texts, static_cast<int64_t>(ids.size()) / texts}, ids);
    give(kHeld, {texts}, held);
    give(kLast, {texts}, last);
  }

  int64_t capacity_ = 0;
  std::vector<int64_t> held_;
};

class HandedDecoder : public LoadedDecoder {
 public:
  explicit HandedDecoder(const DecoderSource& source) : LoadedDecoder(source, source.model) {}

  void prepare(const Texts& texts) override {
    give_texts(texts);
    session_.peak_bytes(inputs_);
  }

  GenerationSizes sizes(const Texts& texts) override {
    past_ = give_texts(texts);
    SymbolSizes prefill = sizes_now();
    for (const TensorInfo& input : program_.inputs())
      if (is_past(input.name)) {
        Tensor& cache = inputs_.at(input.name);
        Dims dims = cache.dims;
        dims.at(2) = past_;
        cache = Tensor::zeros(input.dtype, dims);
      }
    const std::vector<int64_t> one_each(texts.size(), 0);
    give_run(one_each, static_cast<int64_t>(texts.size()));
    return {std::move(prefill), sizes_now()};
  }

  Rows start(const Texts& texts) override { return run(give_texts(texts)); }

  Rows next(const std::vector<int64_t>& tokens) override {
    return run(give_run(tokens, static_cast<int64_t>(tokens.size())));
  }

 private:
  bool is_past(const std::string& name) const {
    return std::any_of(ports_.caches.begin(), ports_.caches.end(),
                       [&](const DecoderPorts::Cache& cache) { return cache.past == name; });
  }

  // A cache [batch, heads, past, width] of no tokens.
  static Dims empty(const TensorInfo& input, int64_t batch) {
    Dims dims;
    for (size_t d = 0; d < input.shape.size(); ++d) {
      const auto number = Expr::parse(input.shape[d]);
      dims.push_back(d == 2 ? 0 : number && number->constant() ? *number->constant() : batch);
    }
    return dims;
  }

  // Gives the tokens of new texts; returns how many each has, which are as many.
  int64_t give_texts(const Texts& texts) {
    const auto batch = static_cast<int64_t>(texts.size());
    for (const TensorInfo& input : program_.inputs())
      if (is_past(input.name)) inputs_[input.name] = Tensor::zeros(input.dtype, empty(input, batch));
    past_ = 0;
    std::vector<int64_t> ids;
    for (const std::vector<int64_t>& text : texts) ids.insert(ids.end(), text.begin(), text.end());
    return give_run(ids, batch);
  }

  // Gives a run's tokens; returns how many each text has.
  int64_t give_run(const std::vector<int64_t>& ids, int64_t texts) {
    // Some models keep the last tokens only.
    const int64_t cached = ports_.caches.empty() ? past_ : inputs_.at(ports_.caches.front().past).dims.at(2);
    give_tokens(ids, texts, past_, cached);
    give(ports_.branch, {1}, {past_ > 0 ? 1 : 0});
    return static_cast<int64_t>(ids.size()) / texts;
  }

  Rows run(int64_t sequence) {
    const Tensors outputs = session_.run(inputs_);
    for (const DecoderPorts::Cache& cache : ports_.caches)
      if (const auto present = outputs.find(cache.present); present != outputs.end())
        inputs_[cache.past] = present->second;
    past_ += sequence;
    return rows(outputs, sequence - 1);
  }

  int64_t past_ = 0;
};

/// Caches that the model has are empty before each run.
class UncachedDecoder : public HandedDecoder {
 public:
  using HandedDecoder::HandedDecoder;

  GenerationSizes sizes(const Texts& texts) override {
    SymbolSizes prefill = HandedDecoder::sizes(texts).prefill;
    Texts longer = texts;
    for (std::vector<int64_t>& text : longer) text.push_back(0);
    return {std::move(prefill), HandedDecoder::sizes(longer).prefill};
  }

  Rows start(const Texts& texts) override {
    texts_ = texts;
    return HandedDecoder::start(texts_);
  }

  Rows next(const std::vector<int64_t>& tokens) override {
    for (size_t text = 0; text < tokens.size(); ++text) texts_[text].push_back(tokens[text]);
    return HandedDecoder::start(texts_);
  }

 private:
  Texts texts_;
};

}  // namespace

std::unique_ptr<Decoder> held_decoder(const DecoderSource& source, HeldDecoder held) {
  return std::make_unique<HoldingDecoder>(source, std::move(held));
}

std::unique_ptr<Decoder> handed_decoder(const DecoderSource& source) {
  return std::make_unique<HandedDecoder>(source);
}

std::unique_ptr<Decoder> uncached_decoder(const DecoderSource& source) {
  return std::make_unique<UncachedDecoder>(source);
}

}  // namespace tessera::generate
