#include "tessera/training.h"

#include "tessera/api/impl.h"
#include "tessera/train/step.h"

namespace tessera {
inline namespace v1 {

TrainingStep training_step(const Model& model, const Training& training) {
  train::StepOptions options;
  options.loss = training.loss;
  options.output = training.output;
  options.labels = training.labels;
  options.optimizer = training.optimizer;
  options.rate = training.learning_rates.empty() ? train::Schedule(training.learning_rate)
                                                 : train::Schedule(training.learning_rates);
  options.clip = training.clip;
  options.micro_batches = training.micro_batches;
  options.freeze = training.freeze;
  options.no_decay = training.no_decay;
  options.rate_factors = training.rate_factors;
  options.average = training.average;
  options.loss_scale = training.loss_scale;
  options.compute = training.compute;
  options.sizes = training.sizes;
  train::Step step = train::make_step(model.impl().model, options);
  auto impl = std::make_shared<Model::Impl>();
  impl->path = model.path();
  impl->files = model.impl().files;
  impl->model = std::move(step.model);
  return {Model(std::move(impl)), std::move(step.parameters), std::move(step.kept), std::move(step.notes)};
}

}  // namespace v1
}  // namespace tessera
