#include "tessera/train/step.h"

#include <algorithm>
#include <limits>
#include <set>

#include "tessera/base/error.h"
#include "tessera/bounds.h"
#include "tessera/ir/append_copy.h"
#include "tessera/ir/glob.h"
#include "tessera/ir/set_sizes.h"
#include "tessera/onnx/export_record.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/micro_batches.h"
#include "tessera/train/autodiff.h"
#include "tessera/train/forward.h"
#include "tessera/train/loss.h"
#include "tessera/train/names.h"
#include "tessera/train/optimizer.h"
#include "tessera/train/scaling.h"
#include "tessera/train/selection.h"
#include "tessera/train/wide_sums.h"

namespace tessera::train {
namespace {

std::string output_of_term(std::string_view what, const Loss& loss) {
  return fmt::format("{}.{}", what, loss.label());
}

// One class, since a step is one graph that each part extends: parts of the batch, gradients, clipping, updates and
// outputs share its inputs, parameters and counters. What can stand alone does (autodiff, losses, optimizers,
// schedules).
class StepMaker {
 public:
  StepMaker(const OnnxModel& given, const StepOptions& options)
      : given_(given),
        selection_(select(given, options)),
        model_(selection_.model),
        options_(options),
        optimizer_(make_optimizer(options.optimizer)),
        batches_(*given.graph, options.micro_batches, options.sizes),
        build_(*step_.model.graph, "step") {
    for (Loss& loss : losses_of(options.loss)) terms_.push_back({std::move(loss)});
  }

  Step evaluate() {
    StepOptions still = options_;
    still.dropout = Dropout::off;
    still.batch_norm = BatchNorm::frozen;
    const OnnxModel forward = forward_model(still);
    start(forward);
    std::map<const Value*, Value*> known;
    const std::vector<Value*> sums = forward_part(forward, 0, known);
    for (size_t t = 0; t < terms_.size(); ++t) terms_[t].sum = sums[t];
    find_parameters(forward, known);
    // A step changes those that the loss has a gradient for; the gradients' nodes have no use and go.
    const std::vector<Value*> found = gradients(graph(), roots(sums), parameters_);
    for (size_t i = 0; i < parameters_.size(); ++i) {
      parameters_[i]->changing = found[i] != nullptr;
      if (found[i]) step_.parameters.push_back(parameters_[i]->name);
      if (selection_.statistics.contains(parameters_[i]->name)) parameters_[i]->changing = true;
    }
    average_losses();
    output(kLoss, average_loss_);
    if (terms_.size() == 1) {
      output(kCounted, build_.cast(terms_[0].divisor, DType::float32));
    } else {
      output_terms();
      for (const Term& term : terms_)
        output(output_of_term(kCounted, term.loss), build_.cast(term.divisor, DType::float32));
    }
    return finished();
  }

  Step run() {
    const OnnxModel forward = forward_model(options_);
    if (!statistics_.empty() && bits_of(options_.compute) < 32)
      fail("train",
           "BatchNormalizations that train compute in float32, and `dtype` is {}; leave it out, or give "
           "`batch_norm=frozen`",
           name_of(options_.compute));
    start(forward);
    counted_ = new_state(graph(), kStep, Tensor::of(DType::int64, {}, std::vector<int64_t>{0}));
    for (int part = 0; part < batches_.count(); ++part) add_part(forward, part);
    finish_gradients();
    update();
    note_frozen();
    tell_selection();
    return finished();
  }

 private:
  struct Input {
    Value* value = nullptr;
    bool cut = false;          ///< into micro-batches
    Expr rows_per_sample = 1;  ///< along the first dimension
    bool made = false;         ///< for a loss; else the model's
  };

  struct Term {
    Loss loss;
    size_t output = 0;  ///< of the forward model
    Value *labels = nullptr, *divisor = nullptr, *sum = nullptr, *average = nullptr;
  };

  Graph& graph() { return *step_.model.graph; }

  Step finished() {
    graph().erase_dead();
    graph().sort();
    graph().verify("train");
    return std::move(step_);
  }

