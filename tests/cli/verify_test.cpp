// The command verify, as a person would run it.
#include <limits>

#include "cli/command_line.h"

namespace tessera {
namespace {

TEST_F(CommandLine, verify_passes_on_any_mesh) {
  for (const char* mesh : {"tp=1", "tp=2", "tp=5", "dp=2,tp=2"}) {
    json object = parsed("verify " + model_ + " --mesh " + mesh);
    EXPECT_EQ(object["pass"], true) << mesh;
    EXPECT_EQ(object["outputs"][0]["name"], "y");
    EXPECT_LE(object["outputs"][0]["max_rel"], 2e-5);
    EXPECT_TRUE(object["first_diverging"].is_null());
  }
}

TEST_F(CommandLine, verify_knows_the_precision_of_16_bits) {
  for (const std::string type : {"bfloat16", "float16"})
    EXPECT_EQ(parsed("verify " + model_ + " --mesh tp=2 --dtype " + type)["pass"], true) << type;
  EXPECT_THAT(mistake("verify " + model_ + " --mesh tp=2 --dtype int8"), HasSubstr("bfloat16"));
}

TEST_F(CommandLine, verify_wants_an_expectation_of_every_output) {
  std::string in = npz("in.npz", "x", test::ramp({2, 8})), other = npz("other.npz", "z", test::ramp({2, 8}));
  EXPECT_THAT(mistake("verify " + model_ + " --mesh tp=2 --inputs " + in + " --expected " + other),
              HasSubstr("holds no 'y'"));
}

TEST_F(CommandLine, verify_says_no_by_code_1) {
  std::string in = npz("in.npz", "x", test::ramp({2, 8})), wrong = npz("wrong.npz", "y", test::ramp({2, 8}));
  std::string words = "verify " + model_ + " --mesh tp=2 --inputs " + in + " --expected " + wrong;
  Ran ran = tessera(words);
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.out, HasSubstr("FAIL"));
  json object = parsed(words, 1);
  EXPECT_EQ(object["pass"], false);
  EXPECT_GT(object["outputs"][0]["max_abs"], 0.1);
  EXPECT_EQ(tessera(words + " --atol 1000").code, 0);
}

TEST_F(CommandLine, verify_compares_the_tensors_that_it_is_told) {
  const std::string words = "verify " + model_ + " --mesh tp=2 --outputs ";
  json object = parsed(words + "hidden,y");
  EXPECT_EQ(object["outputs"].size(), 2u);
  EXPECT_EQ(object["outputs"][0]["name"], "hidden");
  std::string in = npz("in.npz", "x", test::ramp({2, 8})), out = (folder_ / "out.npz").string();
  ASSERT_EQ(tessera("run " + model_ + " --inputs " + in + " --fetch active --outputs " + out).code, 0);
  EXPECT_EQ(read_npz(out).size(), 1u);
  EXPECT_EQ(read_npz(out).at("active").dims, (Dims{2, 32}));
  EXPECT_EQ(tessera(words + "active --inputs " + in + " --expected " + out).code, 0);
  EXPECT_THAT(mistake(words + "hiden"),
              HasSubstr("no node of the model makes a tensor 'hiden'; did you mean 'hidden'?"));
  EXPECT_THAT(mistake(words + "up"), HasSubstr("no node of the model makes a tensor 'up'"));
  EXPECT_THAT(mistake(words + "y,y"), HasSubstr("'y' is named twice"));
  const std::string written = (folder_ / "written").string();
  ASSERT_EQ(tessera("shard " + model_ + " --mesh tp=2 -o " + written).code, 0);
  EXPECT_THAT(mistake("run " + written + " --inputs " + in + " --fetch y"), HasSubstr("leave out --fetch"));
}

// The test's own Python: keeps the command's files, and returns `answers`.
class AgainstOnnxRuntime : public CommandLine {
 protected:
  Ran verify(const std::string& python_text, const std::string& words = "") {
    const std::string python = (folder_ / "python").string();
    testing_io::put(python, "#!/bin/sh\n" + python_text);
    std::filesystem::permissions(python, std::filesystem::perms::owner_all);
    return test::run_command(
        "TESSERA_PYTHON=" + python + " " + TESSERA_BINARY + " verify " + model_ + " --against onnxruntime " + words,
        folder_);
  }
  std::string kept_ = (folder_ / "kept").string();  // what the command handed over
};

TEST_F(AgainstOnnxRuntime, compares_with_what_it_gives) {
  const std::string in = npz("in.npz", "x", test::ramp({2, 8})), out = (folder_ / "out.npz").string();
  ASSERT_EQ(tessera("run " + model_ + " --inputs " + in + " --outputs " + out).code, 0);
  const std::string answer = "cp -r $3 " + kept_ + "\ncp " + out + " $3/outputs.npz\n";
  for (const char* mesh : {"", "--mesh tp=2"}) {
    std::filesystem::remove_all(kept_);
    Ran ran = verify(answer, std::string(mesh) + " --inputs " + in);
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_THAT(ran.out, AllOf(HasSubstr("against onnxruntime"), HasSubstr("\npass\n")));
  }
  EXPECT_EQ(read_npz(kept_ + "/inputs.npz").at("x").dims, (Dims{2, 8}));
  EXPECT_EQ(contents(kept_ + "/names.txt"), std::string("y\0", 2));
  EXPECT_EQ(contents(kept_ + "/added.txt"), "");
  Ran differs = verify("cp " + npz("wrong.npz", "y", test::ramp({2, 8})) + " $3/outputs.npz\n", "--inputs " + in);
  EXPECT_EQ(differs.code, 1) << differs.err;
  EXPECT_THAT(differs.out, HasSubstr("FAIL"));
}

TEST_F(AgainstOnnxRuntime, fetches_tensors_that_are_no_outputs) {
  const std::string in = npz("in.npz", "x", test::ramp({2, 8})), out = (folder_ / "out.npz").string();
  ASSERT_EQ(tessera("run " + model_ + " --inputs " + in + " --fetch hidden,y --outputs " + out).code, 0);
  Ran ran = verify("cp -r $3 " + kept_ + "\ncp " + out + " $3/outputs.npz\n", "--outputs hidden,y --inputs " + in);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(contents(kept_ + "/names.txt"), std::string("hidden\0y\0", 9));
  EXPECT_EQ(contents(kept_ + "/added.txt"), std::string("hidden\0", 7));
}

TEST_F(AgainstOnnxRuntime, says_what_is_missing_and_how_to_mend_it) {
  Ran ran = verify("printf 'import\\nNo module named onnxruntime' > $3/problem.txt\nexit 1\n");
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("/python' has no onnxruntime (No module named onnxruntime); install it there"),
                             HasSubstr("-m pip install onnxruntime"), HasSubstr("TESSERA_PYTHON")));
  ran = verify("printf 'run\\nno kernel for Frobnicate' > $3/problem.txt\nexit 1\n");
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("it does not run '" + model_ + "': no kernel for Frobnicate"));
  ran = verify("echo first >&2\necho last >&2\nexit 5\n");
  EXPECT_EQ(ran.code, 3);
  EXPECT_THAT(ran.err, HasSubstr("ended with exit code 5 without an answer: last"));
  ran = test::run_command(
      "TESSERA_PYTHON=/nowhere/python " + std::string(TESSERA_BINARY) + " verify " + model_ + " --against onnxruntime",
      folder_);
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("'/nowhere/python' cannot be started (No such file or directory)"));
  EXPECT_THAT(mistake("verify " + model_ + " --against tensorflow"), HasSubstr("onnxruntime"));
  EXPECT_THAT(mistake("verify " + model_ + " --against onnxruntime --expected x.npz"), HasSubstr("--expected"));
}

