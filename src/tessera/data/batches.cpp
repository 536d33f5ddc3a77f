#include "tessera/data/batches.h"

#include <algorithm>
#include <array>
#include <system_error>

#include "tessera/base/bytes_text.h"
#include "tessera/base/checked.h"
#include "tessera/base/error.h"
#include "tessera/io/npz.h"
#include "tessera/ir/pages.h"

namespace tessera::data {

class Batches::Maker {
 public:
  virtual ~Maker() = default;
  virtual Batch make(int64_t cursor) const = 0;
  virtual std::map<std::string, Dims> dims() const = 0;
  virtual std::optional<int64_t> count() const = 0;
  virtual void verify(const std::function<bool()>&) const {}
};

namespace {

class TokenBatches : public Batches::Maker {
 public:
  explicit TokenBatches(const BatchOptions& options) : options_(options), samples_(options.samples) {
    if (options.batch < 1) fail("data", "batch is {}; it must be at least 1", options.batch);
    require_room();
  }

  std::map<std::string, Dims> dims() const override {
    std::map<std::string, Dims> all;
    for (const std::string* name : {&options_.tokens, &options_.labels, &options_.positions, &options_.documents})
      if (!name->empty()) all.emplace(*name, Dims{options_.batch, options_.samples.sequence});
    return all;
  }

  Batch make(int64_t cursor) const override {
    check(cursor >= 0, "cursors count from 0");
    if (single_pass() && cursor >= samples_.pass())
      fail("data", "sample {} is past the end of the data, which has {} samples; request fewer steps", cursor,
           samples_.pass());
    const Dims dims = {options_.batch, options_.samples.sequence};
    Batch batch{cursor, cursor + options_.batch, 0, {}};
    const auto array = [&](const std::string& name, int64_t fill) -> int64_t* {
      if (name.empty()) return nullptr;
      Tensor tensor = Tensor::uninitialized(DType::int64, dims);
      auto* elements = reinterpret_cast<int64_t*>(tensor.mutable_data());
      std::fill_n(elements, tensor.count(), fill);
      if (!batch.tensors.emplace(name, std::move(tensor)).second)
        fail("data", "two arrays of the batch have the name '{}'; names must differ", name);
      return elements;
    };
    TokenSamples::Row row = {array(options_.tokens, 0), array(options_.labels, kIgnored), array(options_.positions, 0),
                             array(options_.documents, 0)};
    const int64_t end = single_pass() ? std::min(batch.next, samples_.pass()) : batch.next;
    for (int64_t sample = cursor; sample < end; ++sample) {
      batch.labels += samples_.fill(sample, row);
      for (int64_t** elements : {&row.tokens, &row.labels, &row.positions, &row.documents})
        if (*elements) *elements += dims[1];
    }
    batch.next = end;
    return batch;
  }

  std::optional<int64_t> count() const override {
    if (!single_pass()) return std::nullopt;
    return (samples_.pass() + options_.batch - 1) / options_.batch;
  }

 private:
  // A batch is made whole, while the next one is being prepared.
  void require_room() const {
    const size_t limit = options_.memory_limit > 0 ? options_.memory_limit : machine_memory();
    const auto arrays = static_cast<int64_t>(dims().size());
    const auto bytes = count_if_fits(std::array<int64_t, 5>{options_.batch, options_.samples.sequence, arrays,
                                                            bits_of(DType::int64) / 8, options_.prefetch ? 2 : 1});
    if (!bytes)
      fail("data", "a batch of {} samples of {} tokens is larger than any memory; give a smaller batch", options_.batch,
           options_.samples.sequence);
    if (static_cast<size_t>(*bytes) > limit)
      fail("data", "a batch of {} samples of {} tokens needs {}, but only {} are available; give a smaller batch",
           options_.batch, options_.samples.sequence, bytes_text(static_cast<double>(*bytes)),
           bytes_text(static_cast<double>(limit)));
  }

