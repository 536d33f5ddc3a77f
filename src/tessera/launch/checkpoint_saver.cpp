#include "tessera/launch/checkpoint_saver.h"

#include <fmt/format.h>

#include <charconv>
#include <functional>

#include "tessera/base/error.h"
#include "tessera/checkpoint/save.h"

namespace tessera::launch {
namespace {

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

CheckpointSaver::CheckpointSaver(std::filesystem::path folder, int64_t keep,
                                 const std::shared_ptr<Connection>& connection)
    : folder_(std::move(folder)), keep_(keep) {
  checkpoint::require_writable(folder_);
  if (!connection || connection->launch().rank == 0) lock_.emplace(folder_);
  run_ = common_run(connection);
}

CheckpointSaver::~CheckpointSaver() {
  if (saving_) saving_->phase.wait();
}

std::string CheckpointSaver::commit(const runtime::Executor::Saving& phases, int64_t step) {
  const checkpoint::Outcome outcome = phases.commit();
  if (outcome.saved) saved_ = step;
  return outcome.problem;
}

// Waits for the present phase, but no longer than that, and goes on to the next one if all processes have ended it.
// Returns what went wrong if this was the last one; nullopt if it was not.
std::optional<std::string> CheckpointSaver::advance(std::chrono::milliseconds wait) {
  std::optional<std::string> own;
  if (saving_->phase.wait_for(wait) == std::future_status::ready) own = saving_->phase.get();
  const std::optional<std::string> problem = saving_->program->executor().common_problem(own);
  if (!problem) return std::nullopt;
  if (problem->empty() && !saving_->commits) {
    saving_->commits = true;
    saving_->phase = std::async(
        std::launch::async, [this, phases = saving_->phases, step = saving_->step] { return commit(phases, step); });
    return std::nullopt;
  }
  if (!saving_->commits) saving_->phases.discard();
  saving_.reset();
  return problem;
}

void CheckpointSaver::save(std::shared_ptr<LoadedProgram> program, checkpoint::Facts facts) {
  check(!saving_, "one checkpoint is saved after the other");
  runtime::Executor& executor = program->executor();
  facts.run = run_;
  facts.model = executor.model_of_states();
  const runtime::Executor::Saving phases = executor.save_states(folder_, facts, keep_);
  const bool together = executor.is_together();
  const auto all = [this, phases, step = facts.step] {
    const std::string problem = phases.write();
    if (problem.empty()) return commit(phases, step);
    phases.discard();
    return problem;
  };
  saving_.emplace(std::move(program), phases, facts.step, together,
                  std::async(std::launch::async, together ? std::function<std::string()>(all) : phases.write));
}

std::string CheckpointSaver::poll() {
  return saving_ ? advance(std::chrono::milliseconds(0)).value_or("") : "";
}

std::string CheckpointSaver::finish() {
  if (process_ != ::getpid())
    fail("checkpoint", "the checkpoints are saved by the process that this one was forked from");
  constexpr std::chrono::milliseconds kWait{50};  // others, whose wait for this process is bounded, hear from it
  while (saving_)
    if (const auto problem = advance(kWait)) return *problem;
  return "";
}

std::string CheckpointSaver::tidy(int64_t step) {
  return lock_ ? checkpoint::tidy(folder_, step, keep_).value_or("") : "";
}

std::optional<int64_t> CheckpointSaver::saved() const {
  const int64_t step = saved_;
  return step == kNone ? std::nullopt : std::optional(step);
}

}  // namespace tessera::launch
