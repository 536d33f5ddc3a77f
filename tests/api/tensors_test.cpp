#include "tessera/tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/temporary_folder.h"
#include "tessera/error.h"
#include "tessera/onnx/tensor_proto.h"

namespace tessera {
namespace {

using testing::HasSubstr;
using testing_io::TemporaryFolder;

const std::vector<TensorInfo> kPorts = {{"ids", DType::int64, {"2"}}, {"x", DType::bfloat16, {"2"}}};

Tensor ids() {
  return Tensor::of<int64_t>(DType::int64, {2}, {3, 4});
}
Tensor x() {
  return Tensor::of<float>(DType::float32, {2}, {0.5f, 2});
}

std::string error_of_reading(const std::filesystem::path& path) {
  try {
    read_tensors(path, "input", kPorts);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    return error.what();
  }
  return "";
}

TEST(Tensors, come_back_from_a_file) {
  TemporaryFolder folder;
  write_tensors(folder / "in.npz", {{"ids", ids()}, {"x", x()}});
  Tensors read = read_tensors(folder / "in.npz", "input", kPorts);
  EXPECT_EQ(read.at("ids").to_int64(), ids().to_int64());
  EXPECT_EQ(read.at("x").dtype, DType::bfloat16);  // .npz files have no bfloat16
}

TEST(Tensors, are_read_from_test_data_folders_by_name_or_number) {
  TemporaryFolder folder;
  std::filesystem::create_directory(folder / "test_data_set_0");
  write_tensor_file(x(), "x", folder / "test_data_set_0" / "input_0.pb");
  write_tensor_file(ids(), "ids", folder / "test_data_set_0" / "input_1.pb");
  EXPECT_EQ(read_tensors(folder.path(), "input", kPorts).at("ids").to_int64(), ids().to_int64());
  EXPECT_EQ(read_tensors(folder / "test_data_set_0", "input", kPorts).size(), 2u);

  TemporaryFolder nameless;
  write_tensor_file(ids(), "", nameless / "input_0.pb");
  EXPECT_EQ(read_tensors(nameless.path(), "input", kPorts).at("ids").to_int64(), ids().to_int64());
}

TEST(Tensors, say_what_is_missing) {
  TemporaryFolder folder;
  EXPECT_THAT(error_of_reading(folder / "none.npz"),
              HasSubstr("none.npz does not exist; name a .npz file or a folder"));
  EXPECT_THAT(error_of_reading(folder.path()), HasSubstr("holds no input_0.pb"));
}

TEST(Tensors, that_the_model_does_not_name_are_a_mistake) {
  TemporaryFolder folder;
  write_tensors(folder / "in.npz", {{"ids", ids()}, {"x@3", x()}});  // of rank 3 alone
  EXPECT_EQ(read_tensors(folder / "in.npz", "input", kPorts).size(), 2u);
  write_tensors(folder / "in.npz", {{"ids", ids()}, {"extra", x()}});
  EXPECT_THAT(error_of_reading(folder / "in.npz"), HasSubstr("the model has no input 'extra'; its inputs are: "));
}

TEST(Tensors, probing_a_path_leaves_nothing_there) {
  TemporaryFolder folder;
  require_writable(folder / "out.npz");
  EXPECT_EQ(folder.entries(), 0u);
  EXPECT_THROW(require_writable(folder / "none" / "out.npz"), Error);
}

}  // namespace
}  // namespace tessera