  bool single_pass() const { return options_.samples.order == Order::once; }

  BatchOptions options_;
  TokenSamples samples_;
};

/// Steps that somebody has prepared: slice k of every array is step k.
class ArrayBatches : public Batches::Maker {
 public:
  explicit ArrayBatches(const SampleOptions& options)
      : path_(options.sources[0].path.string()), arrays_(options.sources[0].path) {
    if (options.separator || options.held_out != 0)
      fail(
          "data",
          "{}: the steps of a .npz file are taken as they are; a document separator or a held-out part needs a file of "
          "tokens",
          path_);
    const std::string* first = nullptr;
    for (const auto& [name, dims] : arrays_.dims()) {
      if (dims.empty())
        fail("data", "{}: '{}' is a scalar; give it a first dimension with an element for each step", path_, name);
      if (first && dims[0] != steps_)
        fail("data",
             "{}: '{}' has {} steps, but '{}' has {}; the first dimension of every array must be the number of steps",
             path_, *first, steps_, name, dims[0]);
      first = &name;
      steps_ = dims[0];
    }
    if (steps_ == 0) fail("data", "{}: has no steps; give arrays whose first dimension is the number of steps", path_);
  }

  Batch make(int64_t step) const override {
    check(step >= 0, "steps count from 0");
    if (step >= steps_)
      fail("data",
           "{}: has {} steps, but step {} is requested (the first is 0); request fewer steps, or add to the file",
           path_, steps_, step);
    Batch batch{step, step + 1, 0, {}};
    for (const auto& [name, dims] : arrays_.dims()) batch.tensors.emplace(name, arrays_.read(name, step));
    return batch;
  }

  std::map<std::string, Dims> dims() const override {
    std::map<std::string, Dims> all;
    for (const auto& [name, dims] : arrays_.dims()) all.emplace(name, Dims(dims.begin() + 1, dims.end()));
    return all;
  }

  std::optional<int64_t> count() const override { return steps_; }
  void verify(const std::function<bool()>& stops) const override { arrays_.verify(stops); }

 private:
  std::string path_;
  mutable NpzSlices arrays_;  // reading moves positions within the file
  int64_t steps_ = 0;
};

std::unique_ptr<const Batches::Maker> maker_of(const BatchOptions& options) {
  const std::vector<SourceSpec>& sources = options.samples.sources;
  const auto npz = std::find_if(sources.begin(), sources.end(),
                                [](const SourceSpec& source) { return source.storage == Storage::npz; });
  if (npz == sources.end()) return std::make_unique<TokenBatches>(options);
  if (sources.size() > 1)
    fail("data", "{}: a .npz file has whole steps, which do not mix with other data; give it alone",
         npz->path.string());
  return std::make_unique<ArrayBatches>(options.samples);
}

}  // namespace

Batches::Batches(const BatchOptions& options, int64_t cursor)
    : prefetch_(options.prefetch), cursor_(cursor), maker_(maker_of(options)) {}

Batches::~Batches() = default;

Batch Batches::next() {
  Batch batch = ahead_.valid() ? ahead_.get() : maker_->make(cursor_);
  cursor_ = batch.next;
  if (prefetch_) prepare();
  return batch;
}

void Batches::prepare() {
  try {
    ahead_ = std::async(std::launch::async, [maker = maker_.get(), cursor = cursor_] { return maker->make(cursor); });
  } catch (const std::system_error&) {  // the system has no thread left, so next() makes the batch itself
  }
}

Batch Batches::at(int64_t cursor) const {
  return maker_->make(cursor);
}

void Batches::verify(const std::function<bool()>& stops) const {
  maker_->verify(stops);
}

std::map<std::string, Dims> Batches::dims() const {
  return maker_->dims();
}

void Batches::seek(int64_t cursor) {
  ahead_ = {};
  cursor_ = cursor;
}

std::optional<int64_t> Batches::count() const {
  return maker_->count();
}

}  // namespace tessera::data
