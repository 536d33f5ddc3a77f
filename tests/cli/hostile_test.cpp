// Hostile models and meshes against the binary: a right answer, or a mistake told by code 2 and a message, always in
// bounded time and memory.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <random>

#include "cli/run_command.h"
#include "sample.h"
#include "tessera/onnx.pb.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::Ran;
using testing::AnyOf;
using testing::HasSubstr;
using testing_io::contents;
using testing_io::put;
using testing_io::TemporaryFolder;

constexpr int kSeconds = 60;
constexpr int64_t kKibibytes = 6 << 20;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kLimitsMemory = false;  // shadow memory is reserved whole
#else
constexpr bool kLimitsMemory = true;
#endif

class Hostile : public testing::Test {
 protected:
  Ran tessera(const std::string& words) {
    const std::string limits = kLimitsMemory ? fmt::format("ulimit -v {}; ", kKibibytes) : "";
    return test::run_command(fmt::format("{}exec timeout -k 1 {} {} {}", limits, kSeconds, TESSERA_BINARY, words),
                             folder_);
  }

  /// The error message of a mistake.
  std::string mistake(const std::string& words) {
    Ran ran = tessera(words);
    EXPECT_EQ(ran.code, 2) << words << "\n" << ran.out << ran.err;
    EXPECT_THAT(ran.err, HasSubstr("[")) << words;
    return ran.err;
  }

  /// A mistake, or the memory that the machine does not have.
  void refusal_of(const onnx::ModelProto& model) {
    if (!kLimitsMemory) return;  // a sanitizer's allocator ends the process where the library's throws
    put(folder_ / "model.onnx", model.SerializeAsString());
    Ran ran = tessera("run " + (folder_ / "model.onnx").string());
    EXPECT_THAT(ran.code, AnyOf(2, 3)) << ran.out << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(ran.code == 3 ? "[memory]" : "["));
  }

  std::string mistake_in(const onnx::ModelProto& model, const std::string& command = "run") {
    put(folder_ / "model.onnx", model.SerializeAsString());
    return mistake(command + " " + (folder_ / "model.onnx").string());
  }

  TemporaryFolder folder_;
};

void set_dims(onnx::ValueInfoProto& value, const std::string& name, std::vector<int64_t> dims) {
  value.set_name(name);
  auto* type = value.mutable_type()->mutable_tensor_type();
  type->set_elem_type(onnx::TensorProto::FLOAT);
  type->clear_shape();
  type->mutable_shape();  // a scalar's, until a dimension comes
  for (int64_t dim : dims) type->mutable_shape()->add_dim()->set_dim_value(dim);
}

onnx::NodeProto& add_node(onnx::ModelProto& model, const std::string& type, std::vector<std::string> operands,
                          const std::string& result) {
  onnx::NodeProto& node = *model.mutable_graph()->add_node();
  node.set_op_type(type);
  for (const std::string& operand : operands) node.add_input(operand);
  node.add_output(result);
  return node;
}

/// y = x·w, x [2, 3], w [3, 4].
onnx::ModelProto product() {
  onnx::ModelProto model;
  model.set_ir_version(10);
  model.add_opset_import()->set_version(20);
  model.mutable_graph()->set_name("g");
  set_dims(*model.mutable_graph()->add_input(), "x", {2, 3});
  set_dims(*model.mutable_graph()->add_output(), "y", {2, 4});
  onnx::TensorProto& weight = *model.mutable_graph()->add_initializer();
  weight.set_name("w");
  weight.set_data_type(onnx::TensorProto::FLOAT);
  weight.add_dims(3);
  weight.add_dims(4);
  weight.set_raw_data(std::string(48, '\0'));
  add_node(model, "MatMul", {"x", "w"}, "y");
  return model;
}

void store_outside(onnx::ModelProto& model, const std::string& location, const std::string& offset = "",
                   const std::string& length = "") {
  onnx::TensorProto& weight = *model.mutable_graph()->mutable_initializer(0);
  weight.clear_raw_data();
  weight.set_data_location(onnx::TensorProto::EXTERNAL);
  auto say = [&](const char* key, const std::string& value) {
    if (value.empty()) return;
    auto& entry = *weight.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  };
  say("location", location);
  say("offset", offset);
  say("length", length);
}

