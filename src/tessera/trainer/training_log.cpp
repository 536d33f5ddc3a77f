#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tessera/base/unmoved.h"
#include "tessera/io/atomic_file.h"
#include "tessera/io/event_file.h"
#include "tessera/trainer.h"
#include "tessera/trainer/words.h"

namespace tessera {
inline namespace v1 {
namespace {

using Json = nlohmann::ordered_json;

// Removes the lines of steps that the run will repeat.
void keep_lines_before(const std::filesystem::path& path, int64_t step) {
  std::ifstream file(path);
  if (!file) return;
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    const Json object = Json::parse(line, nullptr, false);
    if (object.is_object() && object.contains("step") && object["step"].is_number_integer() &&
        object["step"].get<int64_t>() < step)
      kept += line + "\n";
  }
  write_file(path, kept);
}

}  // namespace

struct TrainingLog::Impl {
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  void note_problem(bool good, const char* what) {
    if (good || !wrong.empty()) return;
    wrong = what;
  }

  std::unique_ptr<std::FILE, Close> metrics;
  std::unique_ptr<EventFile> events;
  std::string wrong;
  bool said = false;
};

TrainingLog::TrainingLog(const std::filesystem::path& metrics, const std::filesystem::path& events, int64_t first,
                         bool goes_on)
    : impl_(std::make_unique<Impl>()) {
  if (!metrics.empty()) {
    if (first > 0) keep_lines_before(metrics, first);
    unmoved(impl_).metrics.reset(std::fopen(metrics.c_str(), first > 0 ? "a" : "w"));
    if (!unmoved(impl_).metrics) trainer::refuse("'" + metrics.string() + "' cannot be written");
  }
  if (events.empty()) return;
  unmoved(impl_).events = std::make_unique<EventFile>(events);
  if (goes_on) unmoved(impl_).events->begin_at(first);
}

TrainingLog::~TrainingLog() = default;
TrainingLog::TrainingLog(TrainingLog&&) noexcept = default;
TrainingLog& TrainingLog::operator=(TrainingLog&&) noexcept = default;

void TrainingLog::add(const StepFigures& figures, double utilization, int64_t peak_bytes) {
  const double tokens_per_second = static_cast<double>(figures.labels) / figures.seconds;
  if (unmoved(impl_).metrics) {
    Json line = {{"step", figures.step - 1},          {"loss", figures.loss},
                 {"grad_norm", figures.grad_norm},    {"lr", figures.learning_rate},
                 {"tokens_per_s", tokens_per_second}, {"mfu", utilization},
                 {"peak_bytes", peak_bytes}};
    for (const auto& [label, value] : figures.terms) line["terms"][label] = value;
    if (figures.loss_scale) line.update({{"loss_scale", *figures.loss_scale}, {"skipped", figures.skipped}});
    const std::string text = line.dump() + "\n";
    std::FILE* file = unmoved(impl_).metrics.get();
    unmoved(impl_).note_problem(std::fputs(text.c_str(), file) >= 0 && std::fflush(file) == 0, "the metrics");
  }
  if (!unmoved(impl_).events) return;
  std::vector<std::pair<std::string, double>> scalars = {{"train/loss", figures.loss},
                                                         {"train/grad_norm", figures.grad_norm},
                                                         {"train/learning_rate", figures.learning_rate},
                                                         {"speed/tokens_per_s", tokens_per_second},
                                                         {"speed/seconds", figures.seconds},
                                                         {"speed/mfu", utilization}};
  for (const auto& [label, value] : figures.terms) scalars.emplace_back("loss/" + label, value);
  if (figures.loss_scale) {
    scalars.emplace_back("train/loss_scale", *figures.loss_scale);
    scalars.emplace_back("train/skipped", figures.skipped ? 1 : 0);
  }
  unmoved(impl_).events->add(figures.step - 1, scalars);  // as in the metrics
  unmoved(impl_).note_problem(unmoved(impl_).events->good(), "the events");
}

void TrainingLog::add_evaluation(int64_t step, double loss) {
  if (!unmoved(impl_).events) return;
  unmoved(impl_).events->add(step, {{"evaluation/loss", loss}});
  unmoved(impl_).note_problem(unmoved(impl_).events->good(), "the events");
}

std::string TrainingLog::problem() {
  if (unmoved(impl_).said) return "";
  unmoved(impl_).said = !unmoved(impl_).wrong.empty();
  return unmoved(impl_).wrong;
}

}  // namespace v1
}  // namespace tessera
