// A training run from C++: the steps of the program, evaluations, checkpoints that other meshes go on from, and what it
// refuses.
#include "tessera/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include "api/trained_on_meshes.h"

namespace tessera::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing_io::contents;

constexpr std::string_view kMlp = R"(
mlp (float[b, 8] x) => (float[b, 6] y) <float[8, 12] up, float[12, 6] down> {
  h = MatMul (x, up)
  t = Tanh (h)
  y = MatMul (t, down)
})";

class Runs : public testing::Test, protected SmallModels {
 protected:
  Runs() {
    training_.loss = "mse";
    training_.labels = "target";
    training_.optimizer = "sgd:momentum=0.9";
    training_.learning_rate = "0.1";
  }

  static Tensors arrays(int64_t steps = 6, int64_t batch = 4, int seed = 1) {
    return {{"x", scattered({steps, batch, 8}, seed)}, {"target", scattered({steps, batch, 6}, seed + 1)}};
  }

  // One step of arrays(), which has `steps`.
  static Tensors step_of(const Tensors& arrays, int64_t step) {
    Tensors made;
    for (const auto& [name, array] : arrays) {
      const Dims dims(array.dims.begin() + 1, array.dims.end());
      const size_t bytes = array.bytes / static_cast<size_t>(array.dims[0]);
      made.emplace(name, Tensor::copy_of(array.dtype, dims, array.data + bytes * static_cast<size_t>(step), bytes));
    }
    return made;
  }

  Batches batches(const Tensors& arrays) { return Batches::of(arrays, mlp_, training_); }

  TrainerOptions saving(const std::string& folder) {
    TrainerOptions options = quick();
    options.checkpoints = std::make_unique<Checkpoints>(folder_ / folder.c_str(), 0);
    return options;
  }

  static TrainerOptions quick() {
    TrainerOptions options;
    options.session = one_thread();
    return options;
  }

  Trainer trainer(const std::string& mesh = "", TrainerOptions options = quick()) {
    return Trainer::make(mlp_, training_, batches(arrays()), Mesh::parse(mesh), {}, std::move(options));
  }

  template <typename Call>
  static std::string error_of(ErrorKind kind, Call call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "nothing was refused";
    return "";
  }
  template <typename Call>
  static std::string mistake(Call call) {
    const std::string message = error_of(ErrorKind::user, call);
    EXPECT_THAT(message, Not(HasSubstr("--"))) << "there is no command line";
    return message;
  }

  TemporaryFolder folder_;
  const Model mlp_ = model(kMlp);
  Training training_;
};

TEST_F(Runs, MakeTheStepsOfTheProgramOnEveryMesh) {
  const Tensors all = arrays();
  std::vector<Tensors> steps;
  for (int64_t k = 0; k < 6; ++k) steps.push_back(step_of(all, k));
  const Trained wanted = train(mlp_, training_, {"dp=1", ""}, steps);
  for (const std::string mesh : {"", "dp=2", "tp=2", "fsdp=2,tp=2"}) {
    SCOPED_TRACE(mesh);
    Trainer run = trainer(mesh);
    for (size_t k = 0; k < steps.size(); ++k) {
      const StepFigures figures = run.step();
      EXPECT_EQ(figures.step, static_cast<int64_t>(k) + 1);
      EXPECT_EQ(figures.labels, 4 * 6);
      EXPECT_GT(figures.seconds, 0);
      EXPECT_NEAR(figures.loss, wanted.losses[k], kReordered * wanted.losses[k]);
      EXPECT_NEAR(figures.grad_norm, wanted.norms[k], kReordered * wanted.norms[k]);
      EXPECT_FLOAT_EQ(static_cast<float>(figures.learning_rate), 0.1F);
      EXPECT_FALSE(figures.skipped);
    }
    EXPECT_EQ(run.steps_made(), 6);
    const Tensors made = run.parameters();
    EXPECT_THAT(made, SizeIs(2));
    for (const auto& [name, tensor] : made) expect_near(tensor, wanted.states.at(name), name);
    EXPECT_THAT(mistake([&] { run.step(); }), HasSubstr("has 6 steps"));
  }
}

TEST_F(Runs, EvaluateTheLossOfTheBatchesWithTheParametersAsTheyAre) {
  const Tensors all = arrays();
  for (const std::string mesh : {"", "dp=2", "tp=2"}) {
    SCOPED_TRACE(mesh);
    TrainerOptions options = quick();
    options.evaluated = batches(all);
    options.evaluated_batches = 1;
    Trainer run = trainer(mesh, std::move(options));
    const double before = run.evaluate();
    EXPECT_NEAR(before, run.step().loss, 1e-5 * before) << "of the same batch";
    EXPECT_LT(run.evaluate(), before);
  }
  Trainer none = trainer();
  EXPECT_THAT(mistake([&] { none.evaluate(); }), HasSubstr("nothing to evaluate"));
}

