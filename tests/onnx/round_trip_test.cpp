// Real models come back as they were: an equal message, and the same tensor bytes.
#include <algorithm>
#include <cstring>

#include "support.h"

namespace tessera {
namespace {

using namespace test;
namespace fs = std::filesystem;

/// All but minilm, whose weights are not in the repository: see external_data_test.
std::vector<fs::path> model_files() {
  std::vector<fs::path> found;
  for (const auto& entry : fs::recursive_directory_iterator(TESSERA_TEST_DATA "/models"))
    if (entry.path().filename() == "model.onnx" && entry.path().parent_path().filename() != "minilm")
      found.push_back(entry.path());
  found.push_back(TESSERA_EXAMPLES "/tiny/model.onnx");
  std::sort(found.begin(), found.end());
  return found;
}

class RoundTrip : public testing::TestWithParam<fs::path> {};

TEST_P(RoundTrip, gives_an_equal_message_and_equal_tensors) {
  onnx::ModelProto original = parsed(contents(GetParam()));
  OnnxModel model = import_model(GetParam());
  model.graph->verify("import");
  EXPECT_TRUE(equal(parsed(export_model_bytes(model)), original));
  EXPECT_EQ(static_cast<size_t>(original.graph().initializer_size()),
            model.graph->values_of(ValueKind::state).size() + model.graph->values_of(ValueKind::constant).size());
  for (const auto& tensor : original.graph().initializer()) {
    const Value* value = model.graph->find(tensor.name());
    ASSERT_NE(value, nullptr) << tensor.name();
    ASSERT_EQ(value->data.bytes, tensor.raw_data().size()) << tensor.name();
    EXPECT_EQ(std::memcmp(value->data.data, tensor.raw_data().data(), value->data.bytes), 0) << tensor.name();
  }

  TemporaryFolder folder;
  export_model(model, folder / "copy.onnx");
  EXPECT_TRUE(equal(parsed(contents(folder / "copy.onnx")), original));
  EXPECT_EQ(folder.entries(), 1U);
}

std::string test_name(const testing::TestParamInfo<fs::path>& info) {
  fs::path folder = info.param.parent_path();
  std::string name = folder.filename().string();
  std::replace(name.begin(), name.end(), '-', '_');
  return folder.parent_path().filename() == "training" ? "training_" + name : name;
}

INSTANTIATE_TEST_SUITE_P(Models, RoundTrip, testing::ValuesIn(model_files()), test_name);

TEST(RoundTripOf, small_model) {
  onnx::ModelProto model = small_model();
  EXPECT_TRUE(equal(round_trip(model), model));
}

}  // namespace
}  // namespace tessera
