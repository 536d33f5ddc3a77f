// The batches of a training run, from files, from memory and from a function.
#include "tessera/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "api/trained_on_meshes.h"
#include "tessera/io/npy.h"
#include "tessera/io/npz.h"
#include "tessera/trainer.h"

namespace tessera::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kTable = R"(
table (int64[b, s] ids) => (float[b, s, 11] y) <float[11, 8] rows, float[8, 11] head> {
  x = Gather (rows, ids)
  y = MatMul (x, head)
})";

class BatchesFor : public testing::Test, protected SmallModels {
 protected:
  BatchesFor() { training_.optimizer = "sgd"; }

  static Tensors arrays(int64_t steps = 3) {
    return {{"ids", classes({steps, 2, 6}, 11, 1)}, {"labels", classes({steps, 2, 6}, 11, 2)}};
  }

  Batches of(const Tensors& arrays) { return Batches::of(arrays, model_, training_); }

  template <typename Call>
  static std::string mistake(Call call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user) << error.what();
      EXPECT_THAT(error.what(), Not(HasSubstr("--"))) << "there is no command line";
      return error.what();
    }
    ADD_FAILURE() << "nothing was refused";
    return "";
  }

  static void expect_same(const Batch& a, const Batch& b) {
    EXPECT_EQ(a.first, b.first);
    EXPECT_EQ(a.next, b.next);
    expect_near(a.tensors, b.tensors);
  }

  TemporaryFolder folder_;
  const Model model_ = model(kTable);
  Training training_;
};

TEST_F(BatchesFor, AModelAreTheSameFromMemoryAndFromFiles) {
  const Tensors all = arrays();
  write_npz(folder_ / "d.npz", {all.begin(), all.end()});
  for (const auto& [name, array] : all) write_npy(folder_ / (name + ".npy").c_str(), array);
  Batches held = of(all), npz = Batches::open((folder_ / "d.npz").string(), model_, training_),
          npy = Batches::read({{"ids", folder_ / "ids.npy"}, {"labels", folder_ / "labels.npy"}}, model_, training_);
  for (Batches* batches : {&held, &npz, &npy}) {
    EXPECT_EQ(batches->count(), 3);
    EXPECT_EQ(batches->steps(0), 3);
    EXPECT_EQ(batches->labels_per_batch(), 12);
    EXPECT_EQ(batches->extents().at("ids").dims, (Dims{2, 6}));
    EXPECT_EQ(batches->label_dims().at("labels"), (Dims{2, 6}));
    EXPECT_EQ(batches->complete(training_).sizes, (SymbolSizes{{"b", 2}, {"s", 6}}));
    for (int64_t step = 0; step < 3; ++step) {
      EXPECT_EQ(batches->position(), step);
      expect_same(batches->next(), held.at(step));
    }
    EXPECT_THAT(mistake([&] { batches->next(); }), HasSubstr("has 3 steps"));
    batches->seek(1);
    expect_same(batches->next(), held.at(1));
  }
  EXPECT_THAT(npz.identity().at("data"), HasSubstr("d.npz"));
  EXPECT_THAT(npy.identity().at("data"), HasSubstr("labels.npy"));
}

TEST_F(BatchesFor, AFunctionIsAskedByPosition) {
  std::vector<int64_t> asked;
  const auto make = [&](int64_t position) {
    asked.push_back(position);
    return Tensors{{"ids", classes({2, 6}, 11, static_cast<int>(position))}, {"labels", classes({2, 6}, 11, 3)}};
  };
  Batches batches = Batches::made_by(make, std::nullopt, model_, training_);
  EXPECT_EQ(batches.count(), std::nullopt);
  EXPECT_EQ(batches.steps(5), 5);
  EXPECT_THAT(mistake([&] { batches.steps(0); }), HasSubstr("has no end"));
  batches.next(), batches.next();
  batches.seek(7);
  EXPECT_EQ(batches.next().next, 8);
  EXPECT_THAT(asked, ElementsAre(0, 0, 1, 7));
}

// A run that goes on asks for the position at which the one before it stopped.
TEST_F(BatchesFor, AFunctionGoOnWithACheckpoint) {
  std::vector<int64_t> asked;
  const auto run = [&](int64_t steps, const std::string& what) {
    asked.clear();
    const auto make = [&](int64_t position) {
      asked.push_back(position);
      return Tensors{{"ids", classes({2, 6}, 11, static_cast<int>(position))}, {"labels", classes({2, 6}, 11, 3)}};
    };
    TrainerOptions options;
    options.session = one_thread();
    options.checkpoints = std::make_unique<Checkpoints>(folder_ / "run", 0);
    Trainer trainer = Trainer::make(model_, training_, Batches::made_by(make, std::nullopt, model_, training_, what),
                                    Mesh(), {}, std::move(options));
    trainer.resume();
    asked.clear();
    trainer.train({.steps = steps});
  };
  run(2, "mine");
  EXPECT_THAT(asked, ElementsAre(0, 1));
  run(4, "mine");
  EXPECT_THAT(asked, ElementsAre(2, 3));
  EXPECT_THAT(mistake([&] { run(5, "other"); }), AllOf(HasSubstr("other"), HasSubstr("mine")));
}

