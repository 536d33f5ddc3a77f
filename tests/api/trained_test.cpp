// Models written with the values that training has left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/small_model.h"
#include "tessera/compare.h"
#include "tessera/onnx/import.h"
#include "tessera/training.h"

namespace tessera {
namespace {

using test::kPair;
using test::TemporaryFolder;
using test::write_model;
using testing::HasSubstr;

class Trained : public testing::Test {
 protected:
  std::string error_of(const Model& model, const Tensors& parameters) {
    try {
      write_trained(model, parameters, folder_ / "refused.onnx");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user);
      EXPECT_FALSE(std::filesystem::exists(folder_ / "refused.onnx"));
      return error.what();
    }
    return "no error";
  }

  // The answers of the written model are those of the source with these states.
  void expect_same(const Model& model, const Tensors& parameters) {
    std::vector<std::string> names;
    for (const auto& [name, value] : parameters) names.push_back(name);
    Session session(compile(model.with_states(names), Mesh()));
    session.set_states(parameters);
    const Tensors expected = session.run(inputs_);
    write_trained(model, parameters, folder_ / "trained.onnx");
    const Tensors actual = Session(compile(Model::load(folder_ / "trained.onnx"), Mesh())).run(inputs_);
    for (const Difference& difference : compare(expected, actual, {0.0, 0.0}))
      EXPECT_TRUE(difference.pass) << difference.name << " " << difference.max_abs;
    EXPECT_FALSE(compare("y", Session(compile(model, Mesh())).run(inputs_).at("y"), actual.at("y")).pass);
  }

  TemporaryFolder folder_;
  const Tensors inputs_ = {{"x", test::ramp({3, 8})}};
};

TEST_F(Trained, models_answer_as_the_states_do) {
  const Model model = Model::load(write_model(folder_, kPair));
  expect_same(model, {{"up", test::ramp({8, 32}, 3)}, {"down", test::ramp({32, 8}, 5)}});
  expect_same(model, {{"down", test::ramp({32, 8}, 4)}});
}

TEST_F(Trained, models_do_not_write_over_the_files_of_their_source) {
  write_model(folder_, kPair);
  ExportOptions options;
  options.external_threshold = 1;
  options.external_file = "weights.bin";
  export_model(import_model(folder_ / "model.onnx"), folder_ / "split.onnx", options);
  const std::string before = testing_io::contents(folder_ / "weights.bin");
  expect_same(Model::load(folder_ / "split.onnx"), {{"up", test::ramp({8, 32}, 3)}, {"down", test::ramp({32, 8}, 5)}});
  EXPECT_EQ(testing_io::contents(folder_ / "weights.bin"), before);
}

TEST_F(Trained, constants_take_values_too) {
  const std::string text = R"(
    g (float[batch, 2] x) => (float[batch, 2] y) {
      w = Constant <value_floats = [1.0, 2.0]> ()
      y = Add (x, w)
    })";
  const Model model = Model::load(write_model(folder_, text));
  write_trained(model, {{"w", Tensor::of<float>(DType::float32, {2}, {3, 5})}}, folder_ / "trained.onnx");
  const Tensors y = Session(compile(Model::load(folder_ / "trained.onnx"), Mesh()))
                        .run({{"x", Tensor::zeros(DType::float32, {3, 2})}});
  EXPECT_EQ(y.at("y").as<float>()[0], 3.0F);
  EXPECT_EQ(y.at("y").as<float>()[5], 5.0F);
}

TEST_F(Trained, values_that_do_not_fit_are_refused) {
  const Model model = Model::load(write_model(folder_, kPair));
  EXPECT_THAT(error_of(model, {{"hidden", test::ramp({8, 32})}}),
              HasSubstr("'hidden' is not an initializer of the model's graph"));
  EXPECT_THAT(error_of(model, {{"sideways", test::ramp({8, 32})}}), HasSubstr("'sideways' is not an initializer"));
  EXPECT_THAT(error_of(model, {{"up", test::ramp({32, 8})}}),
              testing::AllOf(HasSubstr("'up' is trained as"), HasSubstr("has another type or shape")));
  EXPECT_THAT(error_of(model, {{"up", Tensor::zeros(DType::float16, {8, 32})}}), HasSubstr("another type or shape"));
}

}  // namespace
}  // namespace tessera
