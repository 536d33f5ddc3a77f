#include "tessera/batches.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "tessera/base/unmoved.h"
#include "tessera/data/batches.h"
#include "tessera/default_inputs.h"
#include "tessera/error.h"
#include "tessera/inspect.h"
#include "tessera/io/npy.h"
#include "tessera/ir/exact_cast.h"
#include "tessera/trainer/words.h"

namespace tessera {
inline namespace v1 {
namespace {

using trainer::called;
using trainer::refuse;

// The size of the vocabulary: the classes of the output that the loss takes, if they are a number; else 0.
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

// The seed matters where samples are drawn; it is compared for files of arrays, too.
std::map<std::string, std::string> identity_of(const data::SampleOptions& samples, const BatchOptions& options,
                                               bool draws) {
  constexpr const char* kTypes[] = {"uint8", "uint16", "uint32", "npz"};
  std::map<std::string, std::string> made = {{"data", ""}, {"seed", std::to_string(options.seed)}};
  for (const data::SourceSpec& source : samples.sources) {
    char weight[32];
    std::snprintf(weight, sizeof weight, "%g", source.weight);
    made["data"] += (made["data"].empty() ? "" : ", ") + source.path.filename().string() + " (" +
                    kTypes[static_cast<size_t>(source.storage)] + ", weight " + weight + ", " +
                    std::to_string(std::filesystem::file_size(source.path)) + " bytes)";
  }
  if (!draws) return made;
  char held_out[32];
  std::snprintf(held_out, sizeof held_out, "%g", samples.held_out);
  made["sequence"] = std::to_string(samples.sequence);
  made["held-out"] = held_out;
  made["document-separator"] = options.document_separator;
  return made;
}

// The terms of the loss, with what each is compared with.
std::vector<LossTerm> compared_terms(const Training& training) {
  std::vector<LossTerm> terms = loss_terms(training.loss);
  for (LossTerm& term : terms)
    if (term.labels && term.labels->empty()) term.labels = training.labels;
  return terms;
}

/// How samples of files of tokens become the arrays that a model takes.
data::BatchOptions options_of_tokens(const std::string& source, const Model& model, const Training& training,
                                     const BatchOptions& options) {
  if (options.sequence < 1)
    refuse("files of tokens are cut into samples; give their length with " + called("sequence"));
  constexpr int64_t kUsualBatch = 8;
  data::BatchOptions wanted;
  wanted.batch = options.batch ? options.batch : kUsualBatch;
  wanted.samples.sequence = options.sequence;
  wanted.samples.seed = options.seed;
  wanted.samples.held_out = options.held_out;
  if (options.evaluates) {
    wanted.samples.order = data::Order::once;
    wanted.samples.part = options.held_out > 0 ? data::Part::held_out : data::Part::training;
  }
  const std::vector<LossTerm> terms = compared_terms(training);
  const auto classes = std::find_if(terms.begin(), terms.end(), [&](const LossTerm& term) {
    return takes(term, training.labels) && term.name == "cross-entropy";
  });
  if (classes != terms.end())
    wanted.samples.vocabulary =
        vocabulary_of(model, classes->tensor.empty() ? training.output : classes->tensor, classes->axis.value_or(-1));
  if (!options.document_separator.empty()) wanted.samples.separator = data::parse_separator(options.document_separator);
  static constexpr int64_t kIgnored = -100;
  if (std::any_of(terms.begin(), terms.end(),
                  [](const LossTerm& term) { return term.ignore_index.value_or(kIgnored) != kIgnored; }))
    refuse("files of tokens mark what is not to be predicted by -100; leave ignore_index out of " + called("loss"));
  bool found = false;
  for (const TensorInfo& input : model.inputs()) {
    if (input.name == "position_ids") {
      wanted.positions = input.name;
    } else if (input.dtype == DType::int64 && input.name != training.labels && !found) {
      wanted.tokens = input.name;
      found = true;
    }
  }
  if (!found) refuse("the model has no int64 input that could take the tokens of " + source);
  return wanted;
}

}  // namespace

struct Batches::Impl {
  Impl(std::string source, const Model& model, std::unique_ptr<data::Batches> batches)
      : source(std::move(source)), ports(model.inputs()), batches(std::move(batches)) {}

  void compare_with_model(const Training& training, bool are_files_of_tokens);
  Batch made(data::Batch batch) const;

  std::string source;
  std::vector<TensorInfo> ports;  // of the model
  std::unique_ptr<data::Batches> batches;
  std::map<std::string, std::string> identity;
  int64_t labels_per_batch = 0;
  std::map<std::string, Dims> label_dims;
  std::vector<TensorInfo> inputs;  // of the step
  std::vector<IndexRange> ranges;
  bool draws_samples = false;
};

// Each input has an array, and each array is used.
void Batches::Impl::compare_with_model(const Training& training, bool are_files_of_tokens) {
  const std::string& labels = training.labels;
  const std::vector<LossTerm> terms = compared_terms(training);
  const std::map<std::string, Dims> first = batches->dims();
  for (const TensorInfo& input : ports)
    if (!first.contains(input.name))
      refuse("the model takes '" + input.name + "', which " + source + " does not have" +
             (are_files_of_tokens ? "" : "; add an array of that name"));
  for (const auto& extents : first) {
    const auto& array = extents.first;
    const bool is_input = std::any_of(ports.begin(), ports.end(), [&](const TensorInfo& i) { return i.name == array; });
    const bool is_compared =
        std::any_of(terms.begin(), terms.end(), [&](const LossTerm& t) { return takes(t, array); });
    if (!are_files_of_tokens && !is_input) label_dims.emplace(array, extents.second);
    if (!is_input && array != labels && !is_compared)
      refuse("the array '" + array + "' of " + source + " is neither an input of the model nor the labels; " +
             "if it holds the labels, give " + called("labels") + " " + array);
  }
  const auto found = first.find(labels);
  if (found != first.end()) {
    labels_per_batch = count_of(found->second);
  } else if (!first.empty() && !first.begin()->second.empty()) {
    labels_per_batch = first.begin()->second[0];
  }
}

Batch Batches::Impl::made(data::Batch batch) const {
  for (const TensorInfo& input : inputs)
    if (const auto array = batch.tensors.find(input.name); array != batch.tensors.end())
      if (std::optional<Tensor> exact = exactly_as(array->second, input.dtype)) array->second = std::move(*exact);
  return {batch.first, batch.next, std::move(batch.tensors)};
}

Batches::Batches(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Batches::~Batches() = default;
Batches::Batches(Batches&&) noexcept = default;
Batches& Batches::operator=(Batches&&) noexcept = default;

Batches Batches::open(const std::string& data, const Model& model, const Training& training,
                      const BatchOptions& options) {
  const std::vector<data::SourceSpec> sources = data::parse_sources(data);
  const bool are_arrays = sources.front().storage == data::Storage::npz;
  if (are_arrays && (options.batch || options.sequence))
    refuse(called("batch") + " and " + called("sequence") + " are for files of tokens; the arrays of " + data +
           " have their own");
  data::BatchOptions wanted = are_arrays ? data::BatchOptions() : options_of_tokens(data, model, training, options);
  wanted.samples.sources = sources;
  wanted.labels = training.labels;
  wanted.memory_limit = options.memory_limit;
  auto impl = std::make_unique<Impl>(data, model, std::make_unique<data::Batches>(wanted));
  impl->draws_samples = !are_arrays;
  impl->identity = identity_of(wanted.samples, options, !are_arrays);
  impl->compare_with_model(training, !are_arrays);
  return Batches(std::move(impl));
}

std::vector<std::filesystem::path> Batches::files(const std::string& data) {
  std::vector<std::filesystem::path> paths;
  for (const data::SourceSpec& source : data::parse_sources(data)) paths.push_back(source.path);
  return paths;
}

Model Batches::fed(const Model& model, const std::string& data) {
  const data::SourceSpec source = data::parse_sources(data).front();
  return source.storage == data::Storage::npz ? fed_by(model, source.path) : model;
}

Batches Batches::read(const std::map<std::string, std::filesystem::path>& arrays, const Model& model,
                      const Training& training) {
  Tensors all;
  std::string what, identity;
  for (const auto& [name, path] : arrays) {
    all.emplace(name, read_npy(path));
    what += (what.empty() ? "" : ", ") + path.string();
    identity += (identity.empty() ? "" : ", ") + path.filename().string() + " (npy, " +
                std::to_string(std::filesystem::file_size(path)) + " bytes)";
  }
  if (all.empty()) refuse("there is no data; name a .npy file for each input of the model, and for the labels");
  auto impl = std::make_unique<Impl>(what, model, std::make_unique<data::Batches>(std::move(all), what));
  impl->identity = {{"data", identity}};
  impl->compare_with_model(training, false);
  return Batches(std::move(impl));
}

Batches Batches::of(const Tensors& arrays, const Model& model, const Training& training) {
  const std::string what = "the arrays";
  if (arrays.empty()) refuse("there is no data; give an array for each input of the model, and for the labels");
  auto impl = std::make_unique<Impl>(what, model, std::make_unique<data::Batches>(arrays, what));
  impl->identity = {{"data", "arrays of " + std::to_string(*impl->batches->count()) + " steps"}};
  impl->compare_with_model(training, false);
  return Batches(std::move(impl));
}

Batches Batches::made_by(std::function<Tensors(int64_t position)> make, std::optional<int64_t> count,
                         const Model& model, const Training& training, const std::string& what) {
  if (!make) refuse("there is no data; give a function that makes the arrays of each step");
  auto impl = std::make_unique<Impl>(what, model, std::make_unique<data::Batches>(std::move(make), count, what));
  impl->identity = {{"data", what}};
  impl->compare_with_model(training, false);
  return Batches(std::move(impl));
}

Batch Batches::next() {
  return unmoved(impl_).made(unmoved(impl_).batches->next());
}

Batch Batches::at(int64_t position) const {
  Batch batch = unmoved(impl_).made(unmoved(impl_).batches->at(position));
  if (const std::string problem = range_problem(batch); !problem.empty()) refuse(problem);
  return batch;
}

int64_t Batches::position() const {
  return unmoved(impl_).batches->cursor();
}

void Batches::seek(int64_t position) {
  unmoved(impl_).batches->seek(position);
}

std::optional<int64_t> Batches::count() const {
  return unmoved(impl_).batches->count();
}

int64_t Batches::steps(int64_t asked) const {
  const std::optional<int64_t> there = count();
  const std::string steps = called("steps");
  if (!there && asked == 0)
    refuse((unmoved(impl_).draws_samples ? "files of tokens have no end" : unmoved(impl_).source + " has no end") +
           std::string("; give the number of steps with ") + steps);
  if (!there) return asked;
  if (asked > *there)
    refuse(steps + " says " + std::to_string(asked) + ", but " + unmoved(impl_).source + " has " +
           std::to_string(*there) + " steps");
  return asked ? asked : *there;
}

Tensors Batches::extents() const {
  Tensors all;
  for (const auto& [name, dims] : unmoved(impl_).batches->dims()) all[name].dims = dims;
  return all;
}

const std::map<std::string, Dims>& Batches::label_dims() const {
  return unmoved(impl_).label_dims;
}

int64_t Batches::labels_per_batch() const {
  return unmoved(impl_).labels_per_batch;
}

Training Batches::complete(const Training& training) const {
  Training made = training;
  const SymbolSizes sizes = sizes_of(unmoved(impl_).ports, extents());
  made.sizes.insert(sizes.begin(), sizes.end());
  made.label_dims = unmoved(impl_).label_dims;
  return made;
}

void Batches::prepare_for(const TrainingStep& step) {
  unmoved(impl_).inputs = step.model.inputs();
  unmoved(impl_).ranges = step.ranges;
}

std::string Batches::range_problem(const Batch& batch) const {
  for (const IndexRange& range : unmoved(impl_).ranges) {
    const auto array = batch.tensors.find(range.input);
    if (array == batch.tensors.end() || !is_integer(array->second.dtype)) continue;
    const std::vector<int64_t> elements = array->second.to_int64();
    const auto wrong = std::find_if(elements.begin(), elements.end(), [&](int64_t element) {
      return (element < 0 || element >= range.count) && element != range.ignored;
    });
    if (wrong == elements.end()) continue;
    return unmoved(impl_).source + ": '" + range.input + "' of " +
           (unmoved(impl_).draws_samples ? "the batch from sample " : "step ") + std::to_string(batch.first) +
           " (the first is 0) holds " + std::to_string(*wrong) + " at " +
           place_text(wrong - elements.begin(), array->second.dims) + "; " + range.meaning + " are 0 to " +
           std::to_string(range.count - 1) +
           (range.ignored ? ", and " + std::to_string(*range.ignored) + " does not count" : "");
  }
  return "";
}

void Batches::verify(const std::function<bool()>& stops) const {
  unmoved(impl_).batches->verify(stops);
}

const std::map<std::string, std::string>& Batches::identity() const {
  return unmoved(impl_).identity;
}

}  // namespace v1
}  // namespace tessera