TEST_F(Hostile, graphs_that_are_none) {
  onnx::ModelProto model = product();
  model.mutable_graph()->mutable_node(0)->set_input(0, "y");
  EXPECT_THAT(mistake_in(model), HasSubstr("cycle"));
  model = product();
  model.mutable_graph()->mutable_node(0)->set_input(0, "missing");
  EXPECT_THAT(mistake_in(model), HasSubstr("'missing'"));
  model = product();
  add_node(model, "Relu", {"x"}, "y");
  EXPECT_THAT(mistake_in(model), HasSubstr("'y' is given twice"));
  model = product();
  model.mutable_graph()->mutable_output(0)->set_name("nothing");
  EXPECT_THAT(mistake_in(model), HasSubstr("'nothing'"));
  model = product();
  model.mutable_graph()->mutable_node(0)->clear_input();
  EXPECT_THAT(mistake_in(model), HasSubstr("MatMul"));
  model = product();
  model.mutable_graph()->mutable_node(0)->clear_output();
  mistake_in(model);
}

TEST_F(Hostile, lies_about_types_and_shapes) {
  onnx::ModelProto model = product();
  model.mutable_graph()->mutable_initializer(0)->set_dims(0, 5);
  EXPECT_THAT(mistake_in(model), HasSubstr("'w'"));
  model = product();
  model.mutable_graph()->mutable_initializer(0)->set_raw_data("short");
  EXPECT_THAT(mistake_in(model), HasSubstr("'w'"));
  model = product();
  model.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(
      onnx::TensorProto::INT64);
  EXPECT_THAT(mistake_in(model), HasSubstr("int64"));
  model = product();
  set_dims(*model.mutable_graph()->add_value_info(), "y", {7, 7});
  Ran ran = tessera("inspect " + (folder_ / "model.onnx").string());
  EXPECT_THAT(ran.code, AnyOf(0, 2)) << ran.err;
  model = product();
  model.mutable_graph()->mutable_initializer(0)->set_data_type(999);
  EXPECT_THAT(mistake_in(model), HasSubstr("999"));
}

TEST_F(Hostile, extents_of_no_tensor) {
  for (int64_t extent : {int64_t{-1}, int64_t{-9}, INT64_MIN, INT64_MAX, int64_t{1} << 62}) {
    SCOPED_TRACE(extent);
    onnx::ModelProto model = product();
    model.mutable_graph()->mutable_initializer(0)->set_dims(0, extent);
    mistake_in(model);
    mistake_in(model, "inspect");
  }
  // An input may be declared as large as one likes; it is the run that needs its memory.
  for (int64_t extent : {int64_t{1} << 40, int64_t{1} << 61, INT64_MAX}) {
    SCOPED_TRACE(extent);
    onnx::ModelProto model = product();
    set_dims(*model.mutable_graph()->mutable_input(0), "x", {extent, 3});
    refusal_of(model);
  }
  onnx::ModelProto model = product();
  set_dims(*model.mutable_graph()->mutable_input(0), "x", {0, 3});
  set_dims(*model.mutable_graph()->mutable_output(0), "y", {0, 4});
  put(folder_ / "model.onnx", model.SerializeAsString());
  Ran ran = tessera("run " + (folder_ / "model.onnx").string());
  EXPECT_EQ(ran.code, 0) << ran.err;
}

