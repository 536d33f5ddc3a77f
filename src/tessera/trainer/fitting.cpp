#include "tessera/trainer/fitting.h"

#include <algorithm>
#include <optional>

#include "tessera/base/bytes_text.h"
#include "tessera/error.h"
#include "tessera/trainer.h"
#include "tessera/trainer/words.h"

namespace tessera::trainer {
namespace {

struct Change {
  std::string recompute, presets;  ///< empty: as they were; recompute "auto" counts as the most of it, "full"
  int micro_batches = 0;           ///< 0: as they were
};

/// "`presets=fsdp` `recompute=auto`"
std::string words_of_change(const Change& change) {
  std::string words;
  const auto say = [&](const char* setting, const std::string& value) {
    if (!value.empty()) words += (words.empty() ? "" : " ") + called(setting, value);
  };
  say("presets", change.presets);
  say("recompute", change.recompute);
  say("micro-batches", change.micro_batches > 0 ? std::to_string(change.micro_batches) : "");
  return words;
}

/// The presets of a run with data parallelism by `by` instead of whole copies; "" if there is none to replace.
std::string with_stored_states(const Mesh& mesh, const std::string& presets, const std::string& by) {
  std::string all = presets;
  if (all.empty())
    for (const MeshAxis& axis : mesh.axes()) {
      const std::string of_axis = axis.name == "tp" ? "megatron" : axis.name;
      all += (all.empty() ? "" : "+") + of_axis;
    }
  for (const std::string whole : {"dp", "ddp"})
    for (size_t at = all.find(whole); at != std::string::npos; at = all.find(whole, at + 1)) {
      const bool begins = at == 0 || all[at - 1] == '+';
      const size_t end = at + whole.size();
      if (!begins || (end < all.size() && all[end] != '+' && all[end] != ':')) continue;
      const std::string axis = end < all.size() && all[end] == ':' ? "" : ":" + whole;
      return all.replace(at, whole.size(), by + axis);
    }
  return "";
}

std::vector<Change> changes(const Fitting& fitting) {
  const bool holds = fitting.plan.recompute != "full" && fitting.plan.recompute != "auto";
  std::vector<Change> all;
  if (holds) all.push_back({"auto", "", 0});
  constexpr int kMostParts = 16;
  std::vector<int> parts;
  for (int more = 2; more <= kMostParts; more *= 2) parts.push_back(fitting.training.micro_batches * more);
  for (int count : parts) all.push_back({"", "", count});
  for (const char* preset : {"zero2", "fsdp"}) {
    const std::string presets = with_stored_states(fitting.mesh, fitting.plan.presets, preset);
    if (presets.empty()) continue;
    all.push_back({"", presets, 0});
    if (holds) all.push_back({"auto", presets, 0});
    for (int count : parts) all.push_back({"full", presets, count});
  }
  return all;
}

/// The bytes that a process needs with a change; null if it cannot be made: a batch of 6 has no 4 parts.
std::optional<int64_t> peak_with(const Fitting& fitting, const Change& change) {
  Training training = fitting.training;
  Plan plan = fitting.plan;
  CompileOptions options = fitting.options;
  options.memory_limit = 0;
  options.observe = nullptr;
  if (change.micro_batches > 0) training.micro_batches = change.micro_batches;
  if (!change.recompute.empty()) plan.recompute = change.recompute;
  if (plan.recompute == "auto") plan.recompute = "full";
  if (!change.presets.empty()) plan.presets = change.presets;
  try {
    const TrainingStep step = training_step(fitting.model, training);
    const Program program = compile(step.model, fitting.mesh, plan, options);
    return program.process_bytes();
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::string change_that_fits(const Fitting& fitting) {
  std::optional<int64_t> least;
  std::string words;
  for (const Change& change : changes(fitting)) {
    const std::optional<int64_t> peak = peak_with(fitting, change);
    if (!peak || (least && *peak >= *least)) continue;
    least = peak;
    words = words_of_change(change);
    if (static_cast<size_t>(*least) <= fitting.options.memory_limit) return "; it fits with " + words;
  }
  if (!least) return "";
  return "; " + words + " needs least of what was tried, " + bytes_text(static_cast<double>(*least)) +
         ": take more ranks, a smaller batch or " + called("dtype", "bf16");
}

}  // namespace tessera::trainer