  // What the model has beside the parameters that train and their copies. Initializers of one element, or none, count
  // as constants where nothing trains.
  void note_frozen() {
    std::set<std::string> trained(step_.parameters.begin(), step_.parameters.end());
    trained.insert(step_.statistics.begin(), step_.statistics.end());
    for (const Tie& tie : selection_.ties)
      if (trained.contains(tie.source)) trained.insert(tie.copy);
    for (const auto& value : given_.graph->values()) {
      const bool is_parameter =
          value->kind == ValueKind::state || (value->has_data() && is_float(value->dtype()) && value->rank() > 0);
      if (is_parameter && !value->uses.empty() && !trained.contains(value->name))
        step_.frozen.emplace(value->name, value->data);
    }
    // The step uses the source's values for a copy, whatever the file has.
    for (const Tie& tie : selection_.ties) {
      const auto copy = step_.frozen.find(tie.copy);
      if (copy == step_.frozen.end()) continue;
      const Tensor& source = given_.graph->find(tie.source)->data;
      if (source.data && !holds(copy->second, source, tie.how)) copy->second = copied(tie, source);
    }
  }

  // What the loss does not depend on is found not to train after the selection.
  void tell_selection() {
    const std::set<std::string_view> trained(step_.parameters.begin(), step_.parameters.end());
    for (Selected& row : selection_.table) {
      if (!row.trains || trained.contains(row.tied_to.empty() ? row.name : row.tied_to)) continue;
      row.trains = false;
      row.why = "the loss does not depend on it in a way that has a gradient";
    }
    step_.table = std::move(selection_.table);
    step_.reached = std::move(selection_.reached);
    step_.notes.insert(step_.notes.begin(), selection_.notes.begin(), selection_.notes.end());
  }

  // The model at the sizes of a part, with the outputs that the terms take, made ready; what moves its statistics is
  // known afterwards.
  OnnxModel forward_model(const StepOptions& options) {
    batches_.require_size();
    OnnxModel taking = model_.clone();
    Graph& own = *taking.graph;
    set_sizes(own, batches_.part_sizes());
    std::vector<Value*> taken;
    for (Term& term : terms_) {
      Value* output = taken_by(term.loss, own, options.output);
      const auto found = std::find(taken.begin(), taken.end(), output);
      term.output = static_cast<size_t>(found - taken.begin());
      if (found == taken.end()) taken.push_back(output);
    }
    own.outputs = std::move(taken);
    own.erase_dead();
    Forward forward = make_forward(std::move(taking), selection_, options);
    for (const auto& [name, output] : forward.statistics) statistics_[name] = Statistic{output};
    step_.notes.insert(step_.notes.end(), forward.notes.begin(), forward.notes.end());
    return std::move(forward.model);
  }

  static Value* taken_by(const Loss& loss, const Graph& graph, const std::string& otherwise) {
    const std::string& name = loss.tensor().empty() ? otherwise : loss.tensor();
    if (name.empty() && graph.outputs.empty()) fail("loss", "the model has no output that a loss could take");
    Value* output = name.empty() ? graph.outputs.front() : graph.find(name);
    if (output && output->kind == ValueKind::result) return output;
    std::vector<std::string_view> results;
    for (const Value* result : graph.values_of(ValueKind::result)) results.push_back(result->name);
    fail("loss", "no node of the model makes a tensor '{}'{}; name the tensor that the loss takes {}", name,
         nearest_names(results, name), loss.tensor().empty() ? "with `output`" : "after ':'");
  }

  // Random numbers differ from step to step and from part to part.
  static const ops::OpDef* random_operator(const Node& node) {
    const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
    return op && op->counter ? op : nullptr;
  }

  // Null if nothing is random. An evaluation counts nothing.
  Value* counter_of(const OnnxModel& forward, int part) {
    const auto& nodes = forward.graph->nodes();
    const bool any = std::any_of(nodes.begin(), nodes.end(), [](const auto& node) { return random_operator(*node); });
    return any && counted_ ? build_.add(build_.mul(counted_, batches_.count()), part) : nullptr;
  }

