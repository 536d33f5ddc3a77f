// Steps on the command line: states that are named, stored, saved and loaded.
#include "api/grouped_query_step.h"
#include "cli/command_line.h"

namespace tessera {
namespace {

class StepsCommand : public CommandLine {
 protected:
  const std::string step_ = std::string(TESSERA_TEST_DATA) + "/models/steps/mlp-sgd/model.onnx ";
  const std::string states_ = "--state '*=next.*' ";

  // The batches of the file, without the losses that came with them.
  std::string batches(int64_t steps) {
    auto arrays = read_npz(std::string(TESSERA_TEST_DATA) + "/models/steps/mlp-sgd/losses.npz");
    arrays.erase("losses");
    for (auto& [name, array] : arrays) {
      array.bytes = array.bytes / static_cast<size_t>(array.dims[0]) * static_cast<size_t>(steps);
      array.dims[0] = steps;
    }
    write_npz(folder_ / "batches.npz", {{"x", arrays.at("x")}, {"y", arrays.at("y")}});
    return "--inputs " + (folder_ / "batches.npz").string() + " --steps " + std::to_string(steps) + " ";
  }

  std::string at(const char* name) { return (folder_ / name).string(); }
};

TEST_F(StepsCommand, stack_their_outputs_and_go_on_from_saved_states) {
  const std::string mesh = "--mesh dp=2 --store '*=[dp,...]' ";
  const Ran ran = tessera("run " + step_ + states_ + mesh + batches(6) + "--outputs " + at("six.npz") +
                          " --save-states " + at("after.npz"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("ran 6 steps, the fastest in "), HasSubstr("wrote " + at("six.npz")),
                             HasSubstr("wrote " + at("after.npz"))));
  const Tensor losses = read_npz(at("six.npz")).at("loss");
  EXPECT_EQ(losses.dims, Dims{6});
  const Tensor wanted = read_npz(std::string(TESSERA_TEST_DATA) + "/models/steps/mlp-sgd/losses.npz").at("losses");
  for (int i = 0; i < 6; ++i) EXPECT_NEAR(losses.as<float>()[i], wanted.as<float>()[i], 1e-5) << i;
  EXPECT_EQ(read_npz(at("after.npz")).size(), 4u) << "what changes, under the names of the initializers";
  EXPECT_EQ(read_npz(at("after.npz")).at("up.weight").dims, (Dims{256, 64}));
  // Three steps, and three more on another mesh, from the states that the first three saved; a batch repeats.
  const std::string one = "--inputs " + at("batches.npz") + " ";
  auto arrays = read_npz(at("batches.npz"));
  for (auto& [name, array] : arrays) {
    array.dims.erase(array.dims.begin());
    array.bytes /= 6;
  }
  write_npz(folder_ / "one.npz", {arrays.begin(), arrays.end()});
  const std::string repeated = "--inputs " + at("one.npz") + " ";
  EXPECT_EQ(tessera("run " + step_ + states_ + repeated + "--steps 3 --save-states " + at("three.npz")).code, 0);
  EXPECT_EQ(tessera("run " + step_ + states_ + mesh + repeated + "--steps 3 --load-states " + at("three.npz") +
                    " --save-states " + at("again.npz"))
                .code,
            0);
  EXPECT_EQ(tessera("run " + step_ + states_ + repeated + "--steps 6 --save-states " + at("whole.npz")).code, 0);
  const auto again = read_npz(at("again.npz")), whole = read_npz(at("whole.npz"));
  for (const auto& [name, state] : whole)
    for (int64_t i = 0; i < state.count(); ++i)
      ASSERT_NEAR(again.at(name).as<float>()[i], state.as<float>()[i], 1e-6) << name;
}

TEST_F(StepsCommand, tell_of_each_state_how_it_is_stored_and_used) {
  const json run = parsed("run " + step_ + states_ + "--mesh dp=2 --store '*.weight=[dp,...]' " + batches(2));
  EXPECT_EQ(run.at("steps"), 2);
  json weight, bias;
  for (const json& state : run.at("states")) {
    if (state.at("name") == "up.weight") weight = state;
    if (state.at("name") == "up.bias") bias = state;
  }
  EXPECT_EQ(weight.at("storage"), "[256{dp}, -]");
  EXPECT_EQ(weight.at("bytes"), 256 * 64 * 4 / 2);
  EXPECT_EQ(weight.at("changes"), true);
  EXPECT_EQ(weight.at("shape"), json({256, 64}));
  EXPECT_EQ(bias.at("storage"), "[-]");
  EXPECT_EQ(bias.at("compute"), "[-]");
  EXPECT_EQ(bias.at("bytes"), 256 * 4);
}

TEST_F(StepsCommand, are_written_proved_and_run_from_what_was_written) {
  for (const char* form : {"mpmd", "spmd", "parallel-for"})
    for (const char* lower : {"collectives", "primitives"}) {
      const std::string out = at((std::string(form) + lower).c_str());
      const Ran shard = tessera("shard " + step_ + states_ + "--mesh dp=2 --store '*=[dp,...]' --form " + form +
                                " --lower " + lower + " -o " + out);
      ASSERT_EQ(shard.code, 0) << shard.err;
      EXPECT_EQ(tessera("check " + out).code, 0);
      const Ran ran = tessera("run " + out + " " + batches(4) + "--outputs " + at("losses.npz") + " --save-states " +
                              at("after.npz"));
      ASSERT_EQ(ran.code, 0) << ran.err;
      const Tensor losses = read_npz(at("losses.npz")).at("loss");
      const Tensor wanted = read_npz(std::string(TESSERA_TEST_DATA) + "/models/steps/mlp-sgd/losses.npz").at("losses");
      for (int i = 0; i < 4; ++i) EXPECT_NEAR(losses.as<float>()[i], wanted.as<float>()[i], 1e-5) << form << lower;
      EXPECT_EQ(read_npz(at("after.npz")).count("up.weight"), 1u);
    }
}

TEST_F(StepsCommand, are_verified_with_the_states_that_they_leave) {
  const json verified = parsed("verify " + step_ + states_ + "--mesh dp=2,tp=2 --store '*=[dp,...]'");
  EXPECT_EQ(verified.at("pass"), true);
  EXPECT_EQ(verified.at("outputs").size(), 5u) << "the loss and four states";
  EXPECT_EQ(verified.at("outputs")[0].at("name"), "loss");
}

// A weight that is held in pieces is loaded and saved whole, on any mesh, by threads and by processes.
TEST_F(StepsCommand, save_divided_states_as_the_model_has_them) {
  testing_io::put(folder_ / "step.onnxtxt", test::exact_step());
  const std::string step = at("step.onnxtxt") + " " + states_;
  const auto ones = [](Dims dims, int64_t period) {
    Tensor tensor = Tensor::zeros(DType::float32, dims);
    auto* elements = reinterpret_cast<float*>(tensor.mutable_data());
    for (int64_t i = 0; i < tensor.count(); ++i) elements[i] = static_cast<float>(i % period % 3) - 1;
    return tensor;
  };
  write_npz(folder_ / "batches.npz", {{"x", ones({3, 2, 4, 12}, 7)}, {"y", ones({3, 2, 4, 12}, 11)}});
  std::map<std::string, Tensor> begin = {{"t", Tensor::zeros(DType::float32, {})}};
  for (const auto& [name, dims] :
       std::map<std::string, Dims>{{"e", {12}}, {"w", {12, 24}}, {"b", {24}}, {"o", {12, 12}}})
    for (const char* of : {"", "m"}) begin[of + name] = ones(dims, *of ? 5 : 13);
  write_npz(folder_ / "begin.npz", {begin.begin(), begin.end()});
  const std::string steps = "--inputs " + at("batches.npz") + " --steps 3 ";
  const auto saved = [&](const std::string& what, const char* file) {
    const Ran ran = tessera("run " + what + steps + "--load-states " + at("begin.npz") + " --save-states " + at(file));
    EXPECT_EQ(ran.code, 0) << what << ran.err;
    return ran.code == 0 ? contents(at(file)) : "";
  };
  const std::string wanted = saved(step + "--store 'w=[-,-]' ", "whole.npz");
  ASSERT_NE(wanted, "");
  EXPECT_EQ(read_npz(at("whole.npz")).size(), 9u);
  EXPECT_EQ(saved(step, "one.npz"), wanted);
  EXPECT_EQ(saved(step + "--mesh tp=2 --preset megatron ", "tp.npz"), wanted);
  EXPECT_EQ(saved(step + "--mesh tp=2 --spawn 2 ", "spawned.npz"), wanted);
  EXPECT_EQ(saved(step + "--mesh dp=2,tp=2 --store '*=[dp,...]' ", "both.npz"), wanted);
  for (const char* form : {"mpmd", "spmd", "parallel-for"}) {
    const std::string out = at(form);
    ASSERT_EQ(tessera("shard " + step + "--mesh tp=2 --form " + form + " -o " + out).code, 0);
    EXPECT_EQ(tessera("check " + out).code, 0);
    EXPECT_EQ(saved(out + " ", "written.npz"), wanted) << form;
  }
  const json run = parsed("run " + step + "--mesh tp=2 " + steps);
  json weight;
  for (const json& state : run.at("states"))
    if (state.at("name") == "w") weight = state;
  EXPECT_EQ(weight.at("shape"), json({12, 24}));
  EXPECT_EQ(weight.at("bytes"), 12 * 24 * 4 / 2);
  EXPECT_EQ(weight.at("changes"), true);
  ASSERT_EQ(weight.at("pieces").size(), 3u);
  EXPECT_EQ(weight.at("pieces")[1].at("begin"), json({0, 12}));
  EXPECT_EQ(weight.at("pieces")[1].at("shape"), json({12, 6}));
  EXPECT_EQ(parsed("verify " + step + "--mesh tp=2 ").at("pass"), true);
}

TEST_F(StepsCommand, refuse_what_cannot_be) {
  EXPECT_THAT(mistake("run " + step_ + states_ + batches(6) + "--repeat 2"),
              HasSubstr("--repeat and --steps both say how often to run"));
  (void)batches(6);
  EXPECT_THAT(mistake("run " + step_ + states_ + "--steps 4 --inputs " + at("batches.npz")),
              HasSubstr("input 'x' has arrays for 6 steps, but --steps is 4; give as many of both"));
  EXPECT_THAT(mistake("run " + model_ + " --quiet --save-states " + at("s.npz")),
              HasSubstr("has no states that change, so that there are none to load or save; name them with --state"));
  EXPECT_THAT(mistake("run " + step_ + "--state '*=after.*'"), HasSubstr("pairs no initializer with an output"));
  EXPECT_THAT(mistake("run " + step_ + states_ + "--mesh dp=2 --store '*=[tp,...]'"), HasSubstr("tp"));
  EXPECT_THAT(mistake("run " + step_ + states_ + "--mesh dp=2 --store 'nope=[dp,...]'"),
              HasSubstr("'nope' matches no state or parameter of the model"));
  EXPECT_THAT(mistake("run " + step_ + states_ + "--mesh dp=2 --store '*=dp'"), HasSubstr("[store] '*=dp'"));
  EXPECT_THAT(mistake("run " + step_ + states_ + "--dtype bf16"), HasSubstr("each step would round it"));
  write_npz(folder_ / "few.npz", {{"up.bias", Tensor::zeros(DType::float32, {256})}});
  EXPECT_THAT(mistake("run " + step_ + states_ + "--quiet --load-states " + at("few.npz")),
              HasSubstr("few.npz has no array for 3 of the states that change: 'up.weight'"));
  write_npz(folder_ / "more.npz", {{"up", Tensor::zeros(DType::float32, {256})}});
  EXPECT_THAT(mistake("run " + step_ + states_ + "--quiet --load-states " + at("more.npz")),
              HasSubstr("has no array for 4 of the states that change"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "s.npz"));
  // Nothing is left of states that could not be saved.
  EXPECT_THAT(mistake("run " + step_ + states_ + "--save-states " + at("no/such/folder.npz")), HasSubstr("no/such"));
}

}  // namespace
}  // namespace tessera
