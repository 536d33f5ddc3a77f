// Initializers that the file lists as inputs, too: inputs with a default, which every way to feed values overrides.
#include "api/default_input_model.h"
#include "cli/command_line.h"
#include "tessera/onnx/tensor_proto.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class DefaultInputs : public CommandLine {
 protected:
  DefaultInputs() { test::write_default_inputs(folder_, 10); }

  std::string at(const char* name) const { return (folder_ / name).string(); }

  // The answer of a run to the arrays of a file or folder.
  Tensor run(const std::string& inputs, const std::string& words = "") {
    const Ran ran =
        tessera("run " + model_ + " --quiet --inputs " + at(inputs.c_str()) + " --outputs " + at("out.npz") + words);
    EXPECT_EQ(ran.code, 0) << ran.err;
    return read_npz(at("out.npz")).at("y");
  }
};

TEST_F(DefaultInputs, are_given_in_files) {
  for (const Tensors& given : test::choices_of_default_inputs()) {
    write_npz(folder_ / "in.npz", {given.begin(), given.end()});
    for (const char* mesh : {"", " --mesh tp=2", " --mesh dp=2 --spawn 2"})
      test::expect_answer_of_default_inputs(run("in.npz", mesh), given);
  }
}

TEST_F(DefaultInputs, are_given_in_folders_by_name_and_by_number) {
  const Tensors given = {
      {"x", test::counted_from(-1, {4, 8})}, {"w", test::counted_from(-2, {8, 8})}, {"b", test::counted_from(1, {8})}};
  for (bool named : {true, false}) {
    fs::create_directories(folder_ / "set");
    int number = 0;
    for (const char* name : {"x", "w", "b"})
      testing_io::put(folder_.path() / "set" / ("input_" + std::to_string(number++) + ".pb"),
                      write_tensor_bytes(given.at(name), named ? name : ""));
    test::expect_answer_of_default_inputs(run("set", " --mesh tp=2"), given);
  }
}

TEST_F(DefaultInputs, are_given_to_other_commands) {
  const Tensors given = test::choices_of_default_inputs().back();
  write_npz(folder_ / "in.npz", {given.begin(), given.end()});
  EXPECT_EQ(parsed("verify " + model_ + " --mesh tp=2 --inputs " + at("in.npz"))["pass"], true);
  EXPECT_EQ(tessera("bench " + model_ + " --mesh tp=2 --iterations 2 --inputs " + at("in.npz")).code, 0);
  const std::vector<float> wanted = test::answer_of_default_inputs(given);
  write_npz(folder_ / "expected.npz", {{"y", Tensor::of(DType::float32, {4, 8}, wanted)}});
  EXPECT_EQ(tessera("verify " + model_ + " --inputs " + at("in.npz") + " --expected " + at("expected.npz")).code, 0);
}

// A slice for each step.
TEST_F(DefaultInputs, may_differ_from_step_to_step) {
  const Tensor x = test::counted_from(-1, {2, 4, 8});
  write_npz(folder_ / "in.npz", {{"x", x}, {"k", Tensor::of<float>(DType::float32, {2, 1}, {3, -1})}});
  const Tensor y = run("in.npz", " --steps 2");
  for (size_t step = 0; step < 2; ++step) {
    const auto slice = [&](const Tensor& all) {
      const auto begin = all.as<float>().begin() + static_cast<std::ptrdiff_t>(step * 32);
      return Tensor::of(DType::float32, {4, 8}, std::vector<float>(begin, begin + 32));
    };
    const Tensor k = Tensor::of<float>(DType::float32, {1}, {step == 0 ? 3.F : -1.F});
    test::expect_answer_of_default_inputs(slice(y), {{"x", slice(x)}, {"k", k}});
  }
}

// What the data give does not train, and keeps its default in the file that is written.
TEST_F(DefaultInputs, are_fed_in_training) {
  write_npz(folder_ / "data.npz", {{"x", test::counted_from(-1, {3, 4, 8})},
                                   {"labels", test::counted_from(0, {3, 4, 8})},
                                   {"k", Tensor::of<float>(DType::float32, {3, 1}, {0.5, 0.25, 0.125})}});
  const std::string words = "train " + model_ + " --loss mse --optimizer sgd --lr 1e-3 --data " + at("data.npz");
  const json one = parsed(words + " --save-final " + at("after.npz")), two = parsed(words + " --mesh tp=2");
  EXPECT_EQ(one["losses"].size(), 3u);
  for (size_t step = 0; step < 3; ++step)
    EXPECT_NEAR(one["losses"][step].get<double>(), two["losses"][step].get<double>(), 1e-4);
  const auto after = read_npz(at("after.npz"));
  EXPECT_TRUE(after.contains("w") && after.contains("b") && !after.contains("k"));
  ASSERT_EQ(tessera(words + " --save-final " + at("after.onnx")).code, 0);
  onnx::ModelProto written;
  written.ParseFromString(contents(at("after.onnx")));
  EXPECT_EQ(written.graph().initializer_size(), 3);
  EXPECT_EQ(written.graph().input_size(), 4);
}

TEST_F(DefaultInputs, are_constants_below_ir_version_4) {
  test::write_default_inputs(folder_, 3);
  write_npz(folder_ / "in.npz", {{"x", test::counted_from(-1, {4, 8})}, {"k", test::counted_from(5, {1})}});
  EXPECT_THAT(mistake("run " + model_ + " --inputs " + at("in.npz")), HasSubstr("'k'"));
}

}  // namespace
}  // namespace tessera
