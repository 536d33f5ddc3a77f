#include "tessera/default_inputs.h"

#include <gmock/gmock.h>

#include "api/default_input_model.h"

namespace tessera::test {
namespace {

class DefaultInputs : public testing::Test {
 protected:
  Model model(int64_t ir_version) {
    write_default_inputs(folder_, ir_version);
    return Model::load(folder_ / "model.onnx");
  }

  TemporaryFolder folder_;
};

TEST_F(DefaultInputs, AreGivenOnEveryMesh) {
  const Model model = this->model(4);
  EXPECT_EQ(default_inputs(model).size(), 3u);
  EXPECT_EQ(model.inputs().size(), 1u);
  for (const Tensors& given : choices_of_default_inputs())
    for (const char* mesh : {"one=1", "tp=2", "tp=3", "dp=2", "dp=2,tp=2", "fsdp=2"}) {
      std::vector<std::string> names;
      for (const auto& [name, value] : given)
        if (name != "x") names.push_back(name);
      Plan plan;
      if (std::string(mesh) == "one=1") plan.presets = "none";
      Session session(compile(with_inputs(model, names), Mesh::parse(mesh), plan));
      expect_answer_of_default_inputs(session.run(given).at("y"), given);
    }
}

TEST_F(DefaultInputs, AreNoOthers) {
  const Model model = this->model(10);
  EXPECT_THROW(with_inputs(model, {"x"}), Error);
  EXPECT_THAT([&] { with_inputs(model, {"none"}); },
              testing::ThrowsMessage<Error>(testing::HasSubstr(
                  "'none' is not an initializer that the model also lists as an input, so it cannot be given")));
  EXPECT_THROW(with_inputs(model, {"k", "k"}), Error);
  EXPECT_EQ(default_inputs(with_inputs(model, {"k"})).size(), 2u);
}

TEST_F(DefaultInputs, AreConstantsBelowIrVersion4) {
  EXPECT_TRUE(default_inputs(model(3)).empty());
  EXPECT_EQ(default_inputs(model(4)).size(), 3u);
}

}  // namespace
}  // namespace tessera::test
