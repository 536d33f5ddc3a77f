// Every element type, in every form in which ONNX stores tensors.
#include <algorithm>
#include <cstring>
#include <random>
#include <set>

#include "support.h"
#include "tessera/ir/aligned.h"
#include "tessera/onnx/strings.h"
#include "tessera/onnx/tensor_proto.h"
#include "tessera/onnx/typed_elements.h"

namespace tessera {
namespace {

using namespace test;

std::vector<int> types_with_bytes() {
  std::vector<int> types;
  for (int type = 1; type <= 28; ++type)
    if (type != onnx::TensorProto::STRING) types.push_back(type);
  return types;
}

/// Random elements that are valid for the type: padding bits are zero, bools are 0 or 1.
Tensor random_tensor(DType dtype, Dims dims, std::mt19937& random) {
  Tensor tensor = Tensor::zeros(dtype, std::move(dims));
  for (size_t i = 0; i < tensor.bytes; ++i)
    tensor.mutable_data()[i] = static_cast<std::byte>(random() & (dtype == DType::boolean ? 1 : 0xff));
  int used = static_cast<int>(tensor.count() * bits_of(dtype) % 8);
  if (used) tensor.mutable_data()[tensor.bytes - 1] &= static_cast<std::byte>((1 << used) - 1);
  return tensor;
}

class TensorForms : public testing::TestWithParam<int> {};

TEST_P(TensorForms, hold_the_same_bytes) {
  auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  auto dtype = static_cast<DType>(GetParam());
  for (const Dims& dims : {Dims{}, Dims{0}, Dims{5}, Dims{3, 7}}) {
    Tensor tensor = random_tensor(dtype, dims, random);
    onnx::ModelProto model = small_model();
    auto& raw = *model.mutable_graph()->add_initializer();
    raw.set_name("raw");
    raw.set_data_type(GetParam());
    for (int64_t extent : dims) raw.add_dims(extent);
    raw.set_raw_data(tensor.data, tensor.bytes);
    OnnxModel imported = import_model_bytes(model.SerializeAsString());
    const Tensor& read = imported.graph->find("raw")->data;
    EXPECT_EQ(read.dims, dims);
    ASSERT_EQ(read.bytes, tensor.bytes);
    EXPECT_EQ(std::memcmp(read.data, tensor.data, tensor.bytes), 0);
    EXPECT_TRUE(equal(parsed(export_model_bytes(imported)), model));

    onnx::TensorProto typed;
    codec::write_typed(tensor, typed);
    Tensor from_typed = codec::read_typed(typed, dtype, dims, "typed");
    ASSERT_EQ(from_typed.bytes, tensor.bytes);
    EXPECT_EQ(std::memcmp(from_typed.data, tensor.data, tensor.bytes), 0);

    NamedTensor again = read_tensor_bytes(write_tensor_bytes(tensor, "name"));
    EXPECT_EQ(again.name, "name");
    EXPECT_EQ(again.tensor.dtype, dtype);
    ASSERT_EQ(again.tensor.bytes, tensor.bytes);
    EXPECT_EQ(std::memcmp(again.tensor.data, tensor.data, tensor.bytes), 0);
  }
}

std::string type_name(const testing::TestParamInfo<int>& info) {
  return std::string(name_of(static_cast<DType>(info.param)));
}
INSTANTIATE_TEST_SUITE_P(Types, TensorForms, testing::ValuesIn(types_with_bytes()), type_name);

onnx::TensorProto typed(onnx::TensorProto::DataType type, std::vector<int64_t> dims) {
  onnx::TensorProto proto;
  proto.set_name("typed");
  proto.set_data_type(type);
  for (int64_t extent : dims) proto.add_dims(extent);
  return proto;
}

/// Imports a model with that initializer, checks that it is written back equal, and returns its bytes.
std::vector<int> bytes_of_typed(const onnx::TensorProto& proto) {
  onnx::ModelProto model = small_model();
  *model.mutable_graph()->add_initializer() = proto;
  OnnxModel imported = import_model_bytes(model.SerializeAsString());
  EXPECT_TRUE(equal(parsed(export_model_bytes(imported)), model));
  const Tensor& data = imported.graph->find("typed")->data;
  std::vector<int> bytes;
  for (size_t i = 0; i < data.bytes; ++i) bytes.push_back(std::to_integer<int>(data.data[i]));
  return bytes;
}

using testing::ElementsAre;

TEST(TypedFields, int32_data_holds_narrow_types) {
  auto int8 = typed(onnx::TensorProto::INT8, {2});
  for (int value : {-1, 5}) int8.add_int32_data(value);
  EXPECT_THAT(bytes_of_typed(int8), ElementsAre(0xff, 5));

  auto float16 = typed(onnx::TensorProto::FLOAT16, {1});
  float16.add_int32_data(0xbc00);
  EXPECT_THAT(bytes_of_typed(float16), ElementsAre(0x00, 0xbc));

  auto boolean = typed(onnx::TensorProto::BOOL, {2});
  for (int value : {1, 0}) boolean.add_int32_data(value);
  EXPECT_THAT(bytes_of_typed(boolean), ElementsAre(1, 0));
}

TEST(TypedFields, int32_data_holds_packed_types) {
  auto int4 = typed(onnx::TensorProto::INT4, {3});
  for (int value : {0x21, 0x0f}) int4.add_int32_data(value);
  EXPECT_THAT(bytes_of_typed(int4), ElementsAre(0x21, 0x0f));

  auto uint2 = typed(onnx::TensorProto::UINT2, {5});
  for (int value : {0xe4, 0x03}) uint2.add_int32_data(value);
  EXPECT_THAT(bytes_of_typed(uint2), ElementsAre(0xe4, 0x03));

  // Elements 1, 2, 3, 4 and 63 as a stream of six-bit groups, lowest first.
  auto float6 = typed(onnx::TensorProto::FLOAT6E2M3, {5});
  for (int value : {1, 2, 3, 4, 63}) float6.add_int32_data(value);
  EXPECT_THAT(bytes_of_typed(float6), ElementsAre(1 | 2 << 6, 3 << 4, 4 << 2, 63));
}

TEST(TypedFields, wide_types) {
  auto uint32 = typed(onnx::TensorProto::UINT32, {1});
  uint32.add_uint64_data(0xfffffffe);
  EXPECT_THAT(bytes_of_typed(uint32), ElementsAre(0xfe, 0xff, 0xff, 0xff));
  auto complex = typed(onnx::TensorProto::COMPLEX64, {1});
  complex.add_float_data(1);
  complex.add_float_data(0);
  EXPECT_THAT(bytes_of_typed(complex), ElementsAre(0, 0, 0x80, 0x3f, 0, 0, 0, 0));
  auto nothing = typed(onnx::TensorProto::DOUBLE, {0, 3});
  EXPECT_THAT(bytes_of_typed(nothing), ElementsAre());
}

TEST(TypedFields, entries_with_bits_beyond_the_type_are_written_back) {
  auto boolean = typed(onnx::TensorProto::BOOL, {2});
  for (int value : {256, -1}) boolean.add_int32_data(value);
  EXPECT_THAT(bytes_of_typed(boolean), ElementsAre(1, 1));
  auto uint8 = typed(onnx::TensorProto::UINT8, {1});
  uint8.add_int32_data(-1);
  EXPECT_THAT(bytes_of_typed(uint8), ElementsAre(0xff));
}

TEST(TypedFields, new_data_replace_odd_entries) {
  onnx::ModelProto model = small_model();
  auto& odd = *model.mutable_graph()->add_initializer() = typed(onnx::TensorProto::UINT8, {1});
  odd.add_int32_data(-1);
  OnnxModel imported = import_model_bytes(model.SerializeAsString());
  imported.graph->find("typed")->data = Tensor::of<uint8_t>(DType::uint8, {1}, {9});
  onnx::ModelProto written = parsed(export_model_bytes(imported));
  EXPECT_EQ(written.graph().initializer(1).int32_data(0), 9);
}

// Names of different lengths shift the data to every alignment.
TEST(Initializers, large_weights_are_views_of_the_file_however_they_lie) {
  std::vector<float> weights(4096);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i);
  std::set<uintptr_t> places;
  for (size_t shift = 0; shift < 4; ++shift) {
    onnx::ModelProto model = small_model();
    add_floats(*model.mutable_graph(), "large" + std::string(shift, '_'), weights);
    OnnxModel imported = import_model_bytes(model.SerializeAsString());
    const Tensor& data = imported.graph->find("large" + std::string(shift, '_'))->data;
    places.insert(reinterpret_cast<uintptr_t>(data.data) % alignof(float));
    EXPECT_EQ(std::memcmp(data.data, weights.data(), data.bytes), 0);
    const Tensor readable = aligned(data);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(readable.data) % alignof(float), 0U);
    EXPECT_TRUE(std::ranges::equal(readable.as<float>(), weights));
    EXPECT_TRUE(equal(parsed(export_model_bytes(imported)), model));
  }
  EXPECT_EQ(places.size(), 4U);
}

