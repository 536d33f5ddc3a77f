#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "tessera/checkpoint/manifest.h"

namespace tessera::checkpoint {

/// How a checkpoint is saved, so that the last good one is never lost:
///
///   1. every rank writes what it alone holds: RankFile, add() for each piece, finish();
///   2. all ranks wait for each other (the caller's barrier) and tell whether all have succeeded;
///   3. one rank calls commit(), or discard() if a rank has failed.
///
/// The checkpoint grows in a hidden folder and gets its name, "step-000120", when all of it is on the disk. Ranks on
/// several machines need a file system that they share. A folder belongs to one run at a time (FolderLock); if two runs
/// share it nevertheless, no checkpoint contains pieces of both.
///
/// If the disk is full, or the path cannot be written any more, functions return a text instead of throwing, so that
/// training can continue.

/// Makes the folder if it is missing. A user error if no checkpoint can be written there: for the start of a run.
void require_writable(const std::filesystem::path& folder);

/// The file of one rank.
class RankFile {
 public:
  /// `run`: the same for all ranks (Facts::run).
  RankFile(const std::filesystem::path& folder, int64_t step, int64_t rank, const std::string& run);
  /// Removes the file if finish() was not called or did not succeed.
  ~RankFile();
  RankFile(const RankFile&) = delete;
  RankFile& operator=(const RankFile&) = delete;

  /// Writes the elements of a region, dense and row-major. Every element of a tensor is written once, by the lowest
  /// rank that holds it. A user error for types below 8 bits and strings. After a failure it does nothing.
  void add(const TensorType& tensor, const Region& region, const void* elements);

  /// Flushes to the disk. Returns the failure, or nullopt.
  std::optional<std::string> finish();

 private:
  void write(const void* data, size_t bytes);

  std::filesystem::path partial_;
  std::string file_, table_;
  Manifest manifest_;
  int descriptor_ = -1;
  uint64_t position_ = 0;
  std::optional<std::string> failure_;
  bool finished_ = false;
};

struct Outcome {
  bool saved = false;
  std::string problem;  ///< why it was not saved, or why older ones could not be removed; empty: all went well
};

/// Makes a checkpoint of the files of ranks 0 … ranks - 1, which have all finished, in place of one of the same step.
/// Then removes older ones, so that `keep` remain in all (0: keeps all). An internal error if the pieces do not contain
/// every element of every tensor once.
Outcome commit(const std::filesystem::path& folder, const Facts& facts, int64_t ranks, int64_t keep);

/// Removes what a run has written of a step that cannot be committed.
void discard(const std::filesystem::path& folder, int64_t step, const std::string& run);

/// Removes what killed runs have left in a folder whose newest checkpoint is that of `step`: unfinished ones, and older
/// ones beyond `keep` in all (0: keeps all). Checkpoints of later steps stay, even damaged ones. No other run may write
/// there. Returns the failure, or nullopt.
std::optional<std::string> tidy(const std::filesystem::path& folder, int64_t step, int64_t keep);

}  // namespace tessera::checkpoint