// A few bytes that ask for much: extents in operands.
TEST_F(Hostile, results_larger_than_memory) {
  auto asking = [&](const std::string& type, std::vector<int64_t> numbers) {
    onnx::ModelProto model = product();
    onnx::TensorProto& list = *model.mutable_graph()->add_initializer();
    list.set_name("n");
    list.set_data_type(onnx::TensorProto::INT64);
    list.add_dims(static_cast<int64_t>(numbers.size()));
    for (int64_t number : numbers) list.add_int64_data(number);
    model.mutable_graph()->mutable_output(0)->set_name("z");
    model.mutable_graph()->mutable_output(0)->mutable_type()->mutable_tensor_type()->clear_shape();
    if (type == "ConstantOfShape")
      add_node(model, type, {"n"}, "z");
    else
      add_node(model, type, {"y", "n"}, "z");
    return model;
  };
  const int64_t huge = int64_t{1} << 36;
  refusal_of(asking("Expand", {huge, 2, 4}));
  refusal_of(asking("Expand", {INT64_MAX, INT64_MAX, 2, 4}));
  refusal_of(asking("Tile", {huge, huge}));
  refusal_of(asking("Tile", {1, -3}));
  refusal_of(asking("ConstantOfShape", {huge, huge}));
  refusal_of(asking("ConstantOfShape", {-4}));
  refusal_of(asking("Pad", {INT64_MAX, 0, 0, 0}));
  refusal_of(asking("Pad", {huge, 0, 0, 0}));
  refusal_of(asking("Reshape", {INT64_MAX, 4}));
  refusal_of(asking("Reshape", {-1, -1}));
  refusal_of(asking("Unsqueeze", {INT64_MAX}));
}

// Sizes whose elements or bytes overflow 64 bits, and such that no machine has: named, and refused before a byte is
// allocated, on one rank and on two, and where only a plan is asked for.
TEST_F(Hostile, sizes_that_overflow) {
  auto asking = [&](const std::string& type, std::vector<std::vector<int64_t>> lists, bool scalars = false) {
    onnx::ModelProto model = product();
    model.mutable_graph()->clear_node();
    std::vector<std::string> operands;
    if (type == "Tile") operands = {"w"};
    if (type == "Resize") operands = {"w", "", ""};
    for (const std::vector<int64_t>& numbers : lists) {
      onnx::TensorProto& list = *model.mutable_graph()->add_initializer();
      list.set_name(fmt::format("n{}", operands.size()));
      list.set_data_type(onnx::TensorProto::INT64);
      if (!scalars) list.add_dims(static_cast<int64_t>(numbers.size()));
      for (int64_t number : numbers) list.add_int64_data(number);
      operands.push_back(list.name());
    }
    add_node(model, type, operands, "grown");
    add_node(model, "Shape", {"x"}, "unused");
    onnx::NodeProto& maximum = add_node(model, "ReduceMax", {"grown"}, "y");
    maximum.add_attribute()->set_name("keepdims");
    maximum.mutable_attribute(0)->set_type(onnx::AttributeProto::INT);
    maximum.mutable_attribute(0)->set_i(0);
    auto* result = model.mutable_graph()->mutable_output(0)->mutable_type()->mutable_tensor_type();
    result->set_elem_type(type == "Range" ? onnx::TensorProto::INT64 : onnx::TensorProto::FLOAT);
    result->mutable_shape()->clear_dim();
    return model;
  };
  const int64_t half = int64_t{1} << 31, most = int64_t{1} << 62;
  for (const onnx::ModelProto& model :
       {asking("ConstantOfShape", {{half, half}}), asking("ConstantOfShape", {{half, half / 2}}),
        asking("ConstantOfShape", {{0, half, half}}), asking("ConstantOfShape", {{int64_t{1} << 43}}),
        asking("Range", {{0}, {most}, {1}}, true), asking("Tile", {{half / 2, half / 2}}),
        asking("Resize", {{half, half}}), asking("Resize", {{4, int64_t{1} << 40}})}) {
    const std::string said = mistake_in(model);
    EXPECT_THAT(said, HasSubstr("'grown'"));
    EXPECT_THAT(said, HasSubstr("[memory]"));
    EXPECT_THAT(mistake("run " + (folder_ / "model.onnx").string() + " --mesh dp=2 --preset dp"), HasSubstr("'grown'"));
  }
}

TEST_F(Hostile, a_limit_on_memory) {
  const std::string model = std::string(TESSERA_TEST_DATA) + "/models/mlp/model.onnx";
  const std::string said = mistake("run " + model + " --shapes batch=100000 --memory-limit 1M");
  EXPECT_THAT(said, HasSubstr("1.0 MiB"));
  EXPECT_THAT(said, HasSubstr("--memory-limit"));
  EXPECT_THAT(mistake("shard " + model + " --mesh tp=2 --shapes batch=100000 --dry-run --memory-limit 1M"),
              HasSubstr("'relu'"));
  EXPECT_EQ(tessera("run " + model + " --shapes batch=4 --memory-limit 64M").code, 0);
  for (const char* wrong : {"0", "-1", "4X", "4GB", "99999999999999999999", "17179869184G", "G"})
    EXPECT_THAT(mistake("run " + model + " --memory-limit " + wrong), HasSubstr("512M")) << wrong;
}

