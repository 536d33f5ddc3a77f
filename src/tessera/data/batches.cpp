#include "tessera/data/batches.h"

#include <algorithm>
#include <array>
#include <system_error>

#include "tessera/base/bytes_text.h"
#include "tessera/base/checked.h"
#include "tessera/base/counted.h"
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
      fail("data", "sample {} is past the end of the data, which has {}; request fewer steps", cursor,
           counted(samples_.pass(), "sample"));
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
      fail("data", "a batch of {} of {} is larger than any memory; give a smaller batch",
           counted(options_.batch, "sample"), counted(options_.samples.sequence, "token"));
    if (static_cast<size_t>(*bytes) > limit)
      fail("data", "a batch of {} of {} needs {}, but only {} are available; give a smaller batch",
           counted(options_.batch, "sample"), counted(options_.samples.sequence, "token"),
           bytes_text(static_cast<double>(*bytes)), bytes_text(static_cast<double>(limit)));
  }

  bool single_pass() const { return options_.samples.order == Order::once; }

  BatchOptions options_;
  TokenSamples samples_;
};

/// Steps that somebody has prepared: slice k of every array is step k.
class ArrayBatches : public Batches::Maker {
 public:
  ArrayBatches(std::string what, const std::map<std::string, Dims>& dims) : what_(std::move(what)) {
    const std::string* first = nullptr;
    for (const auto& [name, extents] : dims) {
      if (extents.empty())
        fail("data", "{}: '{}' is a scalar; give it a first dimension with an element for each step", what_, name);
      if (first && extents[0] != steps_)
        fail("data", "{}: '{}' has {}, but '{}' has {}; the first dimension of every array must be the number of steps",
             what_, *first, counted(steps_, "step"), name, extents[0]);
      first = &name;
      steps_ = extents[0];
      dims_.emplace(name, Dims(extents.begin() + 1, extents.end()));
    }
    if (steps_ == 0) fail("data", "{}: has no steps; give arrays whose first dimension is the number of steps", what_);
  }

  Batch make(int64_t step) const override {
    check(step >= 0, "steps count from 0");
    if (step >= steps_)
      fail("data", "{}: has {}, but step {} is requested (the first is 0); request fewer steps, or add to the file",
           what_, counted(steps_, "step"), step);
    Batch batch{step, step + 1, 0, {}};
    for (const auto& [name, dims] : dims_) batch.tensors.emplace(name, slice(name, step));
    return batch;
  }

  std::map<std::string, Dims> dims() const override { return dims_; }
  std::optional<int64_t> count() const override { return steps_; }

 protected:
  virtual Tensor slice(const std::string& name, int64_t step) const = 0;

 private:
  std::string what_;
  std::map<std::string, Dims> dims_;  // of a step
  int64_t steps_ = 0;
};

/// Those of a .npz file.
class FileBatches : public ArrayBatches {
 public:
  explicit FileBatches(const SampleOptions& options) : FileBatches(options.sources[0].path.string(), options) {}

  void verify(const std::function<bool()>& stops) const override { arrays_->verify(stops); }

 private:
  FileBatches(const std::string& path, const SampleOptions& options)
      : FileBatches(path, std::make_unique<NpzSlices>(path)) {
    if (options.separator || options.held_out != 0)
      fail(
          "data",
          "{}: the steps of a .npz file are taken as they are; a document separator or a held-out part needs a file of "
          "tokens",
          path);
  }
  FileBatches(const std::string& path, std::unique_ptr<NpzSlices> arrays)
      : ArrayBatches(path, arrays->dims()), arrays_(std::move(arrays)) {}

  Tensor slice(const std::string& name, int64_t step) const override { return arrays_->read(name, step); }

  std::unique_ptr<NpzSlices> arrays_;
};

