// Initializers that the file lists as inputs, too: inputs with a default, which every way to feed values overrides.
#include "tessera/default_inputs.h"

#include "cli/command_line.h"
#include "onnx.pb.h"
#include "tessera/onnx/tensor_proto.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// y = (x · w + b) · k, where w, b and k have defaults: 8 by 8, 8, and one number.
class DefaultInputs : public CommandLine {
 protected:
  DefaultInputs() { write(kFirstOverridable); }

  static constexpr int64_t kFirstOverridable = 4;

  std::string at(const char* name) const { return (folder_ / name).string(); }

  void write(int64_t ir_version) {
    write_model(folder_, R"(
<ir_version: 10, opset_import: ["" : 17]>
g (float[batch, 8] x) => (float[batch, 8] y) <float[8, 8] w, float[8] b, float[1] k = {2.0}> {
  p = MatMul (x, w)
  s = Add (p, b)
  y = Mul (s, k)
})");
    onnx::ModelProto model;
    model.ParseFromString(contents(folder_ / "model.onnx"));
    model.set_ir_version(ir_version);
    for (const auto& tensor : model.graph().initializer()) {
      auto& input = *model.mutable_graph()->add_input();
      input.set_name(tensor.name());
      auto& type = *input.mutable_type()->mutable_tensor_type();
      type.set_elem_type(tensor.data_type());
      for (int64_t dim : tensor.dims()) type.mutable_shape()->add_dim()->set_dim_value(dim);
    }
    testing_io::put(folder_ / "model.onnx", model.SerializeAsString());
  }

  static Tensor counted(Dims dims, float first) {
    Tensor tensor = Tensor::zeros(DType::float32, std::move(dims));
    auto* elements = reinterpret_cast<float*>(tensor.mutable_data());
    for (int64_t i = 0; i < tensor.count(); ++i) elements[i] = first + static_cast<float>(i % 5);
    return tensor;
  }

  // What the definition gives for these arrays.
  std::vector<float> answer(const Tensors& given) const {
    Tensors all = given;
    for (const auto& [name, value] : defaults()) all.emplace(name, value);
    const auto x = all.at("x").as<float>(), w = all.at("w").as<float>(), b = all.at("b").as<float>();
    std::vector<float> y(x.size());
    for (size_t row = 0; row * 8 < x.size(); ++row)
      for (size_t c = 0; c < 8; ++c) {
        float sum = b[c];
        for (size_t i = 0; i < 8; ++i) sum += x[row * 8 + i] * w[i * 8 + c];
        y[row * 8 + c] = sum * all.at("k").as<float>()[0];
      }
    return y;
  }

  static Tensors defaults() {
    return {{"w", test::ramp({8, 8})}, {"b", test::ramp({8})}, {"k", Tensor::of<float>(DType::float32, {1}, {2})}};
  }