  void count_runs(const OnnxModel& forward, const std::map<const Value*, Value*>& known, Value* counter) {
    for (const auto& node : forward.graph->nodes())
      if (const ops::OpDef* op = random_operator(*node))
        for (const Value* result : node->outputs)
          if (result) graph().set_input(known.at(result)->producer, *op->counter, counter);
  }

  // Inputs, labels and parameters of the step, which all parts share.
  void start(const OnnxModel& forward) {
    step_.model.ir_version = std::max<int64_t>(forward.ir_version, 11);
    step_.model.opset_imports = forward.opset_imports;
    step_.model.source = forward.source;
    graph().name = model_.graph->name + ".step";
    copy_export_record(graph(), *given_.graph);
    const int parts = batches_.count();
    for (const Value* input : forward.graph->inputs) {
      TensorType type = input->type;
      const bool cut = batches_.cuts(*input);
      if (cut) type.shape->front() = type.shape->front() * parts;
      inputs_[input->name] = {graph().add_input(input->name, type), cut, 1};
    }
    for (Term& term : terms_) {
      const Value& output = *forward.graph->outputs[term.output];
      find_classes(term.loss, output);
      if (term.loss.takes_labels()) term.labels = labels_of(term.loss, output);
      note_range(term, output);
      term.divisor = term.loss.divisor(build_, output, term.labels, parts);
    }
    for (IndexRange& range : lookups(*forward.graph)) step_.ranges.push_back(std::move(range));
    scaling_.emplace(build_, options_.loss_scale);
  }

  void note_range(const Term& term, const Value& output) {
    if (!term.labels || !term.loss.takes_classes()) return;
    if (const auto classes = output.shape()[term.loss.class_axis()].constant())
      step_.ranges.push_back(
          {term.labels->name, *classes, term.loss.ignored(), fmt::format("the classes of '{}'", output.name)});
  }

  const std::string& name_of_labels(const Loss& loss) const {
    return loss.labels().empty() ? options_.labels : loss.labels();
  }

  void find_classes(Loss& loss, const Value& output) const {
    const std::string& name = name_of_labels(loss);
    const auto input = inputs_.find(name);
    const auto given = options_.label_dims.find(name);
    std::optional<Shape> labels;
    if (input != inputs_.end() && !input->second.made && input->second.value->has_shape())
      labels = input->second.value->shape();
    else if (given != options_.label_dims.end())
      labels.emplace(given->second.begin(), given->second.end());
    loss.find_classes(output, labels ? &*labels : nullptr);
  }

  // The labels of all parts, which terms may share.
  Value* labels_of(const Loss& loss, const Value& output) {
    const std::string& name = name_of_labels(loss);
    TensorType type = loss.labels_type(output);
    if (const auto known = inputs_.find(name); known != inputs_.end()) {
      const Value* labels = known->second.value;
      if (known->second.made && labels->dtype() != type.dtype)
        fail("loss", "{} takes labels of {}, but another term takes '{}' as {}; name its own labels with labels=INPUT",
             loss.label(), name_of(type.dtype), name, name_of(labels->dtype()));
      return known->second.value;
    }
    if (graph().find(name) || model_.graph->find(name))
      fail("loss", "'{}' is a tensor of the model, but not an input; give the labels another name", name);
    Input labels;
    if (batches_.count() > 1) {
      labels.rows_per_sample = batches_.rows_per_sample(type.shape->front());
      labels.cut = true;
      type.shape->front() = type.shape->front() * batches_.count();
    }
    labels.made = true;
    labels.value = graph().add_input(name, type);
    return inputs_.emplace(name, labels).first->second.value;
  }