/// Those that are in memory.
class HeldBatches : public ArrayBatches {
 public:
  HeldBatches(const std::string& what, std::map<std::string, Tensor> arrays)
      : ArrayBatches(what, dims_of(arrays)), arrays_(std::move(arrays)) {
    for (const auto& [name, array] : arrays_) array.require_whole(name);
    for (const auto& [name, array] : arrays_)
      if (bits_of(array.dtype) % 8 != 0 || array.dtype == DType::string)
        fail("data", "{}: '{}' has elements of a type that cannot be cut into steps; give whole bytes", what, name);
  }

 private:
  static std::map<std::string, Dims> dims_of(const std::map<std::string, Tensor>& arrays) {
    std::map<std::string, Dims> all;
    for (const auto& [name, array] : arrays) all.emplace(name, array.dims);
    return all;
  }

  Tensor slice(const std::string& name, int64_t step) const override {
    const Tensor& all = arrays_.at(name);
    const size_t bytes = all.bytes / static_cast<size_t>(all.dims[0]);
    return {all.dtype, Dims(all.dims.begin() + 1, all.dims.end()), all.owner,
            bytes > 0 ? all.data + bytes * static_cast<size_t>(step) : all.data, bytes};
  }

  std::map<std::string, Tensor> arrays_;
};

/// Those that a function makes.
class MadeBatches : public Batches::Maker {
 public:
  MadeBatches(std::string what, MakeArrays make, std::optional<int64_t> count)
      : what_(std::move(what)), make_(std::move(make)), count_(count) {
    if (count_ && *count_ < 1) fail("data", "{}: has no steps; say how many there are", what_);
    for (const auto& [name, array] : make_(0)) dims_.emplace(name, array.dims);
    if (dims_.empty()) fail("data", "{}: gives no arrays; give one for each input of the model", what_);
  }

  Batch make(int64_t step) const override {
    check(step >= 0, "steps count from 0");
    if (count_ && step >= *count_)
      fail("data", "{}: has {}, but step {} is requested (the first is 0); request fewer steps", what_,
           counted(*count_, "step"), step);
    Batch batch{step, step + 1, 0, make_(step)};
    for (const auto& [name, array] : batch.tensors) array.require_whole(name);
    for (const auto& [name, array] : batch.tensors)
      if (const auto first = dims_.find(name); first == dims_.end() || first->second != array.dims)
        fail("data", "{}: '{}' of step {} has other extents than that of step 0; make all steps alike", what_, name,
             step);
    if (batch.tensors.size() != dims_.size())
      fail("data", "{}: step {} has {}, but step 0 has {}; make all steps alike", what_, step,
           counted(batch.tensors.size(), "array"), dims_.size());
    return batch;
  }

  std::map<std::string, Dims> dims() const override { return dims_; }
  std::optional<int64_t> count() const override { return count_; }

 private:
  std::string what_;
  MakeArrays make_;
  std::optional<int64_t> count_;
  std::map<std::string, Dims> dims_;
};

std::unique_ptr<const Batches::Maker> maker_of(const BatchOptions& options) {
  const std::vector<SourceSpec>& sources = options.samples.sources;
  const auto npz = std::find_if(sources.begin(), sources.end(),
                                [](const SourceSpec& source) { return source.storage == Storage::npz; });
  if (npz == sources.end()) return std::make_unique<TokenBatches>(options);
  if (sources.size() > 1)
    fail("data", "{}: a .npz file has whole steps, which do not mix with other data; give it alone",
         npz->path.string());
  return std::make_unique<FileBatches>(options.samples);
}

}  // namespace

Batches::Batches(const BatchOptions& options, int64_t cursor)
    : prefetch_(options.prefetch), cursor_(cursor), maker_(maker_of(options)) {}

Batches::Batches(std::map<std::string, Tensor> arrays, const std::string& what)
    : prefetch_(false), cursor_(0), maker_(std::make_unique<HeldBatches>(what, std::move(arrays))) {}

Batches::Batches(MakeArrays make, std::optional<int64_t> count, const std::string& what)
    : prefetch_(false), cursor_(0), maker_(std::make_unique<MadeBatches>(what, std::move(make), count)) {}

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
