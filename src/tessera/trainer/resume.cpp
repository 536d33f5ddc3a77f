// Checkpoints of a run: what they contain beside the states, and what must be equal in a run that resumes from one.
#include <algorithm>
#include <cstdio>
#include <set>

#include "tessera/base/counted.h"
#include "tessera/base/unmoved.h"
#include "tessera/trainer/impl.h"
#include "tessera/trainer/words.h"

namespace tessera {
inline namespace v1 {

using trainer::called;
using trainer::refuse;

// Rank 0 chooses, since other ranks may see another state of the folder: on a shared file system, files arrive late.
std::optional<int64_t> Trainer::resume(int64_t most, bool other_data) {
  Impl& run = unmoved(impl_);
  if (!run.checkpoints) refuse("there is no folder of checkpoints to resume from; give one");
  if (run.made > 0) refuse("the run has made " + counted(run.made, "step") + "; resume before the first one");
  const std::filesystem::path folder = run.checkpoints->folder();
  const auto& connection = run.session_options.connection;
  std::optional<int64_t> latest;
  if (run.speaks()) {
    std::vector<std::string> passed_over;
    if (const auto found = Checkpoints::latest(folder, &passed_over)) latest = Checkpoints::facts(*found).step;
    for (const std::string& why : passed_over) run.warn(why);
  }
  constexpr int64_t kNone = -1;
  const int64_t step = connection ? connection->from_first(latest.value_or(kNone)) : latest.value_or(kNone);
  run.beside_other = false;
  if (step == kNone) return std::nullopt;
  const std::string path = Checkpoints::at(folder, step).string();
  if (most > 0 && step > most)
    refuse(path + " has made more than the " + std::to_string(most) + " steps of this run; give a larger " +
           called("steps") + ", or another folder");
  run.compare_optimizer(path);
  const bool same_data = run.has_data_of(Checkpoints::facts(path), path, other_data);
  const CheckpointFacts facts = [&] {
    const auto reading = run.phase("reading " + path);
    return Checkpoints::load(*run.session, path);
  }();
  if (connection) connection->require_same(path, facts.run);
  run.first = run.made = facts.step;
  const auto cursor = facts.numbers.find("cursor");
  run.data.seek(same_data && cursor != facts.numbers.end() ? cursor->second : 0);
  run.warn_of_checkpoint(run.checkpoints->tidy(step));
  return step;
}

// Whether another optimizer has saved other states beside the same parameters. Loading reports all other differences.
void Trainer::Impl::compare_optimizer(const std::string& checkpoint) const {
  const std::vector<std::string> tensors = Checkpoints::tensors(checkpoint);
  const std::set<std::string> saved(tensors.begin(), tensors.end());
  const TrainingStep& step = programs.step;
  const auto is_saved = [&](const std::string& state) { return saved.contains(state); };
  if (!std::all_of(step.parameters.begin(), step.parameters.end(), is_saved)) return;
  const auto missing = std::find_if_not(step.optimizer.begin(), step.optimizer.end(), is_saved);
  std::set<std::string> known;
  for (const auto* names : {&step.parameters, &step.optimizer, &step.statistics})
    known.insert(names->begin(), names->end());
  const auto other = std::find_if(saved.begin(), saved.end(), [&](const std::string& state) {
    return !known.contains(state) && std::any_of(step.parameters.begin(), step.parameters.end(),
                                                 [&](const auto& owner) { return state.starts_with(owner + "."); });
  });
  if (missing == step.optimizer.end() && other == saved.end()) return;
  const std::map<std::string, std::string> texts = Checkpoints::facts(checkpoint).texts;
  std::string differences;
  for (const auto& [setting, own] : settings_of_states()) {
    const auto found = texts.find(setting);
    if (found != texts.end() && found->second != own)
      differences += called(setting) + " is " + own + " and was " + found->second + "; ";
  }
  refuse(checkpoint + " was made with another optimizer: " + differences +
         (missing == step.optimizer.end() ? "" : "it has no '" + *missing + "', which this one keeps; ") +
         (other == saved.end() ? "" : "it has '" + *other + "', which this one does not keep; ") + "give the same " +
         called("optimizer") + " and " + called("average") + ", or begin in another folder");
}

// The settings on which the states beside the parameters depend.
std::map<std::string, std::string> Trainer::Impl::settings_of_states() const {
  char average[32];
  std::snprintf(average, sizeof average, "%g", programs.training.average);
  return {{"optimizer", programs.training.optimizer}, {"average", average}};
}

bool Trainer::Impl::has_data_of(const CheckpointFacts& facts, const std::string& checkpoint, bool other_data) const {
  std::string differences;
  for (const auto& [setting, own] : data.identity()) {
    const auto saved = facts.texts.find(setting);
    const std::string was = saved == facts.texts.end() ? "" : saved->second;
    if (was == own) continue;
    const auto shown = [](const std::string& text) { return text.empty() ? "none" : text; };
    differences +=
        (differences.empty() ? "" : "; ") + (called(setting) + " is " + shown(own)) + " and was " + shown(was);
  }
  if (differences.empty()) return true;
  if (!other_data)
    refuse(checkpoint + " was made with other data: " + differences + "; give the same, or " + called("other-data") +
           ", which starts the new data at their first sample");
  warn("other data than before: " + differences);
  return false;
}

std::string Trainer::Impl::save() {
  if (!checkpoints) return "";
  if (beside_other)
    refuse(checkpoints->folder().string() +
           " has checkpoints of another run; resume() from them, or give another folder");
  CheckpointFacts facts;
  facts.step = made;
  facts.numbers["cursor"] = data.position();
  facts.texts = data.identity();
  facts.texts.merge(settings_of_states());
  auto saving = phase("saving a checkpoint");
  const std::string wrong = checkpoints->save(*session, facts);
  saving.reset();
  warn_of_checkpoint(wrong);
  problem.clear();  // the next one is under way
  return wrong;
}

}  // namespace v1
}  // namespace tessera