  // Appends the model for one part of the batch. Returns the sums of its terms.
  std::vector<Value*> forward_part(const OnnxModel& forward, int part, std::map<const Value*, Value*>& known) {
    const bool alone = batches_.count() == 1;
    std::map<const Value*, Value*> parts;
    for (const auto& [name, input] : inputs_)
      parts[input.value] = input.cut ? batches_.rows_of(build_, input.value, part, input.rows_per_sample) : input.value;
    for (const Value* input : forward.graph->inputs) known[input] = parts.at(inputs_.at(input->name).value);
    for (const auto& [name, statistic] : statistics_)  // each part goes on from the one before
      if (statistic.moved) known[forward.graph->find(name)] = statistic.moved;
    Value* const counter = counter_of(forward, part);
    append_copy(graph(), *forward.graph, known, alone ? "" : fmt::format(".part{}", part));
    if (counter) count_runs(forward, known, counter);
    for (auto& [name, statistic] : statistics_) statistic.moved = known.at(forward.graph->outputs[statistic.output]);
    std::vector<Value*> sums;
    for (const Term& term : terms_)
      sums.push_back(term.loss.sum(build_, known.at(forward.graph->outputs[term.output]),
                                   term.labels ? parts.at(term.labels) : nullptr));
    return sums;
  }

  // Each term's own gradient. Its divisor, that of all parts, is known before the first backward pass.
  std::vector<Root> roots(const std::vector<Value*>& sums) {
    std::vector<Root> made;
    for (size_t t = 0; t < terms_.size(); ++t) {
      Value* scale = build_.mul(scaling_->scale(sums[t]->dtype()), terms_[t].loss.weight());
      made.push_back({sums[t], build_.div(scale, terms_[t].divisor)});
    }
    return made;
  }

  void add_part(const OnnxModel& forward, int part) {
    const size_t earlier = graph().nodes().size();
    std::map<const Value*, Value*> known;
    const std::vector<Value*> sums = forward_part(forward, part, known);
    const size_t forward_end = graph().nodes().size();
    if (part == 0) find_parameters(forward, known);
    std::vector<Value*> found = gradients(graph(), roots(sums), parameters_);
    for (Value*& gradient : found)
      if (gradient) gradient = with_wide_sums(graph(), gradient);
    const auto& nodes = graph().nodes();
    for (size_t n = earlier; n < nodes.size(); ++n)
      nodes[n]->seat = {-1, part, n < forward_end ? Segment::forward : Segment::backward};
    add_up(sums, found);
  }

  // Adds what a micro-batch has found to the sums over all.
  void add_up(const std::vector<Value*>& sums, const std::vector<Value*>& found) {
    for (size_t t = 0; t < terms_.size(); ++t)
      terms_[t].sum = terms_[t].sum ? build_.add(terms_[t].sum, sums[t]) : sums[t];
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (found[i]) gradients_[i] = gradients_[i] ? build_.add(gradients_[i], found[i]) : found[i];
  }

  void find_parameters(const OnnxModel& forward, const std::map<const Value*, Value*>& known) {
    for (const Value* state : forward.graph->values_of(ValueKind::state))
      if (state->changing && !state->uses.empty() && !statistics_.contains(state->name))
        parameters_.push_back(known.at(state));
    if (parameters_.empty())
      fail("train", "no parameter of the model trains: {}; at least one float initializer must",
           options_.freeze.empty() ? "it has none" : "all are frozen");
    gradients_.resize(parameters_.size());
  }

