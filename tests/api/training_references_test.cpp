// Training steps made of forward models, against what PyTorch's autograd and optimizers computed in float64 from the
// same weights: losses and gradient norms of each step, the first step's gradients, the last step's parameters. On any
// mesh, and the same bits from run to run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <optional>

#include "api/same_bits.h"
#include "sample.h"
#include "tessera/io/npz.h"
#include "tessera/training.h"

namespace tessera {
namespace {

const std::string kTrainingFolder = std::string(TESSERA_TEST_DATA) + "/models/training/";

constexpr double kStepTolerance = 1e-5;    // of losses and gradient norms
constexpr double kTensorTolerance = 1e-4;  // of a tensor's norm

/// A case of the references, and what it trains by. Data are in MODEL/data.npz, with a leading dimension of steps;
/// references in NAME.npz: "loss", "grad_norm" and "learning_rate" per step, and for each tensor NAME of
/// "first_gradients.NAME" and "final_parameters.NAME" its sum, its norm and its first elements.
struct Reference {
  std::string name, model;
  Training training;
};

const std::vector<Reference>& references() {
  static const std::vector<Reference> all = [] {
    std::vector<Reference> made;
    const auto add = [&](std::string name, std::string model, std::string optimizer) -> Training& {
      made.push_back({std::move(name), std::move(model), {}});
      Training& training = made.back().training;
      training.optimizer = std::move(optimizer);
      const Tensor rates = read_npz(kTrainingFolder + made.back().name + ".npz").at("learning_rate");
      for (double rate : rates.as<double>()) training.learning_rates.push_back(static_cast<float>(rate));
      return training;
    };
    const std::string adamw = "adamw:beta1=0.9,beta2=0.95,eps=1e-8,weight_decay=0.1";
    for (const std::string model : {"gpt", "llama"}) {
      Training& training = add(model + "-adamw", model, adamw);
      training.clip = 1;
      training.no_decay = {"vectors"};
    }
    Training accumulating = made.front().training;
    accumulating.micro_batches = 4;
    add("gpt-adamw-accumulate-4", "gpt", adamw) = accumulating;
    add("gpt-adam-l2", "gpt", "adam:beta1=0.9,beta2=0.999,eps=1e-8,weight_decay=0.01");
    add("gpt-adafactor", "gpt", "adafactor");
    add("gpt-sgd-momentum", "gpt", "sgd:momentum=0.9");
    add("gpt-sgd-nesterov-smooth", "gpt", "sgd:momentum=0.9,nesterov=true").loss = "cross-entropy:label_smoothing=0.1";
    Training& mlp = add("mlp-sgd", "mlp", "sgd");
    mlp.loss = "mse";
    mlp.labels = "target";
    Training& cnn = add("cnn-sgd", "cnn", "sgd:momentum=0.9,weight_decay=0.001");
    cnn.labels = "label";
    cnn.freeze = {"c1.weight"};
    return made;
  }();
  return all;
}

struct Layout {
  std::string mesh, presets;
};

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {{"dp=1", ""},
                                          {"dp=2", ""},
                                          {"tp=2", ""},
                                          {"tp=3", ""},
                                          {"dp=2,tp=2", ""},
                                          {"fsdp=2", ""},
                                          {"fsdp=3", ""},
                                          {"fsdp=2,tp=2", ""},
                                          {"dp=2,fsdp=2", ""},
                                          {"dp=4", "dp+zero1"},
                                          {"dp=4", "dp+zero2"},
                                          {"dp=4", "zero3"},
                                          {"tp=2", "megatron+sequence"},
                                          {"tp=3", "megatron+sequence"},
                                          {"dp=2,tp=2", "2d"},
                                          {"pp=2", ""},
                                          {"pp=3", ""},
                                          {"pp=2,dp=2", ""},
                                          {"pp=2,fsdp=2", ""},
                                          {"pp=2,dp=2", "pipeline+dp+zero1"},
                                          {"pp=2,tp=2", "pipeline+megatron+sequence"}};
  return all;
}

Tensor of_step(const Tensor& all, int64_t step) {
  Tensor one = all;
  one.dims.erase(one.dims.begin());
  one.bytes = all.bytes / static_cast<size_t>(all.dims.front());
  one.data = all.data + static_cast<size_t>(step) * one.bytes;
  return one;
}

const Reference& reference_named(std::string_view name) {
  return *std::find_if(references().begin(), references().end(),
                       [&](const Reference& each) { return each.name == name; });
}

std::map<std::string, Tensor> data_of(const Reference& reference) {
  return read_npz(kTrainingFolder + reference.model + "/data.npz");
}

/// The step on a mesh, whose gradients are outputs, too; and the parameters that it trains.
std::pair<Program, std::vector<std::string>> program_of(const Reference& reference, const Layout& layout) {
  const auto data = data_of(reference);
  const Model model = Model::load(kTrainingFolder + reference.model + "/model.onnx");
  Training training = reference.training;
  for (const TensorInfo& input : model.inputs())
    for (size_t d = 0; d < input.shape.size(); ++d)
      if (!std::isdigit(static_cast<unsigned char>(input.shape[d].front())))
        training.sizes.emplace(input.shape[d], data.at(input.name).dims[d + 1]);
  const TrainingStep step = training_step(model, training);
  std::vector<std::string> outputs;
  for (const TensorInfo& output : step.model.outputs()) outputs.push_back(output.name);
  for (const std::string& parameter : step.parameters) outputs.push_back("grad." + parameter);
  Plan plan;
  plan.presets = layout.presets;
  return {compile(step.model.with_outputs(outputs), Mesh::parse(layout.mesh), plan), step.parameters};
}

/// What a run of all steps gives.
struct TrainingRun {
  std::vector<double> losses, norms;
  Tensors first_gradients, final_states;
};

class TrainingReferences : public testing::TestWithParam<size_t> {
 protected:
  const Reference& reference() const { return references()[GetParam()]; }

