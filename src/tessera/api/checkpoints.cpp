#include <algorithm>
#include <future>

#include "tessera/api/session.h"
#include "tessera/checkpoint/checkpoint.h"
#include "tessera/checkpoint/save.h"
#include "tessera/training.h"

namespace tessera {
inline namespace v1 {

struct Checkpoints::Impl {
  std::filesystem::path folder;
  int64_t keep;
  std::future<std::string> writing;
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
  return made;
}

}  // namespace

Checkpoints::Checkpoints(std::filesystem::path folder, int64_t keep)
    : impl_(std::make_unique<Impl>(std::move(folder), keep, std::future<std::string>())) {
  checkpoint::require_writable(impl_->folder);
}

Checkpoints::~Checkpoints() {
  if (impl_ && impl_->writing.valid()) impl_->writing.wait();
}

std::string Checkpoints::save(Session& session, const CheckpointFacts& facts) {
  const std::string before = finish();
  checkpoint::Facts own;
  own.step = facts.step;
  for (const auto& [name, number] : facts.numbers) own.scalars.emplace(name, number);
  for (const auto& [name, text] : facts.texts) own.scalars.emplace(name, text);
  const auto& executor = session.impl_->executor;
  own.model = executor.model_of_states();
  const bool together = executor.is_together();
  auto write = session.impl_->executor.save_states(impl_->folder, own, impl_->keep);
  if (!together) return before.empty() ? write() : before + "; " + write();
  impl_->writing = std::async(std::launch::async, std::move(write));
  return before;
}

std::string Checkpoints::finish() {
  return impl_ && impl_->writing.valid() ? impl_->writing.get() : "";
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
  session.impl_->executor.load_states(saved);
  return public_facts(saved.facts());
}

CheckpointFacts Checkpoints::facts(const std::filesystem::path& path) {
  return public_facts(checkpoint::Checkpoint::open(path, checkpoint::Verify::lazily).facts());
}

}  // namespace v1
}  // namespace tessera