  // Drops what the loss does not depend on, unscales, and clips by the norm of all gradients together.
  void finish_gradients() {
    std::vector<Value*> parameters, found;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (gradients_[i]) {
        parameters.push_back(parameters_[i]);
        found.push_back(gradients_[i]);
        continue;
      }
      parameters_[i]->changing = false;
      step_.notes.push_back(fmt::format(
          "'{}' does not train: the loss does not depend on it in a way that has a gradient", parameters_[i]->name));
    }
    if (parameters.empty()) fail("train", "the loss depends on no parameter; check `output`");
    parameters_ = std::move(parameters);
    gradients_ = std::move(found);
    Value* squares = nullptr;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      Value*& gradient = gradients_[i];
      gradient = scaling_->unscaled(gradient);
      if (gradient->kind != ValueKind::result || graph().is_output(gradient))
        gradient = build_.unary("Identity", gradient);
      give_name(gradient, "grad." + parameters_[i]->name);
      Value* wide = bits_of(gradient->dtype()) < 32 ? build_.cast(gradient, DType::float32) : gradient;
      Value* square =
          build_.cast(build_.emit("ReduceSumSquare", {wide}, {{"keepdims", int64_t{0}, ""}}), DType::float32);
      squares = squares ? build_.add(squares, square) : square;
    }
    norm_ = build_.unary("Sqrt", squares);
    average_losses();
    good_ = build_.emit("And", {is_finite(average_loss_), is_finite(norm_)});
    if (options_.clip <= 0) return;
    Value* factor = build_.div(build_.number(norm_, options_.clip), build_.add(norm_, 1e-6));
    clipping_ = build_.emit("Min", {factor, build_.number(norm_, 1)});
  }

  void average_losses() {
    for (Term& term : terms_) {
      term.average = build_.cast(build_.div(term.sum, term.divisor), DType::float32);
      Value* weighted = build_.mul(term.average, term.loss.weight());
      average_loss_ = average_loss_ ? build_.add(average_loss_, weighted) : weighted;
    }
  }

  void output_terms() {
    for (const Term& term : terms_) output(output_of_term(kLoss, term.loss), term.average);
  }

  Value* is_finite(Value* number) {
    return build_.emit("LessOrEqual",
                       {build_.unary("Abs", number), build_.number(number, std::numeric_limits<float>::max())});
  }

  bool decays(const Value& parameter) const {
    for (const std::string& pattern : options_.no_decay)
      if (pattern == "vectors" ? parameter.rank() < 2 : selection_.matches(pattern, parameter.name)) return false;
    return true;
  }

  void update() {
    Value* step = counted_;
    Value* next_step = build_.add(step, 1);
    Value* rate = options_.rate.at(build_, step);
    std::vector<std::pair<Value*, Value*>> next = {{step, next_step}};
    for (size_t i = 0; i < parameters_.size(); ++i) {
      Value* parameter = parameters_[i];
      Value* own_rate = build_.cast(build_.mul(rate, factor_of(*parameter)), parameter->dtype());
      Value* gradient = gradients_[i];
      if (clipping_) gradient = build_.mul(gradient, build_.cast(clipping_, gradient->dtype()));
      std::vector<std::pair<Value*, Value*>> kept;
      Value* stepped = optimizer_->step(
          build_, {parameter, gradient, own_rate, build_.cast(next_step, parameter->dtype()), decays(*parameter)},
          kept);
      next.emplace_back(parameter, stepped);
      if (options_.average > 0) {
        Value* average = new_state(graph(), parameter->name + ".average", parameter->data);
        kept.emplace_back(average,
                          build_.add(build_.mul(average, options_.average), build_.mul(stepped, 1 - options_.average)));
      }
      for (const auto& [state, value] : kept) step_.kept.push_back(state->name);
      next.insert(next.end(), kept.begin(), kept.end());
      step_.parameters.push_back(parameter->name);
    }
    for (const auto& [name, statistic] : statistics_) {
      next.emplace_back(graph().find(name), statistic.moved);
      step_.statistics.push_back(name);
    }
    for (auto& [state, value] : next) {
      set_next(state, unless_spoilt(value, state));
    }
    for (auto& [state, value] : scaling_->next(good_)) set_next(state, value);
    output(kLoss, average_loss_);
    output(kGradientNorm, norm_);
    output(kLearningRate, rate);
    if (Value* scale = scaling_->state()) output(kLossScale, scale);
    if (terms_.size() > 1) output_terms();
  }

  // `value`, or the state as it was if the step is not good. Whatever else reads `value` reads the result instead, so
  // that `value` need not stay in memory; what it then computes of a step that is not good is not used either.
  Value* unless_spoilt(Value* value, Value* state) {
    const std::vector<Use> uses = value->kind == ValueKind::result ? value->uses : std::vector<Use>();
    Value* kept = build_.where(good_, value, state);
    for (const Use& use : uses) graph().set_input(use.node, use.index, kept);
    return kept;
  }

