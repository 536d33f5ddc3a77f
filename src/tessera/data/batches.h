#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tessera/data/token_samples.h"
#include "tessera/ir/tensor.h"

namespace tessera::data {

/// What a step takes.
struct Batch {
  int64_t first = 0;   ///< the cursor that it was made at
  int64_t next = 0;    ///< the cursor after it
  int64_t labels = 0;  ///< labels that are not kIgnored; 0 for arrays of a .npz file, which are not examined
  std::map<std::string, Tensor> tensors;
};

struct BatchOptions {
  /// Token files, or one .npz file alone. Options of samples apply to token files only; a separator or a held-out
  /// fraction with a .npz file is a user error.
  SampleOptions samples;
  int64_t batch = 1;  ///< samples of a step, ≥ 1; a .npz file has its own
  /// Names of the tensors, int64 of [batch, sequence]; the last two are made if they have a name.
  std::string tokens = "tokens", labels = "labels", positions, documents;
  size_t memory_limit = 0;  ///< bytes that batches of token files may take; 0: what the machine has
  bool prefetch = true;     ///< a thread prepares the next batch while the caller uses this one
};

/// Gives the arrays of a step, by name.
using MakeArrays = std::function<std::map<std::string, Tensor>(int64_t step)>;

/// The batches of a training run, in order or at any place.
///
/// The cursor is the global index of the next sample, or the next step of a .npz file. It is all that a run has to
/// keep: sample i is the same whatever the batch, mesh and number of restarts. With Order::once the last batch is
/// filled up with samples of token 0 whose labels are all kIgnored.
class Batches {
 public:
  /// Opens the files. Throws user errors "[data] …" for what is wrong with them, and for a batch that memory does not
  /// hold.
  explicit Batches(const BatchOptions& options, int64_t cursor = 0);
  /// Slices of arrays whose first dimension counts steps, as of a .npz file; `what` names them in errors.
  Batches(std::map<std::string, Tensor> arrays, const std::string& what);
  /// Batches whose arrays `make` gives for each step, 0, 1, …: the same extents for all, or a user error. `count`: how
  /// many steps there are; nullopt: any number. It is called in next() and at() only, and once here, for step 0.
  Batches(MakeArrays make, std::optional<int64_t> count, const std::string& what);
  ~Batches();

  /// The batch at the cursor, which it then moves. An error of the preparing thread is thrown here, and the cursor
  /// stays; a token outside the vocabulary is a user error, and so is a step past the end.
  Batch next();
  /// The batch at any cursor; independent of next(), and callable from several threads.
  Batch at(int64_t cursor) const;

  /// Reads all of a .npz file and compares its checksums, which batches do not do; ends early once `stops` returns
  /// true. A user error names the array.
  void verify(const std::function<bool()>& stops = [] { return false; }) const;

  /// The extents of a batch's arrays, by name, before one is made.
  std::map<std::string, Dims> dims() const;
  int64_t cursor() const { return cursor_; }
  void seek(int64_t cursor);
  /// Batches from cursor 0 to the end: of a .npz file and of Order::once; nullopt: without end.
  std::optional<int64_t> count() const;

  class Maker;

 private:
  void prepare();

  bool prefetch_;
  int64_t cursor_;
  std::unique_ptr<const Maker> maker_;
  std::future<Batch> ahead_;  ///< the batch at the cursor, in preparation; its destruction awaits the thread
};

}  // namespace tessera::data