// A query that sees no key has NaN there and zeros here; the others are compared.
TEST_F(AgainstOnnxRuntime, counts_rows_without_a_key_apart) {
  model_ = write_model(folder_, R"(
attend (float[1, 1, 2, 4] q, float[1, 1, 2, 4] k, float[1, 1, 2, 4] v, float[1, 1, 2, 2] mask)
    => (float[1, 1, 2, 4] y) {
  turned = Transpose <perm = [0, 1, 3, 2]> (k)
  products = MatMul (q, turned)
  scores = Add (products, mask)
  weights = Softmax <axis = -1> (scores)
  y = MatMul (weights, v)
})");
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Tensor rows = test::ramp({1, 1, 2, 4});
  const auto scores = [](float last) {
    return Tensor::of<float>(DType::float32, {1, 1, 2, 2}, {1, 2, -kInfinity, last});
  };
  const std::string in = (folder_ / "in.npz").string(), out = (folder_ / "out.npz").string();
  write_npz(in, {{"q", rows}, {"k", rows}, {"v", rows}, {"mask", scores(-kInfinity)}});
  ASSERT_EQ(tessera("run " + model_ + " --inputs " + in + " --outputs " + out).code, 0);
  const Tensor own = read_npz(out).at("y");
  std::vector<float> elements(own.as<float>().begin(), own.as<float>().end());
  ASSERT_EQ(elements[4], 0);
  std::fill(elements.begin() + 4, elements.end(), std::numeric_limits<float>::quiet_NaN());
  const std::string answer = npz("y.npz", "y", Tensor::of(DType::float32, own.dims, elements));
  const auto python = [&](const std::string& scores_file) {
    return "if grep -q scores $3/names.txt; then cp " + scores_file + " $3/outputs.npz; else cp " + answer +
           " $3/outputs.npz; fi\n";
  };
  const std::string hidden = npz("hidden.npz", "scores", scores(-kInfinity));
  Ran ran = verify(python(hidden), "--inputs " + in);
  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("y: 4 of 8 elements are NaN in onnxruntime and numbers here, since rows of Softmax "
                                 "producing 'weights' see no key"));
  ran = verify(python(npz("seen.npz", "scores", scores(3))), "--inputs " + in);
  EXPECT_EQ(ran.code, 1) << "NaN for another reason";
  elements[0] += 1;
  npz("y.npz", "y", Tensor::of(DType::float32, own.dims, elements));
  ran = verify(python(hidden), "--inputs " + in);
  EXPECT_EQ(ran.code, 1) << "other elements differ";
}