// Three steps on one mesh, and three more on another, are six.
TEST_F(Runs, GoOnFromACheckpointOfAnotherMesh) {
  Trainer whole = trainer();
  ASSERT_TRUE(whole.train({}));
  {
    Trainer first = trainer("dp=2", saving("run"));
    ASSERT_TRUE(first.train({.steps = 3}));
    EXPECT_EQ(first.saved_step(), 3);
    EXPECT_EQ(first.checkpoint_problem(), "");
  }
  Trainer second = trainer("tp=2", saving("run"));
  EXPECT_EQ(second.resume(), 3);
  EXPECT_EQ(second.first_step(), 3);
  EXPECT_EQ(second.step().step, 4);
  EXPECT_EQ(second.save(), "");
  ASSERT_TRUE(second.train({}));
  EXPECT_EQ(second.steps_made(), 6);
  expect_near(second.parameters(), whole.parameters());
}

TEST_F(Runs, BeginWhereThereIsNoCheckpoint) {
  Trainer run = trainer("", saving("empty"));
  EXPECT_EQ(run.resume(), std::nullopt);
  EXPECT_EQ(run.step().step, 1);
  EXPECT_THAT(mistake([&] { run.resume(); }), HasSubstr("has made 1 step;"));
  Trainer none = trainer();
  EXPECT_THAT(mistake([&] { none.resume(); }), HasSubstr("no folder of checkpoints"));
}

TEST_F(Runs, GoOnOnlyFromTheirOwn) {
  ASSERT_TRUE(trainer("", saving("run")).train({.steps = 3}));
  training_.optimizer = "adamw";
  EXPECT_THAT(mistake([&] { trainer("", saving("run")).resume(); }),
              AllOf(HasSubstr("another optimizer"), HasSubstr("`optimizer` is adamw and was sgd:momentum=0.9")));
  training_.optimizer = "sgd:momentum=0.9";
  EXPECT_THAT(mistake([&] { trainer("", saving("run")).resume(2); }), HasSubstr("more than the 2 steps"));
  const auto on_others = [&] { return Trainer::make(mlp_, training_, batches(arrays(9)), Mesh(), {}, saving("run")); };
  EXPECT_THAT(mistake([&] { on_others().resume(); }),
              AllOf(HasSubstr("arrays of 9 steps"), HasSubstr("arrays of 6 steps"), HasSubstr("`other_data`")));
  EXPECT_EQ(on_others().resume(0, true), 3);
}

/// What a run tells, as words.
class Told : public TrainingObserver {
 public:
  void on_step(const StepFigures& figures) override { say("step", figures.step); }
  void after_step(int64_t step, bool ends) override { say(ends ? "last" : "after", step); }
  void on_evaluation(int64_t step, double loss) override {
    say("evaluation", step);
    losses.push_back(loss);
  }
  void on_warning(const std::string& what) override { warnings.push_back(what); }
  std::shared_ptr<void> on_phase(const std::string& what) override {
    EXPECT_EQ(phases_now, 0) << "'" << what << "' begins within another phase";
    phases.push_back(what);
    ++phases_now;
    return {this, [this](void*) { --phases_now; }};
  }

  std::vector<std::string> words, warnings, phases;
  std::vector<double> losses;
  int phases_now = 0;

 private:
  void say(const std::string& what, int64_t step) { words.push_back(what + " " + std::to_string(step)); }
};

TEST_F(Runs, TellWhatTheyDoInItsOrder) {
  Told told;
  TrainerOptions options = saving("run");
  options.observer = &told;
  options.evaluated = batches(arrays());
  Trainer run = trainer("dp=2", std::move(options));
  ASSERT_TRUE(run.train({.steps = 3, .evaluate_every = 2, .save_every = 2}));
  EXPECT_THAT(told.words, ElementsAre("step 1", "after 1", "step 2", "after 2", "evaluation 2", "step 3", "last 3",
                                      "evaluation 3"));
  EXPECT_THAT(told.warnings, IsEmpty());
  EXPECT_EQ(told.phases_now, 0);
  EXPECT_THAT(told.phases, ElementsAre("differentiating", "compiling", "compiling the evaluation", "loading weights",
                                       "preparing evaluations", "first step", "saving a checkpoint", "evaluating",
                                       "saving a checkpoint", "evaluating", "writing the checkpoint"));
  EXPECT_THAT(Checkpoints::steps(folder_ / "run"), ElementsAre(2, 3));
  EXPECT_LT(told.losses[1], told.losses[0]);
}

TEST_F(Runs, SaveAndLeaveWhenTheyAreTold) {
  Trainer run = trainer("", saving("run"));
  int asked = 0;
  EXPECT_FALSE(run.train({.steps = 6, .stops = [&] { return ++asked == 3; }}));
  EXPECT_EQ(run.steps_made(), 2);
  EXPECT_EQ(run.saved_step(), 2);
}