  void expect_answer(const Tensors& outputs, const Tensors& given) const {
    const std::vector<float> wanted = answer(given);
    const auto made = outputs.at("y").as<float>();
    ASSERT_EQ(made.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(made[i], wanted[i], 1e-4 * (1 + std::abs(wanted[i]))) << i;
  }

  // Every set of the three, given beside x.
  std::vector<Tensors> choices() const {
    const Tensors other = {{"w", counted({8, 8}, -2)}, {"b", counted({8}, 1)}, {"k", counted({1}, 5)}};
    std::vector<Tensors> all;
    for (unsigned set = 0; set < 8; ++set) {
      Tensors given = {{"x", counted({4, 8}, -1)}};
      unsigned bit = 1;
      for (const auto& [name, value] : other) {
        if (set & bit) given.emplace(name, value);
        bit *= 2;
      }
      all.push_back(std::move(given));
    }
    return all;
  }
};

TEST_F(DefaultInputs, are_given_to_a_session) {
  const Model model = Model::load(model_);
  EXPECT_EQ(default_inputs(model).size(), 3u);
  EXPECT_EQ(model.inputs().size(), 1u);
  for (const Tensors& given : choices())
    for (const char* mesh : {"one=1", "tp=2", "tp=3", "dp=2", "dp=2,tp=2", "fsdp=2"}) {
      std::vector<std::string> names;
      for (const auto& [name, value] : given)
        if (name != "x") names.push_back(name);
      Plan plan;
      if (std::string(mesh) == "one=1") plan.presets = "none";
      Session session(compile(with_inputs(model, names), Mesh::parse(mesh), plan));
      expect_answer(session.run(given), given);
    }
  EXPECT_THROW(with_inputs(model, {"x"}), Error);
  EXPECT_THROW(with_inputs(model, {"k", "k"}), Error);
}

TEST_F(DefaultInputs, are_given_in_files) {
  for (const Tensors& given : choices()) {
    write_npz(folder_ / "in.npz", {given.begin(), given.end()});
    const std::string words =
        "run " + model_ + " --inputs " + at("in.npz") + " --outputs " + at("out.npz") + " --quiet";
    for (const char* mesh : {"", " --mesh tp=2", " --mesh dp=2 --spawn 2"}) {
      const Ran ran = tessera(words + mesh);
      ASSERT_EQ(ran.code, 0) << ran.err;
      expect_answer(read_npz(at("out.npz")), given);
    }
  }
}

TEST_F(DefaultInputs, are_given_in_folders_by_name_and_by_number) {
  for (bool named : {true, false}) {
    fs::create_directories(folder_ / "set");
    const Tensors given = {{"x", counted({4, 8}, -1)}, {"w", counted({8, 8}, -2)}, {"b", counted({8}, 1)}};
    int number = 0;
    for (const char* name : {"x", "w", "b"})
      testing_io::put(folder_.path() / "set" / ("input_" + std::to_string(number++) + ".pb"),
                      write_tensor_bytes(given.at(name), named ? name : ""));
    const Ran ran = tessera("run " + model_ + " --mesh tp=2 --inputs " + at("set") + " --outputs " + at("out.npz"));
    ASSERT_EQ(ran.code, 0) << ran.err;
    expect_answer(read_npz(at("out.npz")), given);
  }
}

TEST_F(DefaultInputs, are_given_to_other_commands) {
  const Tensors given = choices().back();
  write_npz(folder_ / "in.npz", {given.begin(), given.end()});
  EXPECT_EQ(parsed("verify " + model_ + " --mesh tp=2 --inputs " + at("in.npz"))["pass"], true);
  EXPECT_EQ(tessera("bench " + model_ + " --mesh tp=2 --iterations 2 --inputs " + at("in.npz")).code, 0);
  std::vector<float> wanted = answer(given);
  write_npz(folder_ / "expected.npz", {{"y", Tensor::of(DType::float32, {4, 8}, wanted)}});
  EXPECT_EQ(tessera("verify " + model_ + " --inputs " + at("in.npz") + " --expected " + at("expected.npz")).code, 0);
}

// A slice for each step.
TEST_F(DefaultInputs, may_differ_from_step_to_step) {
  write_npz(folder_ / "in.npz",
            {{"x", counted({2, 4, 8}, -1)}, {"k", Tensor::of<float>(DType::float32, {2, 1}, {3, -1})}});
  const Ran ran = tessera("run " + model_ + " --steps 2 --inputs " + at("in.npz") + " --outputs " + at("out.npz"));
  ASSERT_EQ(ran.code, 0) << ran.err;
  const Tensor y = read_npz(at("out.npz")).at("y");
  const Tensor x = counted({2, 4, 8}, -1);
  for (size_t step = 0; step < 2; ++step) {
    const std::vector<float> xs(x.as<float>().begin() + static_cast<std::ptrdiff_t>(step * 32),
                                x.as<float>().begin() + static_cast<std::ptrdiff_t>(step * 32 + 32));
    const std::vector<float> wanted = answer({{"x", Tensor::of(DType::float32, {4, 8}, xs)},
                                              {"k", Tensor::of<float>(DType::float32, {1}, {step == 0 ? 3.F : -1.F})}});
    for (size_t i = 0; i < 32; ++i) EXPECT_NEAR(y.as<float>()[step * 32 + i], wanted[i], 1e-3);
  }
}

// What the data give does not train, and keeps its default in the file that is written.
TEST_F(DefaultInputs, are_fed_in_training) {
  write_npz(folder_ / "data.npz", {{"x", counted({3, 4, 8}, -1)},
                                   {"labels", counted({3, 4, 8}, 0)},
                                   {"k", Tensor::of<float>(DType::float32, {3, 1}, {0.5, 0.25, 0.125})}});
  const std::string words = "train " + model_ + " --loss mse --optimizer sgd --lr 1e-3 --data " + at("data.npz");
  const json one = parsed(words + " --save-final " + at("after.npz")), two = parsed(words + " --mesh tp=2");
  EXPECT_EQ(one["losses"].size(), 3u);
  for (size_t step = 0; step < 3; ++step)
    EXPECT_NEAR(one["losses"][step].get<double>(), two["losses"][step].get<double>(), 1e-4);
  const auto after = read_npz(at("after.npz"));
  EXPECT_TRUE(after.contains("w") && after.contains("b") && !after.contains("k"));
  ASSERT_EQ(tessera(words + " --save-final " + at("after.onnx")).code, 0);
  EXPECT_EQ(default_inputs(Model::load(at("after.onnx"))).size(), 3u);
}

TEST_F(DefaultInputs, are_constants_below_ir_version_4) {
  write(3);
  EXPECT_TRUE(default_inputs(Model::load(model_)).empty());
  write_npz(folder_ / "in.npz", {{"x", counted({4, 8}, -1)}, {"k", counted({1}, 5)}});
  EXPECT_THAT(mistake("run " + model_ + " --inputs " + at("in.npz")), HasSubstr("'k'"));
}

}  // namespace
}  // namespace tessera
