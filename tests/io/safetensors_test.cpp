#include "tessera/io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "io/temporary_folder.h"
#include "tessera/base/error.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_io::contents;
using testing_io::put;
using testing_io::TemporaryFolder;

// A file as the format's description lays it out.
std::string file_of(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data;
}

TEST(safetensors, writes_the_bytes_that_the_format_describes) {
  TemporaryFolder folder;
  save_safetensors(folder / "a",
                   {{"flag", Tensor::of<uint8_t>(DType::boolean, {1}, {1})},
                    {"b", Tensor::of<uint16_t>(DType::bfloat16, {2}, {1, 2})},
                    {"a", Tensor::of<int64_t>(DType::int64, {}, {-1})}},
                   {{"format", "pt"}});
  std::string header = R"({"__metadata__":{"format":"pt"},)"
                       R"("a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                       R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[8,12]},)"
                       R"("flag":{"dtype":"BOOL","shape":[1],"data_offsets":[12,13]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  using namespace std::string_literals;
  EXPECT_EQ(contents(folder / "a"), file_of(header, "\xff\xff\xff\xff\xff\xff\xff\xff\1\0\2\0\1"s));
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(safetensors, reads_what_it_wrote) {
  TemporaryFolder folder;
  std::vector<std::pair<std::string, Tensor>> all;
  for (DType dtype : {DType::boolean, DType::uint8, DType::int8, DType::int16, DType::uint16, DType::float16,
                      DType::bfloat16, DType::int32, DType::uint32, DType::float32, DType::float64, DType::int64,
                      DType::uint64, DType::float8e5m2, DType::float8e4m3fn, DType::float8e8m0}) {
    Tensor tensor = Tensor::zeros(dtype, {3, 2});
    for (size_t i = 0; i < tensor.bytes; ++i) tensor.mutable_data()[i] = static_cast<std::byte>(i + 1);
    all.emplace_back(name_of(dtype), std::move(tensor));
  }
  all.emplace_back("empty", Tensor::zeros(DType::float32, {0, 7}));
  all.emplace_back("ü \"quoted\"", Tensor::zeros(DType::float32, {}));
  save_safetensors(folder / "a", all);
  const Safetensors read = read_safetensors(folder / "a");
  ASSERT_EQ(read.tensors.size(), all.size());
  EXPECT_TRUE(read.metadata.empty());
  for (const auto& [name, tensor] : all) {
    const Tensor& got = read.tensors.at(name);
    EXPECT_EQ(got.dtype, tensor.dtype) << name;
    EXPECT_EQ(got.dims, tensor.dims) << name;
    ASSERT_EQ(got.bytes, tensor.bytes) << name;
    EXPECT_TRUE(std::equal(got.data, got.data + got.bytes, tensor.data)) << name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(got.data) % std::max<size_t>(bits_of(got.dtype) / 8, 1), 0u) << name;
  }
}

TEST(safetensors, tensors_outlive_what_read_them) {
  TemporaryFolder folder;
  save_safetensors(folder / "a", {{"x", Tensor::of<float>(DType::float32, {2}, {1, 2})}});
  Tensor x = read_safetensors(folder / "a").tensors.at("x");
  EXPECT_THAT(x.as<float>(), ElementsAre(1, 2));
}

TEST(safetensors, a_file_may_hold_no_tensor) {
  TemporaryFolder folder;
  save_safetensors(folder / "a", {}, {{"note", "none"}});
  EXPECT_EQ(read_safetensors(folder / "a").metadata.at("note"), "none");
}

std::string refusal_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(safetensors, defects_are_named) {
  TemporaryFolder folder;
  const auto error = [&](const std::string& header, const std::string& data) {
    put(folder / "bad", file_of(header, data));
    return refusal_of([&] { read_safetensors(folder / "bad"); });
  };
  const std::string x = R"("x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
  EXPECT_THAT(error("{" + x + "}", "a"), HasSubstr("'x': is stored at bytes 0 to 2 of 1"));
  EXPECT_THAT(error("{" + x + "}", "abc"), HasSubstr("1 bytes follow the last tensor"));
  EXPECT_THAT(error("{" + x, "ab"), HasSubstr("header"));
  EXPECT_THAT(error("[]", ""), HasSubstr("header"));
  EXPECT_THAT(error(R"({"x":{"dtype":"U8","shape":[2]}})", "ab"), HasSubstr("'x'"));
  EXPECT_THAT(error(R"({"x":{"dtype":"U7","shape":[2],"data_offsets":[0,2]}})", "ab"), HasSubstr("'U7'"));
  EXPECT_THAT(error(R"({"x":{"dtype":"U8","shape":[3],"data_offsets":[0,2]}})", "ab"), HasSubstr("need 3"));
  EXPECT_THAT(error(R"({"x":{"dtype":"U8","shape":[-1,-2],"data_offsets":[0,2]}})", "ab"), HasSubstr("extent of -1"));
  EXPECT_THAT(error(R"({"x":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", ""),
              HasSubstr("'x'"));
  EXPECT_THAT(error(R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}})", "ab"), HasSubstr("bytes 2 to 0"));
  EXPECT_THAT(error("{" + x + R"(,"y":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "ab"),
              HasSubstr("'y': begins at byte 1"));
  EXPECT_THAT(error("{" + x + R"(,"y":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})", "abcd"),
              HasSubstr("'y': begins at byte 3"));
  put(folder / "bad", std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}"));
  EXPECT_THAT(refusal_of([&] { read_safetensors(folder / "bad"); }), HasSubstr("truncated"));
  put(folder / "bad", "short");
  EXPECT_THAT(refusal_of([&] { read_safetensors(folder / "bad"); }), HasSubstr("truncated"));
  EXPECT_THAT(refusal_of([&] { read_safetensors(folder / "missing"); }), HasSubstr("missing"));
}

TEST(safetensors, a_file_cut_anywhere_is_refused) {
  TemporaryFolder folder;
  save_safetensors(folder / "good", {{"x", Tensor::of<float>(DType::float32, {2}, {1, 2})}});
  const std::string good = contents(folder / "good");
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    put(folder / "cut", good.substr(0, bytes));
    refusal_of([&] { read_safetensors(folder / "cut"); });
  }
}

TEST(safetensors, what_the_format_lacks_is_refused) {
  TemporaryFolder folder;
  const auto save = [&](const std::string& name, DType dtype) {
    return refusal_of([&] { save_safetensors(folder / "a", {{name, Tensor::zeros(dtype, {2})}}); });
  };
  EXPECT_THAT(save("x", DType::int4), HasSubstr("'x'"));
  EXPECT_THAT(save("x", DType::complex64), HasSubstr("complex64"));
  EXPECT_THAT(save("__metadata__", DType::float32), HasSubstr("'__metadata__'"));
  EXPECT_THAT(save("\xff", DType::float32), HasSubstr("UTF-8"));
  const Tensor x = Tensor::zeros(DType::float32, {});
  EXPECT_THAT(refusal_of([&] { save_safetensors(folder / "a", {{"x", x}, {"x", x}}); }), HasSubstr("twice"));
  EXPECT_EQ(folder.entries(), 0u);
}

}  // namespace
}  // namespace tessera