// If the machine has it.
TEST_F(AgainstOnnxRuntime, agrees_with_the_real_one) {
  if (std::system("python3 -c 'import onnxruntime' >/dev/null 2>&1") != 0) GTEST_SKIP() << "python3 has no onnxruntime";
  for (const std::string name : {"gpt2", "bert", "mlp"}) {
    const std::string words =
        "verify " + std::string(TESSERA_TEST_DATA) + "/models/" + name + "/model.onnx --against onnxruntime";
    EXPECT_EQ(tessera(words).code, 0) << name;
    EXPECT_EQ(tessera(words + " --mesh tp=2 --first-diverging").code, 0) << name;
  }
}

TEST_F(CommandLine, verify_says_what_is_not_finite) {
  const std::string model = write_model(folder_, R"(
logs (float[batch, 8] x) => (float[batch, 8] y) { y = Log (x) })");
  std::string in = npz("in.npz", "x", Tensor::zeros(DType::float32, {2, 8}));
  std::string words = "verify " + model + " --mesh dp=2 --inputs " + in;
  Ran ran = tessera(words);
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.out, HasSubstr("y: 16 of 16 elements are NaN or infinite, as expected; no number was compared"));
  EXPECT_EQ(parsed(words)["outputs"][0]["not_finite"], 16);
  std::string other = npz("other.npz", "y", test::ramp({2, 8}));
  ran = tessera(words + " --expected " + other + " --atol 1000");
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.out, HasSubstr("y: 16 of 16 elements are NaN or infinite in one answer only, the first at [0, 0]: " +
                                 std::string("expected -0.75, got -inf")));
}

}  // namespace
}  // namespace tessera
