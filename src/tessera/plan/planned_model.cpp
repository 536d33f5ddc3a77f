#include "tessera/plan/planned_model.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/plan/blocks_alike.h"
#include "tessera/plan/samples.h"

namespace tessera::plan {
namespace {

// A machine on which products run at the peak rate, and nothing else takes time.
MachineModel ideal(MachineModel machine) {
  double fastest = 0;
  for (const auto& [signature, kernel] : machine.kernels)
    if (kernel.seconds > 0) fastest = std::max(fastest, kernel.flops / kernel.seconds);
  for (auto& [dtype, product] : machine.products) product = {std::max(product.flops, fastest), {0, 0, 0}};
  machine.kernel = 0;
  machine.kernels.clear();
  machine.bandwidths = {{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()}};
  return machine;
}

// The symbol of the first extent of the first input that has dimensions; "" if it is a number or a formula.
std::string symbol_of_samples(const Model& model, const SymbolSizes& sizes) {
  for (const TensorInfo& input : model.inputs())
    if (!input.shape.empty()) return sizes.contains(input.shape.front()) ? input.shape.front() : "";
  return "";
}

}  // namespace

bool may_extrapolate(const Model& model, const PlannerSettings& settings) {
  constexpr int64_t kMany = 12;  // the whole of fewer is compiled soon enough
  if (settings.measure) return false;
  const ModelBlocks blocks = model.blocks();
  if (blocks.count < kMany) return false;
  // Programs of fewer micro-batches have smaller batches.
  if (settings.training && symbol_of_samples(model, model.complete(settings.fixed.shapes)).empty()) return false;
  return treats_blocks_alike(blocks, settings.fixed, settings.training ? &*settings.training : nullptr);
}

PlannedModel::PlannedModel(const Model& model, const PlannerSettings& settings)
    : settings_(settings), sizes_(model.complete(settings.fixed.shapes)), model_(model) {
  if (!settings.training) model_ = model.for_program(sizes_, {});
  inspection_ = inspect(model_, settings_.training ? sizes_ : SymbolSizes());
  batch_ = samples_and_tokens(model_, sizes_).first;
  batch_symbol_ = symbol_of_samples(model_, sizes_);
  blocks_ = model_.blocks().count;
  extrapolates_ = settings.seconds > 0 && may_extrapolate(model_, settings);
  find_facts();
}

void PlannedModel::find_facts() {
  if (extrapolates_) {
    try {
      const std::vector<Sample> samples = samples_of(whole(1), kBlocks, kMicroBatches);
      for (const Sample& sample : samples) facts_.add(facts_of(sample.scale.blocks), sample.weight);
    } catch (const Error& error) {  // such as a loss that takes a tensor of one block
      if (error.kind() != ErrorKind::user) throw;
      extrapolates_ = false;
      facts_ = {};
    }
  }
  if (!extrapolates_) facts_ = facts_of(blocks_);
  facts_.batch = batch_;
}

const Model& PlannedModel::with_blocks(int64_t count) const {
  if (count == blocks_) return model_;
  const auto known = models_.find(count);
  return known != models_.end() ? known->second : models_.emplace(count, model_.with_blocks(count)).first->second;
}

const TrainingStep& PlannedModel::step(const Scale& scale, int64_t batch) const {
  const std::tuple key(scale.blocks, scale.micro_batches, batch);
  if (const auto known = steps_.find(key); known != steps_.end()) return known->second;
  Training training = *settings_.training;
  training.micro_batches = scale.micro_batches;
  training.sizes = sizes_;
  if (batch != batch_) training.sizes[batch_symbol_] = batch;
  if (settings_.fixed.dtype) training.compute = *settings_.fixed.dtype;
  return steps_.emplace(key, training_step(with_blocks(scale.blocks), training)).first->second;
}

Program PlannedModel::compiled(const Plan& plan, const Mesh& mesh, const Scale& scale) const {
  CompileOptions options;
  options.run.overlap = settings_.predict.overlap;
  settings_.predict.choose(options, mesh);
  Plan asked = plan;
  if (asked.overlap != "always") asked.overlap = "off";  // rings are chosen for the plan that is found
  if (!settings_.training) {
    asked.shapes = sizes_;
    return compile(with_blocks(scale.blocks), mesh, asked, options);
  }
  asked.shapes.clear();  // the step has these sizes only
  asked.dtype.reset();
  const int all = std::max(1, plan.micro_batches);
  if (batch_ % all != 0)
    fail("plan", "a batch of {} cannot be cut into {} equal micro-batches; choose a batch that can", batch_, all);
  const int64_t batch = scale.micro_batches == all ? batch_ : batch_ / all * scale.micro_batches;
  return compile(step(scale, batch).model, mesh, asked, options);
}

Facts PlannedModel::facts_of(int64_t blocks) const {
  Plan alone;
  alone.dtype = settings_.fixed.dtype;
  alone.states = settings_.fixed.states;
  const Scale scale{blocks, 1};
  const Program program = compiled(alone, {}, scale);
  PredictSettings settings = settings_.predict;
  settings.machine = ideal(settings.machine);
  Facts facts;
  facts.ideal_seconds = predict(program, settings).computation_ms * 1e-3;
  std::set<std::string> optimizer, trained;
  if (settings_.training) {
    const TrainingStep& made = step(scale, batch_);
    optimizer.insert(made.optimizer.begin(), made.optimizer.end());
    trained.insert(made.parameters.begin(), made.parameters.end());
  }
  const DType compute =
      settings_.fixed.dtype.value_or(settings_.training ? settings_.training->compute : DType::float32);
  const double narrow = compute == DType::float32 ? 1 : 0.5;
  for (const StateInfo& state : program.states()) {
    const auto bytes = static_cast<double>(state.bytes);
    (optimizer.contains(state.tensor.name) ? facts.optimizer_bytes : facts.parameter_bytes) += bytes;
    if (trained.contains(state.tensor.name)) facts.gradient_bytes += bytes;
    if (!optimizer.contains(state.tensor.name)) facts.gathered_bytes += bytes * narrow;
  }
  return facts;
}

bool PlannedModel::has_experts() const {
  return std::any_of(inspection_.rewritten.begin(), inspection_.rewritten.end(),
                     [](const OperatorCount& each) { return each.op == "tessera.Experts"; });
}

int64_t PlannedModel::context() const {
  return context_extent(with_blocks(extrapolates_ ? kBlocks.more : blocks_), sizes_);
}

}  // namespace tessera::plan