TEST_F(Hostile, external_data) {
  put(folder_ / "weights.bin", std::string(64, '\0'));
  fs::create_directory(folder_ / "below");
  TemporaryFolder elsewhere;
  put(elsewhere / "secret.bin", std::string(64, '\0'));
  fs::create_symlink(elsewhere / "secret.bin", folder_ / "link.bin");
  struct Case {
    std::string location, offset, length;
  };
  const std::vector<Case> cases = {
      {"none.bin", "", ""},
      {"weights.bin", "40", ""},
      {"weights.bin", "0", "999"},
      {"weights.bin", "18446744073709551615", "48"},
      {"weights.bin", "-4", "48"},
      {"weights.bin", "four", "48"},
      {"weights.bin", "0", "12"},
      {(elsewhere / "secret.bin").string(), "", ""},
      {"../" + elsewhere.path().filename().string() + "/secret.bin", "", ""},
      {"link.bin", "", ""},
      {"/dev/zero", "", ""},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.location + " " + each.offset + " " + each.length);
    onnx::ModelProto model = product();
    store_outside(model, each.location, each.offset, each.length);
    EXPECT_THAT(mistake_in(model), HasSubstr("'w'"));
  }
  onnx::ModelProto model = product();
  store_outside(model, "weights.bin", "0", "48");
  put(folder_ / "model.onnx", model.SerializeAsString());
  EXPECT_EQ(tessera("run " + (folder_ / "model.onnx").string()).code, 0);
}

TEST_F(Hostile, meshes) {
  put(folder_ / "model.onnx", product().SerializeAsString());
  const std::string run = "run " + (folder_ / "model.onnx").string() + " --mesh ";
  for (const char* mesh : {"tp=0", "tp=-2", "tp=99999999999999", "tp=99999999999999999999999", "tp=2,tp=2", "tp", "=2",
                           "tp=2,", "tp=1e3", "tp=16777216,dp=16777216", "tp=4294967296,dp=4294967296"})
    EXPECT_THAT(mistake(run + mesh), HasSubstr("[mesh]")) << mesh;
  // Threads of one process cannot always run what can be planned.
  mistake(run + "tp=4000000");
}

// Every model of the repository, truncated and with flipped bits, chosen by a seed.
TEST_F(Hostile, damaged_models) {
  constexpr uint64_t kSeed = 20261;
  const int of_each = test::sample(4, 24);
  std::mt19937_64 engine(kSeed);
  std::vector<fs::path> models;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(TESSERA_TEST_DATA) / "models"))
    if (entry.path().filename() == "model.onnx") models.push_back(entry.path());
  std::sort(models.begin(), models.end());
  ASSERT_FALSE(models.empty());
  const std::string path = (folder_ / "model.onnx").string();
  for (const fs::path& model : models) {
    const std::string bytes = contents(model);
    for (int i = 0; i < of_each; ++i) {
      SCOPED_TRACE(fmt::format("{}, damage {} of seed {}", model.string(), i, kSeed));
      std::string damaged = bytes;
      if (i % 4 == 0) damaged.resize(engine() % damaged.size());
      // Nodes come first in a file, weights last: most bits are turned over among the former.
      for (int flips = i % 4 == 0 ? 0 : 1 + static_cast<int>(engine() % 6); flips > 0; --flips) {
        const size_t within = engine() % 2 ? damaged.size() : std::min<size_t>(damaged.size(), 40000);
        damaged[engine() % within] ^= static_cast<char>(1 << engine() % 8);
      }
      put(folder_ / "model.onnx", damaged);
      Ran ran = tessera("verify " + path + " --mesh dp=2 --quiet");
      // Weights may have become NaN or huge, and then answers differ.
      EXPECT_THAT(ran.code, AnyOf(0, 1, 2)) << ran.out << ran.err;
      if (ran.code == 2) {
        EXPECT_THAT(ran.err, HasSubstr("["));
      }
    }
  }
}

}  // namespace
}  // namespace tessera