TEST_F(BatchesFor, AFunctionMustBeAlikeForAllSteps) {
  const auto make = [](int64_t position) {
    return Tensors{{"ids", classes({2, 6 + position / 2}, 11, 1)}, {"labels", classes({2, 6}, 11, 3)}};
  };
  Batches batches = Batches::made_by(make, 4, model_, training_, "growing");
  batches.next(), batches.next();
  EXPECT_THAT(mistake([&] { batches.next(); }), AllOf(HasSubstr("growing"), HasSubstr("'ids' of step 2")));
  EXPECT_THAT(mistake([&] { Batches::made_by(nullptr, 4, model_, training_); }), HasSubstr("no data"));
}

TEST_F(BatchesFor, AModelHaveItsInputsAndNothingElse) {
  Tensors few = arrays(), many = arrays(), unlike = arrays(), scalar = arrays();
  few.erase("ids");
  EXPECT_THAT(mistake([&] { of(few); }), HasSubstr("takes 'ids'"));
  many.emplace("mask", classes({3, 2, 6}, 2, 1));
  EXPECT_THAT(mistake([&] { of(many); }), AllOf(HasSubstr("'mask'"), HasSubstr("give `labels` mask")));
  unlike.at("labels") = classes({4, 2, 6}, 11, 2);
  EXPECT_THAT(mistake([&] { of(unlike); }), HasSubstr("'labels' has 4"));
  scalar.at("labels") = classes({}, 11, 2);
  EXPECT_THAT(mistake([&] { of(scalar); }), HasSubstr("scalar"));
  EXPECT_THAT(mistake([&] { of({}); }), HasSubstr("no data"));
  EXPECT_THAT(mistake([&] { of(arrays()).steps(4); }), AllOf(HasSubstr("`steps` says 4"), HasSubstr("has 3")));
}

TEST_F(BatchesFor, AStepAreInRange) {
  Tensors wrong = arrays();
  std::vector<int64_t> ids = wrong.at("ids").to_int64();
  ids[12 + 6 + 4] = 11;  // of step 1
  wrong.at("ids") = integers({3, 2, 6}, ids);
  Batches batches = of(wrong);
  batches.prepare_for(training_step(model_, batches.complete(training_)));
  EXPECT_NO_THROW(batches.at(0));
  EXPECT_THAT(mistake([&] { batches.at(1); }), AllOf(HasSubstr("'ids' of step 1"), HasSubstr("holds 11 at [1, 4]")));
  const Batch taken = [&] {
    batches.seek(1);
    return batches.next();
  }();
  EXPECT_THAT(batches.range_problem(taken), HasSubstr("'ids' of step 1"));
  TrainerOptions options;
  options.session = one_thread();
  Trainer trainer = Trainer::make(model_, training_, of(wrong), Mesh(), {}, std::move(options));
  trainer.step();
  EXPECT_THAT(mistake([&] { trainer.step(); }), HasSubstr("'ids' of step 1"));
  EXPECT_EQ(trainer.steps_made(), 1);
}

TEST_F(BatchesFor, FilesOfTokensAreDrawnBySeed) {
  std::ofstream(folder_ / "text.bin", std::ios::binary) << std::string(400, '\1') + std::string(400, '\2');
  const std::string data = (folder_ / "text.bin").string() + ":uint8";
  BatchOptions options;
  EXPECT_THAT(mistake([&] { Batches::open(data, model_, training_, options); }), HasSubstr("`sequence`"));
  options.sequence = 6, options.batch = 2, options.held_out = 0.25;
  Batches batches = Batches::open(data, model_, training_, options);
  EXPECT_EQ(batches.count(), std::nullopt);
  EXPECT_EQ(batches.next().next, 2) << "positions count samples";
  options.evaluates = true;
  Batches evaluated = Batches::open(data, model_, training_, options);
  ASSERT_TRUE(evaluated.count().has_value());
  EXPECT_EQ(evaluated.at(0).tensors.at("ids").to_int64()[0], 2) << "the end of the file is held out";
  EXPECT_THAT(Batches::files(data), ElementsAre(folder_ / "text.bin"));
  options.held_out = 0;
  EXPECT_GT(Batches::open(data, model_, training_, options).count(), evaluated.count());
}

TEST_F(BatchesFor, FilesOfTokensTakeTheLabelThatDoesNotCount) {
  std::ofstream(folder_ / "text.bin", std::ios::binary) << std::string(400, '\1');
  const std::string data = (folder_ / "text.bin").string() + ":uint8";
  BatchOptions options;
  options.sequence = 6, options.batch = 2;
  for (const Loss& loss : {Loss(CrossEntropy{}), Loss(CrossEntropy{.label_smoothing = 0.1}), Loss("cross-entropy")}) {
    training_.loss = loss;
    EXPECT_NO_THROW(Batches::open(data, model_, training_, options)) << loss;
  }
  for (const Loss& loss : {Loss(CrossEntropy{.ignore_index = 0}), Loss("cross-entropy:ignore_index=0")}) {
    training_.loss = loss;
    EXPECT_THAT(mistake([&] { Batches::open(data, model_, training_, options); }), HasSubstr("-100")) << loss;
  }
}

}  // namespace
}  // namespace tessera::test