  void set_next(Value* state, Value* value) {
    give_name(value, "next." + state->name);
    state->changing = true;
    graph().set_next(state, value);
  }

  double factor_of(const Value& parameter) const {
    for (const auto& [pattern, factor] : options_.rate_factors)
      if (selection_.matches(pattern, parameter.name)) return factor;
    return 1;
  }

  void give_name(Value* value, const std::string& name) {
    claim_name(graph(), name);
    graph().rename(value, name);
  }

  void output(std::string_view name, Value* value) {
    if (value->kind != ValueKind::result || graph().is_output(value)) value = build_.unary("Identity", value);
    give_name(value, std::string(name));
    graph().outputs.push_back(value);
  }

  const OnnxModel& given_;
  Selection selection_;
  const OnnxModel& model_;  // the selection's
  const StepOptions& options_;
  std::vector<Term> terms_;
  std::unique_ptr<Optimizer> optimizer_;
  rewrite::MicroBatches batches_;
  Step step_;
  ops::NodeBuilder build_;
  // A running statistic, by its name.
  struct Statistic {
    size_t output = 0;       // of the forward model, its next value
    Value* moved = nullptr;  // by the parts so far
  };
  std::map<std::string, Statistic> statistics_;

  std::optional<Scaling> scaling_;
  std::map<std::string, Input> inputs_;
  std::vector<Value*> parameters_, gradients_;
  Value *norm_ = nullptr, *average_loss_ = nullptr;
  Value* good_ = nullptr;      // whether loss and norm are finite, so that the step counts
  Value* clipping_ = nullptr;  // what gradients are multiplied by; null: 1
  Value* counted_ = nullptr;   // the state that counts steps
};

void require_number(std::string_view what, double number, const Bounds& bounds) {
  if (!bounds.hold(number)) fail("train", "{} is {}; it must be {}", what, number, bounds.text());
}

void require_numbers(const StepOptions& options) {
  require_number("the norm to clip to", options.clip, Bounds::at_least(0));
  require_number("the decay of the moving average", options.average, Bounds::from_to_below(0, 1));
  for (const auto& [pattern, factor] : options.rate_factors)
    require_number(fmt::format("the factor of '{}'", pattern), factor, Bounds::at_least(0));
}

}  // namespace

Step make_step(const OnnxModel& model, const StepOptions& options) {
  require_numbers(options);
  StepOptions scaled = options;
  const std::vector<Value*> states = model.graph->values_of(ValueKind::state);
  const bool holds_float16 =
      std::any_of(states.begin(), states.end(), [](const Value* state) { return state->dtype() == DType::float16; });
  if (scaled.loss_scale.empty() && (options.compute == DType::float16 || holds_float16)) scaled.loss_scale = "dynamic";
  return StepMaker(model, scaled).run();
}

std::vector<StepTerm> terms_of(const tessera::Loss& loss) {
  const std::vector<Loss> losses = losses_of(loss);
  std::vector<StepTerm> terms;
  for (const Loss& term : losses) {
    const bool alone = losses.size() == 1;
    terms.push_back({term.name(), term.label(), term.tensor(),
                     term.takes_labels() ? std::optional(term.labels()) : std::nullopt, alone ? 1 : term.weight(),
                     term.axis(), term.takes_classes() ? std::optional(term.ignored()) : std::nullopt,
                     alone ? std::string(kLoss) : output_of_term(kLoss, term),
                     alone ? std::string(kCounted) : output_of_term(kCounted, term)});
  }
  return terms;
}

Step make_evaluation(const OnnxModel& model, const StepOptions& options) {
  StepOptions whole = options;
  whole.micro_batches = 1;
  whole.loss_scale.clear();
  return StepMaker(model, whole).evaluate();
}

}  // namespace tessera::train