TEST_F(Runs, EndWithTheTensorThatIsNotFiniteAndChangeNoState) {
  Tensors bad = arrays();
  std::vector<float> x(bad.at("x").as<float>().begin(), bad.at("x").as<float>().end());
  x[2 * 4 * 8 + 5] = std::numeric_limits<float>::quiet_NaN();  // of step 2
  bad.at("x") = floats({6, 4, 8}, x);
  Trainer run = Trainer::make(mlp_, training_, batches(bad), Mesh::parse("dp=2"), {}, saving("run"));
  run.step();
  run.step();
  const Tensors before = run.parameters();
  EXPECT_THAT(
      error_of(ErrorKind::running, [&] { run.step(); }),
      AllOf(HasSubstr("the loss of step 3 is nan"), HasSubstr("'x'"), HasSubstr("(`clip` 1)"), Not(HasSubstr("--"))));
  EXPECT_EQ(run.steps_made(), 2);
  expect_near(run.parameters(), before);
}

TEST_F(Runs, SkipStepsWhoseGradientsOverflow) {
  training_.compute = DType::float16;
  training_.loss_scale = "dynamic:init=16777216,backoff=0.0625";
  Trainer run = trainer();
  const StepFigures first = run.step();
  EXPECT_TRUE(first.skipped);
  EXPECT_EQ(first.loss_scale, 16777216);
  for (int k = 1; k < 6; ++k) run.step();
  EXPECT_GE(run.skipped(), 1);
  EXPECT_LT(run.skipped(), 6);
}

TEST_F(Runs, WriteWhatTheyHaveTrained) {
  training_.average = 0.5;
  training_.freeze = {"up"};
  Trainer run = trainer("tp=2");
  ASSERT_TRUE(run.train({.steps = 2}));
  const Tensors made = run.parameters(), averages = run.parameters(true);
  EXPECT_THAT(made, SizeIs(2)) << "the frozen one, too";
  const auto at = [&](const char* name) { return folder_ / name; };
  run.write_parameters(at("after.npz"));
  run.write_parameters(at("average.npz"), true);
  run.write_parameters(at("after.onnx"));
  const auto read = [&](const char* name, const std::vector<std::string>& names) {
    std::vector<TensorInfo> ports;
    for (const std::string& port : names) ports.push_back({port, DType::float32, {}});
    return read_tensors(at(name), "output", ports);
  };
  const Tensors after = read("after.npz", {"up", "down", "down.average"});
  EXPECT_THAT(after, SizeIs(3));
  expect_near(after.at("down"), made.at("down"), "down");
  expect_near(after.at("down.average"), averages.at("down"), "down");
  expect_near(read("average.npz", {"up", "down"}), averages);
  Session trained(compile(Model::load(at("after.onnx")), Mesh()), one_thread());
  const Tensors results = trained.run({{"x", step_of(arrays(), 0).at("x")}});
  Session before(compile(mlp_, Mesh()), one_thread());
  EXPECT_NE(results.at("y").as<float>()[0], before.run({{"x", step_of(arrays(), 0).at("x")}}).at("y").as<float>()[0]);
  EXPECT_THAT(mistake([&] { run.write_parameters(at("after.pt")); }), HasSubstr("must end in .npz"));
  training_.average = 0;
  Trainer plain = trainer();
  EXPECT_THAT(mistake([&] { plain.parameters(true); }), HasSubstr("no moving averages"));
}

TEST_F(Runs, OutliveBeingMoved) {
  Trainer run = trainer("", saving("run"));
  run.step();
  Trainer moved = std::move(run);
  EXPECT_EQ(moved.step().step, 2);
  EXPECT_EQ(moved.save(), "");  // and its end awaits the writing
}

TEST_F(Runs, FitIntoTheLimitOrSayWhatWould) {
  TrainerOptions options = quick();
  options.session.memory_limit = 4000;
  EXPECT_THAT(error_of(ErrorKind::user, [&] { trainer("", std::move(options)); }),
              AllOf(HasSubstr("[memory]"), HasSubstr("`recompute=auto` needs least of what was tried")));
}

TEST(TrainingLog, HasALineForEachStepAndDropsThoseThatAreMadeAgain) {
  TemporaryFolder folder;
  const auto steps_in = [&] {
    std::string steps;
    std::istringstream lines(contents(folder / "m"));
    for (std::string line; std::getline(lines, line);) steps += line.substr(0, line.find(',')) + "}";
    return steps;
  };
  StepFigures figures;
  figures.seconds = 0.5;
  {
    TrainingLog log(folder / "m", folder / "events");
    for (figures.step = 1; figures.step <= 3; ++figures.step) log.add(figures);
    log.add_evaluation(3, 1.5);
    EXPECT_EQ(log.problem(), "");
  }
  EXPECT_EQ(steps_in(), "{\"step\":0}{\"step\":1}{\"step\":2}");
  {
    TrainingLog log(folder / "m", {}, 2, true);
    figures.step = 3;
    log.add(figures);
  }
  EXPECT_EQ(steps_in(), "{\"step\":0}{\"step\":1}{\"step\":2}");
  EXPECT_THROW(TrainingLog(folder / "no" / "such" / "folder", {}), Error);
}

TEST(TrainingLog, TellsOnceThatItCannotBeWritten) {
  TrainingLog log("/dev/full", {});
  StepFigures figures;
  figures.step = 1, figures.seconds = 1;
  log.add(figures);
  EXPECT_EQ(log.problem(), "the metrics");
  log.add(figures);
  EXPECT_EQ(log.problem(), "");
}

}  // namespace
}  // namespace tessera::test
