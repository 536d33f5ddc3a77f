#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <future>

#include "tessera/api/session.h"
#include "tessera/base/error.h"
#include "tessera/base/keep.h"
#include "tessera/checkpoint/checkpoint.h"
#include "tessera/checkpoint/folder_lock.h"
#include "tessera/checkpoint/save.h"
#include "tessera/launch.h"
#include "tessera/training.h"

namespace tessera {
inline namespace v1 {

struct Checkpoints::Impl {
  /// One that is being saved: first all processes write, then that of rank 0 commits.
  struct Saving {
    std::shared_ptr<launch::LoadedProgram> program;  // lives as long, whatever becomes of its session
    runtime::Executor::Saving phases;
    int64_t step;
    bool commits;
    std::shared_future<std::string> phase;  // the present one, which says what went wrong
  };
  std::filesystem::path folder;
  int64_t keep;
  std::optional<checkpoint::FolderLock> lock;  // in rank 0's process
  std::string run;
  /// The step of the last one that was committed, -1: none; in rank 0's process. Set when that
  /// checkpoint is whole under its name, by the thread that commits.
  std::atomic<int64_t> saved = kNone;
  std::optional<Saving> saving;
  pid_t process = ::getpid();  // which saves

  static constexpr int64_t kNone = -1;

  std::string commit(const runtime::Executor::Saving& phases, int64_t step) {
    const checkpoint::Outcome outcome = phases.commit();
    if (outcome.saved) saved = step;
    return outcome.problem;
  }

  // Waits for the present phase, but no longer than that, and goes on to the next one if all processes have ended it.
  // Returns what went wrong if this was the last one; nullopt if it was not.
  std::optional<std::string> advance(std::chrono::milliseconds wait) {
    std::optional<std::string> own;
    if (saving->phase.wait_for(wait) == std::future_status::ready) own = saving->phase.get();
    const std::optional<std::string> problem = saving->program->executor().common_problem(own);
    if (!problem) return std::nullopt;
    if (problem->empty() && !saving->commits) {
      saving->commits = true;
      saving->phase = std::async(std::launch::async,
                                 [this, phases = saving->phases, step = saving->step] { return commit(phases, step); });
      return std::nullopt;
    }
    if (!saving->commits) saving->phases.discard();
    saving.reset();
    return problem;
  }
};

namespace {

CheckpointFacts public_facts(const checkpoint::Facts& facts) {
  CheckpointFacts made;
  made.step = facts.step;
  for (const auto& [name, value] : facts.scalars)
    if (const auto* number = std::get_if<int64_t>(&value))
      made.numbers.emplace(name, *number);
    else if (const auto* text = std::get_if<std::string>(&value))
      made.texts.emplace(name, *text);
  made.run = facts.run;
  return made;
}

// The same random text on all processes.
std::string common_run(const std::shared_ptr<Connection>& connection) {
  const std::string own = checkpoint::new_run();
  if (!connection) return own;
  uint64_t number = 0;
  std::from_chars(own.data(), own.data() + own.size(), number, 16);
  const auto common = static_cast<uint64_t>(connection->from_first(static_cast<int64_t>(number)));
  return fmt::format("{:016x}", common);
}

}  // namespace

Checkpoints::Checkpoints(std::filesystem::path folder, int64_t keep, const std::shared_ptr<Connection>& connection)
    : impl_(std::make_unique<Impl>()) {
  impl_->folder = std::move(folder);
  impl_->keep = keep;
  checkpoint::require_writable(impl_->folder);
  if (!connection || connection->launch().rank == 0) impl_->lock.emplace(impl_->folder);
  impl_->run = common_run(connection);
}

Checkpoints::~Checkpoints() {
  if (!impl_ || !impl_->saving) return;
  // The thread that saves cannot be waited for in a process that was forked from its own.
  if (impl_->process == ::getpid())
    impl_->saving->phase.wait();
  else
    keep_for_good(std::move(impl_));
}

std::string Checkpoints::save(Session& session, const CheckpointFacts& facts) {
  const std::string before = finish();
  checkpoint::Facts own;
  own.step = facts.step;
  own.run = impl_->run;
  for (const auto& [name, number] : facts.numbers) own.scalars.emplace(name, number);
  for (const auto& [name, text] : facts.texts) own.scalars.emplace(name, text);
  const std::shared_ptr<launch::LoadedProgram> program = api::of(session.impl_).loaded("states");
  runtime::Executor& executor = program->executor();
  own.model = executor.model_of_states();
  const runtime::Executor::Saving phases = executor.save_states(impl_->folder, own, impl_->keep);
  const bool together = executor.is_together();
  const auto all = [impl = impl_.get(), phases, step = facts.step] {
    const std::string problem = phases.write();
    if (problem.empty()) return impl->commit(phases, step);
    phases.discard();
    return problem;
  };
  impl_->saving.emplace(program, phases, facts.step, together,
                        std::async(std::launch::async, together ? std::function<std::string()>(all) : phases.write));
  return before;
}

std::string Checkpoints::poll() {
  return impl_->saving ? impl_->advance(std::chrono::milliseconds(0)).value_or("") : "";
}

std::string Checkpoints::finish() {
  if (impl_->process != ::getpid())
    fail("checkpoint", "the checkpoints are saved by the process that this one was forked from");
  constexpr std::chrono::milliseconds kWait{50};  // others, whose wait for this process is bounded, hear from it
  while (impl_->saving)
    if (const auto problem = impl_->advance(kWait)) return *problem;
  return "";
}

std::string Checkpoints::tidy(int64_t step) {
  return impl_->lock ? checkpoint::tidy(impl_->folder, step, impl_->keep).value_or("") : "";
}

std::optional<int64_t> Checkpoints::saved() const {
  const int64_t step = impl_->saved;
  return step == Impl::kNone ? std::nullopt : std::optional(step);
}

const std::filesystem::path& Checkpoints::folder() const {
  return impl_->folder;
}

std::string Checkpoints::lock_problem() const {
  return impl_->lock ? impl_->lock->problem() : "";
}

std::optional<std::filesystem::path> Checkpoints::latest(const std::filesystem::path& folder,
                                                         std::vector<std::string>* passed_over) {
  std::vector<std::string> passed;
  const auto found = checkpoint::Checkpoint::latest(folder, passed);
  if (passed_over) *passed_over = passed;
  return found ? std::optional(found->path()) : std::nullopt;
}

std::vector<int64_t> Checkpoints::steps(const std::filesystem::path& folder) {
  std::vector<int64_t> found;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none))
    if (const auto step = checkpoint::step_of(entry.path().filename().string()); step && entry.is_directory())
      found.push_back(*step);
  std::sort(found.begin(), found.end());
  return found;
}

std::filesystem::path Checkpoints::at(const std::filesystem::path& folder, int64_t step) {
  return folder / checkpoint::folder_name(step);
}

CheckpointFacts Checkpoints::load(Session& session, const std::filesystem::path& path) {
  const checkpoint::Checkpoint saved = checkpoint::Checkpoint::open(path);
  api::of(session.impl_).loaded("states")->executor().load_states(saved);
  return public_facts(saved.facts());
}

std::vector<std::string> Checkpoints::tensors(const std::filesystem::path& path) {
  std::vector<std::string> names;
  for (const checkpoint::TensorType& tensor : checkpoint::Checkpoint::open(path, checkpoint::Verify::lazily).tensors())
    names.push_back(tensor.name);
  return names;
}

CheckpointFacts Checkpoints::facts(const std::filesystem::path& path) {
  return public_facts(checkpoint::Checkpoint::open(path, checkpoint::Verify::lazily).facts());
}

}  // namespace v1
}  // namespace tessera
