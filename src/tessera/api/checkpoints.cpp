#include <algorithm>

#include "tessera/api/session.h"
#include "tessera/base/keep.h"
#include "tessera/checkpoint/checkpoint.h"
#include "tessera/checkpoint/save.h"
#include "tessera/launch/checkpoint_saver.h"
#include "tessera/training.h"

namespace tessera {
inline namespace v1 {

struct Checkpoints::Impl : launch::CheckpointSaver {
  using CheckpointSaver::CheckpointSaver;
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

}  // namespace

Checkpoints::Checkpoints(std::filesystem::path folder, int64_t keep, const std::shared_ptr<Connection>& connection)
    : impl_(std::make_unique<Impl>(std::move(folder), keep, connection)) {}

Checkpoints::~Checkpoints() {
  if (impl_ && impl_->saves_elsewhere()) keep_for_good(std::move(impl_));
}

std::string Checkpoints::save(Session& session, const CheckpointFacts& facts) {
  std::string before = impl_->finish();
  checkpoint::Facts own;
  own.step = facts.step;
  for (const auto& [name, number] : facts.numbers) own.scalars.emplace(name, number);
  for (const auto& [name, text] : facts.texts) own.scalars.emplace(name, text);
  impl_->save(api::of(session.impl_).loaded("states"), std::move(own));
  return before;
}

std::string Checkpoints::poll() {
  return impl_->poll();
}

std::string Checkpoints::finish() {
  return impl_->finish();
}

std::string Checkpoints::tidy(int64_t step) {
  return impl_->tidy(step);
}

std::optional<int64_t> Checkpoints::saved() const {
  return impl_->saved();
}

const std::filesystem::path& Checkpoints::folder() const {
  return impl_->folder();
}

std::string Checkpoints::lock_problem() const {
  return impl_->lock_problem();
}

std::optional<std::filesystem::path> Checkpoints::latest(const std::filesystem::path& folder,
                                                         std::vector<std::string>* passed_over) {
  std::vector<std::string> passed;
  const auto found = checkpoint::Checkpoint::latest(folder, passed);
  if (passed_over) *passed_over = passed;
  return found ? std::optional(found->path()) : std::nullopt;
}

std::vector<int64_t> Checkpoints::steps(const std::filesystem::path& folder) {
  std::vector<int64_t> steps = checkpoint::steps_in(folder);
  std::reverse(steps.begin(), steps.end());
  return steps;
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
