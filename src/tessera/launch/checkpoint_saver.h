#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "tessera/checkpoint/checkpoint.h"
#include "tessera/checkpoint/folder_lock.h"
#include "tessera/launch/loaded_program.h"

namespace tessera::launch {

/// Saves checkpoints of a run in a folder while the run goes on, as the public Checkpoints describes it. Where ranks
/// are processes, each has one: all write first, then that of rank 0 commits.
class CheckpointSaver {
 public:
  CheckpointSaver(std::filesystem::path folder, int64_t keep, const std::shared_ptr<Connection>& connection);
  ~CheckpointSaver();  ///< waits for what is being written
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  /// Saves the states of `program` with `facts`, to which this adds run and model. finish() an earlier one first.
  void save(std::shared_ptr<LoadedProgram> program, checkpoint::Facts facts);
  std::string poll();
  std::string finish();
  std::string tidy(int64_t step);
  std::optional<int64_t> saved() const;
  const std::filesystem::path& folder() const { return folder_; }
  std::string lock_problem() const { return lock_ ? lock_->problem() : ""; }
  /// Whether another process, from which this one was forked, has the thread that saves, so that nobody can wait for
  /// it.
  bool saves_elsewhere() const { return saving_ && process_ != ::getpid(); }

 private:
  struct Saving {
    std::shared_ptr<LoadedProgram> program;  // lives as long, whatever becomes of its session
    runtime::Executor::Saving phases;
    int64_t step;
    bool commits;
    std::shared_future<std::string> phase;  // the present one, which says what went wrong
  };

  std::string commit(const runtime::Executor::Saving& phases, int64_t step);
  std::optional<std::string> advance(std::chrono::milliseconds wait);

  static constexpr int64_t kNone = -1;

  std::filesystem::path folder_;
  int64_t keep_;
  std::optional<checkpoint::FolderLock> lock_;  // in rank 0's process
  std::string run_;
  // The step of the last one that was committed; in rank 0's process. Set when that checkpoint is whole under its name,
  // by the thread that commits.
  std::atomic<int64_t> saved_ = kNone;
  std::optional<Saving> saving_;
  pid_t process_ = ::getpid();  // which saves
};

}  // namespace tessera::launch
