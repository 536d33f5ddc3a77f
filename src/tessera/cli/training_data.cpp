#include "tessera/cli/training_data.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "tessera/cli/console.h"
#include "tessera/default_inputs.h"
#include "tessera/error.h"
#include "tessera/ir/exact_cast.h"

namespace tessera::cli {
namespace {

// How many tokens there are: the classes of the output that the loss takes, where they are a number; else 0.
int64_t vocabulary_of(const Model& model, const std::string& output, int64_t axis) {
  for (const TensorInfo& info : model.outputs())
    if (output.empty() || info.name == output) {
      if (axis < 0) axis += static_cast<int64_t>(info.shape.size());
      if (axis < 0 || axis >= static_cast<int64_t>(info.shape.size())) return 0;
      const std::string& classes = info.shape[static_cast<size_t>(axis)];
      return classes.find_first_not_of("0123456789") == std::string::npos ? std::stoll(classes) : 0;
    }
  return 0;
}

bool takes(const LossTerm& term, const std::string& array) {
  return term.labels == array;
}

// "[2, 5]": where the element of that number is.
std::string place_text(int64_t element, const Dims& dims) {
  std::string text;
  for (size_t d = dims.size(); d-- > 0;) {
    text = std::to_string(element % dims[d]) + (text.empty() ? "" : ", ") + text;
    element /= dims[d];
  }
  return "[" + text + "]";
}

std::map<std::string, std::string> identity_of(const data::SampleOptions& samples, const TrainOptions& options,
                                               bool arrays) {
  constexpr const char* kTypes[] = {"uint8", "uint16", "uint32", "npz"};
  std::map<std::string, std::string> made = {{"data", ""}, {"seed", std::to_string(options.seed)}};
  for (const data::SourceSpec& source : samples.sources) {
    char weight[32];
    std::snprintf(weight, sizeof weight, "%g", source.weight);
    made["data"] += (made["data"].empty() ? "" : ", ") + source.path.filename().string() + " (" +
                    kTypes[static_cast<size_t>(source.storage)] + ", weight " + weight + ", " +
                    std::to_string(std::filesystem::file_size(source.path)) + " bytes)";
  }
  if (arrays) return made;
  char held_out[32];
  std::snprintf(held_out, sizeof held_out, "%g", samples.held_out);
  made["sequence"] = std::to_string(samples.sequence);
  made["held-out"] = held_out;
  made["document-separator"] = options.separator;
  return made;
}

}  // namespace

Model TrainingData::feeds(const Model& model, const TrainOptions& options) {
  if (options.data.empty()) return model;
  const data::SourceSpec source = data::parse_sources(options.data).front();
  return source.storage == data::Storage::npz ? fed_by(model, source.path) : model;
}

std::optional<TrainingData> TrainingData::for_evaluation(const TrainOptions& options, const Model& model,
                                                         const Training& training, size_t memory_limit) {
  if (options.eval_data.empty() && options.held_out == 0) {
    if (options.eval_every) wrong_training("--eval-every needs data to evaluate; give --eval-data or --held-out 0.05");
    return std::nullopt;
  }
  return TrainingData(options, model, training, options.eval_data.empty() ? options.data : options.eval_data, true,
                      memory_limit);
}

TrainingData::TrainingData(const TrainOptions& options, const Model& model, const Training& training,
                           const std::string& source, bool evaluates, size_t memory_limit)
    : source_(source) {
  const std::string& labels = training.labels;
  std::vector<LossTerm> terms = loss_terms(training.loss);
  for (LossTerm& term : terms)
    if (term.labels && term.labels->empty()) term.labels = labels;
  if (source.empty())
    wrong_training(
        "there is no data; give --data x.npz, whose arrays have one slice for each step, or --data corpus.txt");
  data::BatchOptions wanted;
  wanted.samples.sources = data::parse_sources(source);
  const bool arrays = wanted.samples.sources.front().storage == data::Storage::npz;
  wanted.labels = labels;
  if (arrays) {
    if (options.batch || options.sequence)
      wrong_training("--batch and --sequence are for files of tokens; the arrays of " + source + " have their own");
  } else {
    if (options.sequence < 1) wrong_training("files of tokens are cut into samples; give their length with --sequence");
    wanted.batch = options.batch ? options.batch : 8;
    wanted.samples.sequence = options.sequence;
    wanted.samples.seed = options.seed;
    wanted.samples.held_out = evaluates && !options.eval_data.empty() ? 0 : options.held_out;
    if (evaluates) {
      wanted.samples.order = data::Order::once;
      wanted.samples.part = options.eval_data.empty() ? data::Part::held_out : data::Part::training;
    }
    const auto classes = std::find_if(terms.begin(), terms.end(), [&](const LossTerm& term) {
      return takes(term, labels) && term.label.starts_with("cross-entropy");
    });
    if (classes != terms.end())
      wanted.samples.vocabulary =
          vocabulary_of(model, classes->tensor.empty() ? training.output : classes->tensor, classes->axis.value_or(-1));
    if (!options.separator.empty()) wanted.samples.separator = data::parse_separator(options.separator);
    if (options.step.loss.find("ignore_index") != std::string::npos)
      wrong_training("files of tokens mark what is not to be predicted by -100; leave ignore_index out of --loss");
    bool found = false;
    for (const TensorInfo& input : model.inputs()) {
      if (input.name == "position_ids") {
        wanted.positions = input.name;
      } else if (input.dtype == DType::int64 && input.name != labels && !found) {
        wanted.tokens = input.name;
        found = true;
      }
    }
    if (!found) wrong_training("the model has no int64 input that could take the tokens of " + source);
  }
  wanted.memory_limit = memory_limit;
  draws_samples_ = !arrays;
  batches_ = std::make_unique<data::Batches>(wanted);
  identity_ = identity_of(wanted.samples, options, arrays);
  check_arrays(model, terms, labels, arrays);
}

void TrainingData::check_arrays(const Model& model, const std::vector<LossTerm>& terms, const std::string& labels,
                                bool arrays) {
  const std::map<std::string, Dims> first = batches_->dims();
  const std::vector<TensorInfo> inputs = model.inputs();
  for (const TensorInfo& input : inputs)
    if (!first.contains(input.name))
      wrong_training("the model takes '" + input.name + "', which " + source_ + " does not have" +
                     (arrays ? "; add an array of that name" : ""));
  for (const auto& extents : first) {
    const auto& name = extents.first;
    const auto& dims = extents.second;
    const bool is_input =
        std::any_of(inputs.begin(), inputs.end(), [&](const TensorInfo& i) { return i.name == name; });
    const bool is_compared = std::any_of(terms.begin(), terms.end(), [&](const LossTerm& t) { return takes(t, name); });
    if (arrays && !is_input) given_label_dims_.emplace(name, dims);
    if (!is_input && name != labels && !is_compared)
      wrong_training("the array '" + name + "' of " + source_ + " is neither an input of the model nor the labels; " +
                     "if it holds the labels, give --labels " + name);
  }
  const auto found = first.find(labels);
  if (found != first.end()) {
    labels_per_step_ = count_of(found->second);
  } else if (!first.empty() && !first.begin()->second.empty()) {
    labels_per_step_ = first.begin()->second[0];
  }
}

Tensors TrainingData::extents() const {
  Tensors all;
  for (const auto& [name, dims] : batches_->dims()) all[name].dims = dims;
  return all;
}

std::string TrainingData::range_problem(const data::Batch& batch) const {
  for (const IndexRange& range : ranges_) {
    const auto array = batch.tensors.find(range.input);
    if (array == batch.tensors.end() || !is_integer(array->second.dtype)) continue;
    const std::vector<int64_t> elements = array->second.to_int64();
    const auto wrong = std::find_if(elements.begin(), elements.end(), [&](int64_t element) {
      return (element < 0 || element >= range.count) && element != range.ignored;
    });
    if (wrong == elements.end()) continue;
    return source_ + ": '" + range.input + "' of " + (draws_samples_ ? "the batch from sample " : "step ") +
           std::to_string(batch.first) + " (the first is 0) holds " + std::to_string(*wrong) + " at " +
           place_text(wrong - elements.begin(), array->second.dims) + "; " + range.meaning + " are 0 to " +
           std::to_string(range.count - 1) +
           (range.ignored ? ", and " + std::to_string(*range.ignored) + " does not count" : "");
  }
  return "";
}

data::Batch TrainingData::at(int64_t cursor) const {
  data::Batch batch = ready(batches_->at(cursor));
  if (const std::string problem = range_problem(batch); !problem.empty()) wrong_training(problem);
  return batch;
}

data::Batch TrainingData::next() {
  return ready(batches_->next());
}

data::Batch TrainingData::ready(data::Batch batch) const {
  for (const TensorInfo& input : inputs_)
    if (const auto array = batch.tensors.find(input.name); array != batch.tensors.end())
      if (std::optional<Tensor> exact = exactly_as(array->second, input.dtype)) array->second = std::move(*exact);
  return batch;
}

int TrainingData::steps(int asked) const {
  const std::optional<int64_t> there = batches_->count();
  if (!there && asked == 0) wrong_training("files of tokens have no end; give the number of steps with --steps");
  if (!there) return asked;
  if (asked > *there)
    wrong_training("--steps says " + std::to_string(asked) + ", but " + source_ + " has " + std::to_string(*there) +
                   " steps");
  return asked ? asked : static_cast<int>(*there);
}

}  // namespace tessera::cli
