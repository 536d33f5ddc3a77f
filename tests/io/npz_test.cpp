#include "tessera/io/npz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "io/temporary_folder.h"
#include "tessera/base/error.h"
#include "tessera/io/npy.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_io::contents;
using testing_io::put;
using testing_io::TemporaryFolder;

// Made by numpy 2.
fs::path data(const char* name) {
  return fs::path(TESSERA_TEST_DATA) / "io" / "data" / name;
}

void expect_user_error(const std::function<void()>& action, std::initializer_list<std::string> parts) {
  try {
    action();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    for (const std::string& part : parts) EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(npz, reads_every_dtype_that_numpy_writes) {
  auto tensors = read_npz(data("dtypes.npz"));
  ASSERT_EQ(tensors.size(), 12u);
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(name, name_of(tensor.dtype));
    EXPECT_THAT(tensor.dims, ElementsAre(2, 3));
    if (is_integer(tensor.dtype)) {
      EXPECT_THAT(tensor.to_int64(), ElementsAre(0, 1, 2, 3, 4, 5)) << name;
    }
  }
  EXPECT_THAT(tensors["bool"].to_int64(), ElementsAre(0, 1, 1, 1, 1, 1));
  EXPECT_THAT(tensors["float32"].as<float>(), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(tensors["float64"].as<double>(), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(tensors["float16"].as<uint16_t>(), ElementsAre(0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500));
}

TEST(npz, reads_compressed_arrays_of_any_layout) {
  auto tensors = read_npz(data("layouts.npz"));
  EXPECT_THAT(tensors["scalar"].dims, ElementsAre());
  EXPECT_THAT(tensors["scalar"].as<float>(), ElementsAre(2.5f));
  EXPECT_THAT(tensors["empty"].dims, ElementsAre(0, 3));
  EXPECT_EQ(tensors["empty"].bytes, 0u);
  EXPECT_THAT(tensors["vector"].to_int64(), ElementsAre(0, 1, 2));
  std::vector<int64_t> ascending(24);
  for (int64_t i = 0; i < 24; ++i) ascending[static_cast<size_t>(i)] = i;
  EXPECT_EQ(tensors["fortran"].to_int64(), ascending);
  EXPECT_THAT(tensors["fortran"].dims, ElementsAre(2, 3, 4));
  EXPECT_EQ(tensors["bfloat16"].dtype, DType::bfloat16);
  EXPECT_THAT(tensors["bfloat16"].as<uint16_t>(), ElementsAre(0x3f80, 0xc020, 0x4040));
}

TEST(npz, writes_what_it_reads) {
  TemporaryFolder folder;
  for (const char* name : {"dtypes.npz", "fortran_float.npz"}) {
    auto tensors = read_npz(data(name));
    write_npz(folder / "copy.npz", {tensors.begin(), tensors.end()});
    auto copy = read_npz(folder / "copy.npz");
    ASSERT_EQ(copy.size(), tensors.size());
    for (const auto& [key, tensor] : tensors) {
      EXPECT_EQ(copy[key].dtype, tensor.dtype);
      EXPECT_EQ(copy[key].dims, tensor.dims);
      EXPECT_THAT(copy[key].as<char>(), testing::ElementsAreArray(tensor.as<char>()));
    }
  }
}

TEST(npz, names_may_be_exporters_names) {
  TemporaryFolder folder;
  Tensor one = Tensor::of<float>(DType::float32, {1}, {1});
  write_npz(folder / "a.npz", {{"/m/Shape_output_0", one}, {"onnx::MatMul_417", one}, {"größe", one}});
  auto read = read_npz(folder / "a.npz");
  EXPECT_TRUE(read.contains("/m/Shape_output_0") && read.contains("onnx::MatMul_417") && read.contains("größe"));
}

TEST(npz, bfloat16_is_written_as_float32) {
  TemporaryFolder folder;
  write_npz(folder / "a.npz", {{"x", Tensor::of<uint16_t>(DType::bfloat16, {2}, {0x3f80, 0xc020})}});
  Tensor x = read_npz(folder / "a.npz")["x"];
  EXPECT_EQ(x.dtype, DType::float32);
  EXPECT_THAT(x.as<float>(), ElementsAre(1.0f, -2.5f));
}

TEST(npz, reads_what_is_wanted_alone) {
  TemporaryFolder folder;
  Tensor one = Tensor::of<float>(DType::float32, {1}, {1});
  write_npz(folder / "a.npz", {{"x", one}, {"other", one}});
  std::string bytes = contents(folder / "a.npz");
  bytes[bytes.find("NUMPY", bytes.find("NUMPY") + 1)] ^= 1;  // of the other, whose checksum fails when it is read
  put(folder / "a.npz", bytes);
  EXPECT_THROW(read_npz(folder / "a.npz"), Error);
  auto read = read_npz(folder / "a.npz", {[](const std::string& name) { return name == "x"; }});
  ASSERT_EQ(read.size(), 1u);
  EXPECT_THAT(read.at("x").as<float>(), ElementsAre(1));
}

TEST(npz, stated_sizes_count_before_anything_is_read) {
  TemporaryFolder folder;
  write_npz(folder / "a.npz",
            {{"x", Tensor::zeros(DType::float32, {1000})}, {"z", Tensor::zeros(DType::int8, {2000})}});
  EXPECT_EQ(read_npz(folder / "a.npz", {nullptr, 7000}).size(), 2u);
  expect_user_error([&] { read_npz(folder / "a.npz", {nullptr, 3000}); }, {"a.npz: 'x'", "4.0 KiB", "2.9 KiB"});
  expect_user_error([&] { read_npz(folder / "a.npz", {nullptr, 5000}); }, {"a.npz: 'z'", "limit"});
  EXPECT_EQ(read_npz(folder / "a.npz", {[](const std::string& name) { return name == "x"; }, 5000}).size(), 1u);
}

// The slices of every array are those of the array read whole.
void expect_slices(const fs::path& path) {
  const auto whole = read_npz(path);
  NpzSlices slices(path);
  ASSERT_EQ(slices.dims().size(), whole.size());
  for (const auto& [name, tensor] : whole) {
    EXPECT_EQ(slices.dims().at(name), tensor.dims);
    if (tensor.dims.empty()) continue;
    for (int64_t i = tensor.dims[0]; i-- > 0;) {
      const Tensor slice = slices.read(name, i);
      EXPECT_EQ(slice.dtype, tensor.dtype);
      EXPECT_EQ(slice.dims, Dims(tensor.dims.begin() + 1, tensor.dims.end()));
      const std::byte* from = tensor.data + static_cast<size_t>(i) * slice.bytes;
      EXPECT_TRUE(std::equal(slice.data, slice.data + slice.bytes, from)) << name << " [" << i << "]";
    }
  }
}

TEST(npz, slices_are_read_alone) {
  expect_slices(data("dtypes.npz"));
  expect_slices(data("layouts.npz"));        // deflated
  expect_slices(data("fortran_float.npz"));  // the first dimension varies fastest
  TemporaryFolder folder;
  std::vector<int64_t> many(100'000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int64_t>(i * i);
  write_npz(folder / "a.npz",
            {{"x", Tensor::of(DType::int64, {100, 1000}, many)}, {"y", Tensor::of(DType::int64, {1000, 100}, many)}});
  expect_slices(folder / "a.npz");
}

TEST(npz, an_archive_may_be_empty) {
  TemporaryFolder folder;
  write_npz(folder / "a.npz", {});
  EXPECT_TRUE(read_npz(folder / "a.npz").empty());
}

TEST(npz, an_error_leaves_the_old_file) {
  TemporaryFolder folder;
  put(folder / "a.npz", "old");
  Tensor one = Tensor::of<float>(DType::float32, {1}, {1});
  expect_user_error([&] { write_npz(folder / "a.npz", {{"x", one}, {"x", one}}); }, {"a.npz: 'x'", "twice"});
  Tensor small = Tensor::zeros(DType::float8e4m3fn, {2});
  expect_user_error([&] { write_npz(folder / "a.npz", {{"x", small}}); }, {"a.npz: 'x'", "float8e4m3fn"});
  EXPECT_EQ(contents(folder / "a.npz"), "old");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(npz, says_which_array_cannot_be_read_and_why) {
  expect_user_error([] { read_npz(data("objects.npz")); }, {"[inputs]", "objects.npz: 'bad'", "Python objects"});
  expect_user_error([] { read_npz(data("strings.npz")); }, {"'s'", "strings"});
  expect_user_error([] { read_npz(data("structured.npz")); }, {"'s'", "structured"});
  expect_user_error([] { read_npz(data("big_endian.npz")); }, {"'s'", "big-endian", "astype('<i4')"});
  expect_user_error([] { read_npz(data("void.npz")); }, {"'s'", "|V3"});
  expect_user_error([] { read_npz(data("none.npz")); }, {"none.npz", "no such file"});
  expect_user_error([] { read_npz(data(".")); }, {"folder"});
  expect_user_error([] { read_npz(data("version1.npy")); }, {"version1.npy", "archive"});
}

TEST(npz, a_file_cut_or_damaged_anywhere_is_refused) {
  TemporaryFolder folder;
  std::string whole = contents(data("fortran_float.npz"));
  for (size_t size = 0; size < whole.size(); ++size) {
    put(folder / "cut.npz", whole.substr(0, size));
    EXPECT_THROW(read_npz(folder / "cut.npz"), Error) << size;
  }
  std::string elements = whole;
  elements[whole.find("NUMPY") + 125] ^= 1;  // the checksum covers it
  put(folder / "damaged.npz", elements);
  EXPECT_THROW(read_npz(folder / "damaged.npz"), Error);
}

TEST(npz, slices_find_every_inverted_byte_of_an_array) {
  TemporaryFolder folder;
  for (const char* name : {"fortran_float.npz", "dtypes.npz"}) {
    const std::string whole = contents(data(name));
    const size_t first = whole.find("NUMPY");
    for (size_t at = first; at < first + 120; ++at) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(~damaged[at]);
      put(folder / "damaged.npz", damaged);
      EXPECT_THROW(NpzSlices(folder / "damaged.npz").verify(), Error) << name << " " << at;
      EXPECT_THROW(read_npz(folder / "damaged.npz"), Error) << name << " " << at;
    }
  }
}

TEST(npz, slices_find_damage_far_behind) {
  TemporaryFolder folder;
  write_npz(folder / "a.npz", {{"x", Tensor::zeros(DType::float32, {5, 1 << 19})}});
  std::string bytes = contents(folder / "a.npz");
  bytes[bytes.size() - 1000] ^= 1;
  put(folder / "a.npz", bytes);
  NpzSlices slices(folder / "a.npz");
  expect_user_error([&] { slices.verify(); }, {"a.npz: 'x'", "checksum"});
  int asked = 0;
  EXPECT_NO_THROW(slices.verify([&] { return ++asked > 2; })) << "it was told to leave off before the end";
  EXPECT_EQ(asked, 3);
}

TEST(npy, versions_1_to_3) {
  for (const char* name : {"version1.npy", "version2.npy", "version3.npy"}) {
    Tensor tensor = read_npy(data(name));
    EXPECT_THAT(tensor.dims, ElementsAre(1, 2));
    EXPECT_THAT(tensor.to_int64(), ElementsAre(1, 2));
  }
}

TEST(npy, writes_the_bytes_that_numpy_writes) {
  TemporaryFolder folder;
  write_npy(folder / "a.npy", Tensor::of<int16_t>(DType::int16, {1, 2}, {1, 2}));
  EXPECT_EQ(contents(folder / "a.npy"), contents(data("version1.npy")));
}

std::string npy(const std::string& dictionary, size_t elements) {
  std::string header = "\x93NUMPY\x01";
  header += '\0';
  header += static_cast<char>(dictionary.size());
  header += '\0';
  return header + dictionary + std::string(elements, '\0');
}

TEST(npy, keys_come_in_any_order_and_quotes) {
  Tensor tensor = parse_npy(npy(R"({"shape":(3,),"fortran_order":True,"descr":"bfloat16"})", 6), "x");
  EXPECT_EQ(tensor.dtype, DType::bfloat16);
  EXPECT_THAT(tensor.dims, ElementsAre(3));
}

TEST(npy, bad_headers_are_refused) {
  struct Case {
    const char* dictionary;
    size_t elements;
    const char* message;
  };
  for (const Case& bad : std::initializer_list<Case>{
           {"", 0, "no '{'"},
           {"{'descr': '<f4', 'fortran_order': False}", 4, "a missing descr"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", 4, "the key 'x'"},
           {"{'descr': '<f4', 'fortran_order': 0, 'shape': ()}", 4, "neither True nor False"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", 4, "not a tuple of extents"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,", 4, "not a tuple of extents"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (1)", 4, "missing comma"},
           {"{'descr' '<f4', 'fortran_order'", 4, "no ':'"},
           {"{'descr': '', 'fortran_order': False, 'shape': ()}", 4, "not an element type"},
           {"{'descr': '<q9', 'fortran_order': False, 'shape': ()}", 4, "'<q9'"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 4, "truncated"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': ()}", 8, "damaged"},
           {"{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904, 4)}", 0, "larger than any memory"},
       })
    expect_user_error([&] { parse_npy(npy(bad.dictionary, bad.elements), "x.npy"); },
                      {"[inputs] x.npy: ", bad.message});
  expect_user_error([] { parse_npy("\x93NUMPY\x04____________", "x.npy"); }, {"version 4"});
  expect_user_error([] { parse_npy("\x93NUMPY\x01", "x.npy"); }, {"truncated"});
  expect_user_error([] { parse_npy(std::string_view("\x93NUMPY\x01\0\xff\xff", 10), "x.npy"); }, {"truncated"});
}

TEST(npy, empty_arrays_of_hostile_extents_take_no_memory) {
  const char* huge = "{'descr': '<f4', 'fortran_order': True, 'shape': (4611686018427387904, 4, 0)}";
  EXPECT_EQ(parse_npy(npy(huge, 0), "x.npy").bytes, 0u);
}

}  // namespace
}  // namespace tessera
