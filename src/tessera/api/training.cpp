#include "tessera/training.h"

#include "tessera/api/impl.h"
#include "tessera/program_io/trained_files.h"
#include "tessera/train/parameter_values.h"
#include "tessera/train/step.h"
#include "tessera/train/ties.h"

namespace tessera {
inline namespace v1 {

namespace {

train::StepOptions options_of(const Training& training) {
  train::StepOptions options;
  options.loss = training.loss;
  options.output = training.output;
  options.labels = training.labels;
  options.label_dims.insert(training.label_dims.begin(), training.label_dims.end());
  options.optimizer = training.optimizer;
  options.rate = training.learning_rates.empty() ? train::Schedule(training.learning_rate)
                                                 : train::Schedule(training.learning_rates);
  options.clip = training.clip;
  options.micro_batches = training.micro_batches;
  options.freeze = training.freeze;
  options.train = training.train;
  options.tie = training.tie;
  options.no_decay = training.no_decay;
  options.rate_factors = training.rate_factors;
  options.average = training.average;
  options.loss_scale = training.loss_scale;
  options.compute = training.compute;
  options.sizes = training.sizes;
  options.seed = training.seed;
  options.init = training.init;
  options.dropout = train::parse_dropout(training.dropout);
  options.batch_norm = train::parse_batch_norm(training.batch_norm);
  return options;
}

std::vector<IndexRange> ranges_of(std::vector<train::IndexRange>& made) {
  std::vector<IndexRange> ranges;
  for (train::IndexRange& range : made)
    ranges.push_back({std::move(range.input), range.count, range.ignored, std::move(range.meaning)});
  return ranges;
}

}  // namespace

std::vector<LossTerm> loss_terms(const Loss& loss) {
  std::vector<LossTerm> terms;
  for (train::StepTerm& term : train::terms_of(loss))
    terms.push_back({std::move(term.name), std::move(term.label), std::move(term.tensor), std::move(term.labels),
                     term.weight, term.axis, term.ignored, std::move(term.loss), std::move(term.counted)});
  return terms;
}

TrainingStep training_step(const Model& model, const Training& training) {
  train::Step step = train::make_step(model.impl().model, options_of(training));
  TrainingStep made = {api::model_of(model, std::move(step.model)),
                       std::move(step.parameters),
                       std::move(step.kept),
                       std::move(step.statistics),
                       {step.frozen.begin(), step.frozen.end()},
                       std::move(step.notes),
                       ranges_of(step.ranges),
                       {},
                       {}};
  for (train::Selected& row : step.table)
    made.selection.push_back({std::move(row.name), std::move(row.sources), std::move(row.dims), row.trains,
                              std::move(row.why), std::move(row.tied_to), row.transposed});
  for (train::Reached& reached : step.reached)
    made.reached.push_back({std::move(reached.setting), std::move(reached.pattern), std::move(reached.names)});
  return made;
}

void TrainingStep::add_copies(Tensors& values, const std::string& suffix) const {
  for (const SelectedTensor& row : selection) {
    if (row.tied_to.empty()) continue;
    const auto source = values.find(row.tied_to + suffix);
    if (source == values.end()) continue;
    const auto how = row.transposed ? train::Tie::How::transposed : train::Tie::How::reshaped;
    values.insert_or_assign(row.name + suffix, train::copied({row.name, row.tied_to, how, row.dims}, source->second));
  }
}

Model evaluation(const Model& model, const Training& training) {
  return api::model_of(model, train::make_evaluation(model.impl().model, options_of(training)).model);
}

void TrainingStep::write(const std::filesystem::path& path) const {
  program_io::write_step(model.impl().model, path);
}

void require_can_hold(const Model& model, const TrainingStep& step) {
  for (const auto* names : {&step.parameters, &step.statistics})
    for (const std::string& name : *names) {
      const Value* state = step.model.impl().model.graph->find(name);
      train::require_parameter(*model.impl().model.graph, name, state->dtype(), state->data.dims);
    }
}

void write_trained(const Model& model, const Tensors& parameters, const std::filesystem::path& path) {
  program_io::write_trained(model.impl().model, parameters, path);
}

}  // namespace v1
}  // namespace tessera
