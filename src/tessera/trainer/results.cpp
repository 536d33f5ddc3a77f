// The trained parameters, as in the model's file.
#include "tessera/base/unmoved.h"
#include "tessera/io/safetensors.h"
#include "tessera/trainer/impl.h"
#include "tessera/trainer/words.h"

namespace tessera {
inline namespace v1 {

using trainer::refuse;

namespace {

constexpr const char* kAverage = ".average";

}  // namespace

// The trained parameters and their copies; then their moving averages, unless these replace them. All ranks gather.
Trainer::Impl::Trained Trainer::Impl::trained(bool averaged) {
  const TrainingStep& step = programs.step;
  const bool has_averages = programs.training.average > 0;
  if (averaged && !has_averages)
    refuse("the run keeps no moving averages; give their decay, " + trainer::called("average"));
  std::vector<std::string> wanted = step.statistics;
  for (const std::string& parameter : step.parameters) {
    if (!averaged) wanted.push_back(parameter);
    if (has_averages) wanted.push_back(parameter + kAverage);
  }
  const Tensors states = session->states(wanted);
  Trained made;
  if (!speaks()) return made;
  for (const std::string& statistic : step.statistics) made.parameters.emplace(statistic, states.at(statistic));
  for (const std::string& parameter : step.parameters) {
    made.parameters.emplace(parameter, states.at(averaged ? parameter + kAverage : parameter));
    if (has_averages && !averaged) made.averages.emplace(parameter + kAverage, states.at(parameter + kAverage));
  }
  step.add_copies(made.parameters);
  step.add_copies(made.averages, kAverage);
  return made;
}

Tensors Trainer::parameters(bool averaged) {
  Tensors all = unmoved(impl_).trained(averaged).parameters;
  const Tensors& frozen = unmoved(impl_).programs.step.frozen;
  if (unmoved(impl_).speaks()) all.insert(frozen.begin(), frozen.end());
  return all;
}

void Trainer::write_parameters(const std::filesystem::path& path, bool averaged) {
  Impl& run = unmoved(impl_);
  const std::string ending = path.extension().string();
  if (ending != ".npz" && ending != ".safetensors" && ending != ".onnx")
    refuse("'" + path.string() + "' must end in .npz, .safetensors or .onnx, which says what is written");
  const Impl::Trained trained = run.trained(averaged);
  if (!run.speaks()) return;
  const auto writing = run.phase("writing " + path.string());
  if (ending == ".onnx") return write_trained(run.model, trained.parameters, path);
  Tensors all = trained.parameters;
  all.insert(trained.averages.begin(), trained.averages.end());
  all.insert(run.programs.step.frozen.begin(), run.programs.step.frozen.end());
  if (ending == ".safetensors")
    save_safetensors(path, {all.begin(), all.end()});
  else
    write_tensors(path, all);
}

}  // namespace v1
}  // namespace tessera