  TrainingRun train(const Program& program, const std::vector<std::string>& parameters) const {
    const std::map<std::string, Tensor> data = data_of(reference());
    Session session(program, test::one_thread());
    TrainingRun made;
    const auto steps = static_cast<int64_t>(reference().training.learning_rates.size());
    for (int64_t i = 0; i < steps; ++i) {
      Tensors batch;
      for (const auto& [name, all] : data) batch.emplace(name, of_step(all, i));
      const Tensors results = session.run(batch);
      made.losses.push_back(results.at("loss").as<float>()[0]);
      made.norms.push_back(results.at("grad_norm").as<float>()[0]);
      if (i == 0)
        for (const std::string& parameter : parameters)
          made.first_gradients.emplace(parameter, results.at("grad." + parameter));
    }
    made.final_states = session.states();
    return made;
  }
};

void expect_steps(const std::vector<double>& made, const Tensor& wanted, std::string_view what) {
  ASSERT_EQ(made.size(), wanted.as<double>().size());
  for (size_t i = 0; i < made.size(); ++i)
    EXPECT_NEAR(made[i], wanted.as<double>()[i], kStepTolerance * std::abs(wanted.as<double>()[i]) + 1e-12)
        << what << " of step " << i;
}

// Every tensor of the table that starts with `prefix`, by its sum, norm and first elements.
void expect_tensors(const Tensors& made, const std::map<std::string, Tensor>& table, const std::string& prefix) {
  size_t compared = 0;
  for (const auto& [key, entry] : table) {
    if (!key.starts_with(prefix)) continue;
    const auto found = made.find(key.substr(prefix.size()));
    if (found == made.end()) continue;
    ++compared;
    double sum = 0, squares = 0;
    const auto elements = found->second.as<float>();
    for (const float element : elements) {
      sum += element;
      squares += static_cast<double>(element) * element;
    }
    const auto wanted = entry.as<double>();
    const double norm = wanted[1], bound = kTensorTolerance * norm + 1e-12;
    // A sum of n elements may be further off than each, by √n.
    EXPECT_NEAR(sum, wanted[0], bound * std::sqrt(static_cast<double>(elements.size()))) << key;
    EXPECT_NEAR(std::sqrt(squares), norm, bound) << key;
    for (size_t i = 2; i < wanted.size(); ++i) EXPECT_NEAR(elements[i - 2], wanted[i], bound) << key << ", " << i - 2;
  }
  EXPECT_GT(compared, 1u) << prefix;
}

TEST_P(TrainingReferences, are_met_with_the_same_bits_from_run_to_run) {
  const std::map<std::string, Tensor> table = read_npz(kTrainingFolder + reference().name + ".npz");
  for (const Layout& layout : test::one_in(3, layouts(), GetParam())) {
    SCOPED_TRACE(layout.mesh + " " + layout.presets);
    const auto [program, parameters] = program_of(reference(), layout);
    const TrainingRun first = train(program, parameters);
    expect_steps(first.losses, table.at("loss"), "loss");
    expect_steps(first.norms, table.at("grad_norm"), "norm of gradients");
    expect_tensors(first.first_gradients, table, "first_gradients.");
    expect_tensors(first.final_states, table, "final_parameters.");
    for (const auto& [name, gradient] : first.first_gradients)
      EXPECT_TRUE(table.contains("first_gradients." + name)) << name << " trains here and not there";
    const TrainingRun again = train(program, parameters);
    EXPECT_EQ(first.losses, again.losses);
    EXPECT_EQ(first.norms, again.norms);
    test::expect_same(first.final_states, again.final_states);
  }
}

INSTANTIATE_TEST_SUITE_P(OnMeshes, TrainingReferences, testing::Range(size_t{0}, references().size()),
                         [](const auto& info) {
                           std::string name = references()[info.param].name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Pooling's indices and all else that a CNN computes stay where its images are: nothing is gathered.
TEST(TrainingCommunication, of_images_on_replicas_is_a_reduction_for_each_gradient) {
  for (const std::string mesh : {"dp=2", "dp=4"}) {
    const Program program = program_of(reference_named("cnn-sgd"), {mesh, ""}).first;
    std::map<std::string, int64_t> counts;
    for (const CollectiveSummary& entry : program.summary().collectives) counts[entry.kind] += entry.count;
    // Nine parameters train; the loss's sum and its count of labels.
    EXPECT_EQ(counts, (std::map<std::string, int64_t>{{"all_reduce", 9 + 2}})) << mesh;
  }
}

// Collectives by kind of a step of the gpt: 2 blocks, 28 parameters, the embedding tied to the head.
Program step_of_gpt(const Layout& layout, std::optional<int64_t> bucket_bytes = std::nullopt) {
  Training training = reference_named("gpt-adamw").training;
  training.sizes = {{"batch", 8}, {"sequence", 32}};
  const TrainingStep step = training_step(Model::load(kTrainingFolder + "gpt/model.onnx"), training);
  EXPECT_EQ(step.parameters.size(), 28u);
  Plan plan;
  plan.presets = layout.presets;
  plan.bucket_bytes = bucket_bytes;
  return compile(step.model, Mesh::parse(layout.mesh), plan);
}

std::map<std::string, int64_t> collectives_of(const Layout& layout) {
  const Program program = step_of_gpt(layout);
  std::map<std::string, int64_t> counts;
  for (const CollectiveSummary& entry : program.summary().collectives) counts[entry.kind] += entry.count;
  return counts;
}

// Beside these: the loss's sum and its count of labels.
TEST(TrainingCommunication, of_data_parallelism_is_a_reduction_for_each_gradient) {
  // The tied weight's gradient has two parts, of the head and of the embedding. Each rank adds up its own rows of both.
  EXPECT_EQ(collectives_of({"dp=2", ""}), (std::map<std::string, int64_t>{{"all_reduce", 28 + 2}}));
}

TEST(TrainingCommunication, of_stored_parameters_is_a_gather_for_each_use_and_a_scatter_for_each_gradient) {
  std::map<std::string, int64_t> counts = collectives_of({"fsdp=2", ""});
  // Half of the positions are in use, so that to all-reduce their rows moves as much as to scatter the whole table. The
  // tied weight's gradient has two parts, of the head and of the embedding, which are added up before they are
  // scattered.
  EXPECT_EQ(counts["reduce_scatter"], 27);
  EXPECT_EQ(counts["all_reduce"], 2 + 1 + 1) << "and the norm";
  // 13 matrices and scales are used forward and backward, 13 biases and one table of positions forward, the tied weight
  // three times. Where forward turns to backward, three are shared: of the head, of the scale before it, and of the
  // last matrix.
  EXPECT_EQ(counts["all_gather"], 2 * 13 + 13 + 1 + 3 - 3);
}

// 2 a block forward and 2 backward, the embedding's, the head's, the loss's three and the norm's.
TEST(TrainingCommunication, of_tensor_parallelism_is_four_reductions_a_block) {
  EXPECT_EQ(collectives_of({"tp=2", "megatron"}),
            (std::map<std::string, int64_t>{{"all_reduce", 4 * 2 + 1 + 1 + 3 + 1}}));
}

// Each of the large reductions is a scatter and a gather, and so is that of the positions' gradient; gradients of
// vectors are reduced.
TEST(TrainingCommunication, of_sequence_parallelism_is_four_scatters_and_gathers_a_block) {
  std::map<std::string, int64_t> counts = collectives_of({"tp=2", "megatron+sequence"});
  EXPECT_EQ(counts["reduce_scatter"], 4 * 2 + 1 + 1 + 1);
  // The positions themselves are made on every rank.
  EXPECT_EQ(counts["all_gather"], 4 * 2 + 1 + 1);
}

// How many of them start by themselves.
std::map<std::string, int64_t> starts_of(const Layout& layout, int64_t bucket_bytes) {
  const Program program = step_of_gpt(layout, bucket_bytes);
  std::map<std::string, int64_t> counts;
  for (const CollectiveSummary& entry : program.summary().collectives) counts[entry.kind] += entry.starts;
  return counts;
}

TEST(TrainingCommunication, of_small_gradients_is_a_reduction_for_each_bucket) {
  // The count of labels, which the loss needs; all gradients and the loss.
  EXPECT_EQ(starts_of({"dp=2", ""}, 1 << 24), (std::map<std::string, int64_t>{{"all_reduce", 2}}));
  // 18 vectors and the loss, 11 KiB together, are one.
  EXPECT_EQ(starts_of({"dp=2", ""}, 16 << 10)["all_reduce"], 28 + 2 - 18);
  EXPECT_EQ(starts_of({"dp=2", ""}, 0)["all_reduce"], 28 + 2);
  // All gradients, and the moments' shards' parameters.
  std::map<std::string, int64_t> counts = starts_of({"dp=2", "zero2"}, 1 << 24);
  EXPECT_EQ(counts["reduce_scatter"], 1);
  EXPECT_EQ(counts["all_gather"], 1);
}

}  // namespace
}  // namespace tessera