TEST(Initializers, large_constants_are_aligned) {
  const std::vector<int64_t> numbers(4096, 7);
  for (size_t shift = 0; shift < 8; ++shift) {
    onnx::ModelProto model = small_model();
    auto& added = *model.mutable_graph()->add_initializer();
    added.set_name("large" + std::string(shift, '_'));
    added.set_data_type(onnx::TensorProto::INT64);
    added.add_dims(4096);
    added.set_raw_data(numbers.data(), numbers.size() * sizeof numbers[0]);
    OnnxModel imported = import_model_bytes(model.SerializeAsString());
    const Tensor& data = imported.graph->find(added.name())->data;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data.data) % alignof(int64_t), 0U);
    EXPECT_TRUE(std::ranges::equal(data.as<int64_t>(), numbers));
  }
}

TEST(Initializers, weights_outlive_a_replaced_file) {
  TemporaryFolder folder;
  onnx::ModelProto model = small_model();
  add_floats(*model.mutable_graph(), "large", std::vector<float>(4096, 3));
  put(folder / "m.onnx", model.SerializeAsString());
  OnnxModel imported = import_model(folder / "m.onnx");
  export_model(imported, folder / "m.onnx");
  const Tensor weights = aligned(imported.graph->find("large")->data);
  EXPECT_EQ(weights.as<float>()[4095], 3);
  EXPECT_TRUE(equal(parsed(contents(folder / "m.onnx")), model));
}

TEST(TensorFiles, are_read_and_written) {
  TemporaryFolder folder;
  Tensor words = string_tensor({2, 1}, {"one", "zwei"});
  write_tensor_file(words, "words", folder / "input_0.pb");
  NamedTensor read = read_tensor_file(folder / "input_0.pb");
  EXPECT_EQ(read.name, "words");
  EXPECT_EQ(strings_of(read.tensor), (std::vector<std::string>{"one", "zwei"}));
  put(folder / "broken.pb", "\xff\xff");
  EXPECT_THROW(read_tensor_file(folder / "broken.pb"), Error);
}

}  // namespace
}  // namespace tessera
