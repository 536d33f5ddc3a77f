// Tensors in files beside the model.
#include <cstring>

#include "support.h"

namespace tessera {
namespace {

using namespace test;
using testing::HasSubstr;
namespace fs = std::filesystem;

void set_external(onnx::TensorProto& tensor, const std::string& location, const std::string& offset,
                  const std::string& length) {
  tensor.clear_raw_data();
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  for (auto [key, value] : {std::pair("location", location), {"offset", offset}, {"length", length}}) {
    if (value.empty()) continue;
    auto* entry = tensor.add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  }
}

/// small_model with w = {1.5, -2} at offset 8 of weights.bin.
onnx::ModelProto external_model(const std::string& location = "weights.bin", const std::string& offset = "8",
                                const std::string& length = "8") {
  onnx::ModelProto model = small_model();
  set_external(*model.mutable_graph()->mutable_initializer(0), location, offset, length);
  return model;
}

std::string weights_file() {
  const float values[] = {0, 0, 1.5F, -2};
  return {reinterpret_cast<const char*>(values), sizeof values};
}

TEST(ExternalData, come_back_at_their_place) {
  TemporaryFolder source, target;
  put(source / "weights.bin", weights_file());
  onnx::ModelProto proto = external_model();
  put(source / "m.onnx", proto.SerializeAsString());
  OnnxModel model = import_model(source / "m.onnx");
  EXPECT_EQ(model.graph->find("w")->data.as<float>()[1], -2);
  export_model(model, target / "m.onnx");
  EXPECT_TRUE(equal(parsed(contents(target / "m.onnx")), proto));
  EXPECT_EQ(contents(target / "weights.bin"), weights_file());
  EXPECT_EQ(target.entries(), 2U);
}

TEST(ExternalData, become_inline_in_bytes) {
  TemporaryFolder folder;
  put(folder / "weights.bin", weights_file());
  OnnxModel model = import_model_bytes(external_model().SerializeAsString(), folder.path());
  EXPECT_TRUE(equal(parsed(export_model_bytes(model)), small_model()));
}

TEST(ExternalData, may_be_replaced_while_they_are_used) {
  TemporaryFolder folder;
  put(folder / "weights.bin", weights_file());
  put(folder / "m.onnx", external_model().SerializeAsString());
  OnnxModel model = import_model(folder / "m.onnx");
  export_model(model, folder / "m.onnx");
  EXPECT_EQ(import_model(folder / "m.onnx").graph->find("w")->data.as<float>()[0], 1.5F);
}

TEST(ExternalData, of_another_size_are_appended) {
  TemporaryFolder folder;
  put(folder / "weights.bin", weights_file());
  OnnxModel model = import_model_bytes(external_model().SerializeAsString(), folder.path());
  Value* weight = model.graph->find("w");
  weight->data = Tensor::of<float>(DType::float32, {3}, {1, 2, 3});
  weight->type.shape = Shape{3};
  export_model(model, folder / "m.onnx");
  auto data = import_model(folder / "m.onnx").graph->find("w")->data;
  EXPECT_THAT(data.as<float>(), testing::ElementsAre(1, 2, 3));
}

TEST(ExternalData, that_shared_a_range_part_when_they_differ) {
  TemporaryFolder folder;
  put(folder / "weights.bin", weights_file());
  onnx::ModelProto proto = external_model();
  *proto.mutable_graph()->add_initializer() = proto.graph().initializer(0);
  proto.mutable_graph()->mutable_initializer(1)->set_name("twin");
  OnnxModel model = import_model_bytes(proto.SerializeAsString(), folder.path());
  TemporaryFolder same, changed;
  export_model(model, same / "m.onnx");
  EXPECT_TRUE(equal(parsed(contents(same / "m.onnx")), proto));
  model.graph->find("twin")->data = Tensor::of<float>(DType::float32, {2}, {7, 8});
  export_model(model, changed / "m.onnx");
  OnnxModel read = import_model(changed / "m.onnx");
  EXPECT_THAT(read.graph->find("w")->data.as<float>(), testing::ElementsAre(1.5F, -2));
  EXPECT_THAT(read.graph->find("twin")->data.as<float>(), testing::ElementsAre(7, 8));
}

TEST(ExternalData, above_a_threshold_go_to_one_file) {
  TemporaryFolder folder;
  onnx::ModelProto proto = small_model();
  std::vector<float> weights(2048, 0.5F);
  add_floats(*proto.mutable_graph(), "large", weights);
  OnnxModel model = import_model_bytes(proto.SerializeAsString());
  ExportOptions options;
  options.external_threshold = 1024;
  options.external_file = "data/weights.bin";
  export_model(model, folder / "m.onnx", options);
  onnx::ModelProto written = parsed(contents(folder / "m.onnx"));
  EXPECT_TRUE(written.graph().initializer(0).has_raw_data());
  EXPECT_EQ(written.graph().initializer(1).data_location(), onnx::TensorProto::EXTERNAL);
  EXPECT_EQ(fs::file_size(folder.path() / "data/weights.bin"), weights.size() * sizeof(float));
  OnnxModel read = import_model(folder / "m.onnx");
  EXPECT_TRUE(equal(parsed(export_model_bytes(read)), proto));
}

TEST(ExternalData, in_attributes_and_training_information_move_with_the_model) {
  TemporaryFolder source, target;
  put(source / "weights.bin", weights_file());
  onnx::ModelProto proto = external_model();
  *proto.add_training_info()->mutable_algorithm()->add_initializer() = proto.graph().initializer(0);
  auto& attribute = *proto.mutable_graph()->mutable_node(0)->add_attribute();
  attribute.set_name("t");
  attribute.set_type(onnx::AttributeProto::TENSOR);
  *attribute.mutable_t() = proto.graph().initializer(0);
  auto& list = *proto.mutable_graph()->mutable_node(0)->add_attribute();
  list.set_name("list");
  list.set_type(onnx::AttributeProto::TENSORS);
  *list.add_tensors() = proto.graph().initializer(0);
  put(source / "m.onnx", proto.SerializeAsString());
  export_model(import_model(source / "m.onnx"), target / "m.onnx");
  EXPECT_TRUE(equal(parsed(contents(target / "m.onnx")), proto));
  EXPECT_EQ(contents(target / "weights.bin"), weights_file());
}

/// all-MiniLM-L6-v2 with zeros for weights, which are a sparse file.
TEST(ExternalData, of_a_real_model) {
  TemporaryFolder source, target;
  std::string bytes = contents(TESSERA_TEST_DATA "/models/minilm/model.onnx");
  onnx::ModelProto proto = parsed(bytes);
  uint64_t size = 0;
  std::string location;
  for (const auto& tensor : proto.graph().initializer()) {
    uint64_t end = 0;
    for (const auto& entry : tensor.external_data()) {
      if (entry.key() == "location") location = entry.value();
      if (entry.key() == "offset" || entry.key() == "length") end += std::stoull(entry.value());
    }
    size = std::max(size, end);
  }
  put(source / "m.onnx", bytes);
  put(source.path() / location, "");
  fs::resize_file(source.path() / location, size);
  OnnxModel model = import_model(source / "m.onnx");
  export_model(model, target / "m.onnx");
  EXPECT_TRUE(equal(parsed(contents(target / "m.onnx")), proto));
  EXPECT_EQ(fs::file_size(target.path() / location), size);
}

class ExternalDataErrors : public testing::Test {
 protected:
  ExternalDataErrors() { put(folder_ / "weights.bin", weights_file()); }
  std::string error(const std::string& location, const std::string& offset = "8", const std::string& length = "8") {
    std::string text = import_error(external_model(location, offset, length), folder_.path());
    EXPECT_THAT(text, testing::StartsWith("[import] "));
    EXPECT_THAT(text, HasSubstr("'w'"));
    return text;
  }
  TemporaryFolder folder_;
};

TEST_F(ExternalDataErrors, missing_file) {
  EXPECT_THAT(error("other.bin"), HasSubstr("'other.bin' is missing"));
}
TEST_F(ExternalDataErrors, short_file) {
  EXPECT_THAT(error("weights.bin", "12"), HasSubstr("has only 16 bytes"));
  EXPECT_THAT(error("weights.bin", "17", ""), HasSubstr("has only 16 bytes"));
}
TEST_F(ExternalDataErrors, offsets_that_overflow) {
  EXPECT_THAT(error("weights.bin", "18446744073709551615"), HasSubstr("has only 16 bytes"));
  EXPECT_THAT(error("weights.bin", "8", "18446744073709551615"), HasSubstr("has only 16 bytes"));
  EXPECT_THAT(error("weights.bin", "99999999999999999999"), HasSubstr("is not a number of bytes"));
}
TEST_F(ExternalDataErrors, negative_offset) {
  EXPECT_THAT(error("weights.bin", "-8"), HasSubstr("offset '-8' is not a number of bytes"));
}
TEST_F(ExternalDataErrors, length_other_than_the_tensor_needs) {
  EXPECT_THAT(error("weights.bin", "8", "4"), HasSubstr("4 bytes are stored where"));
}
TEST_F(ExternalDataErrors, no_location) {
  EXPECT_THAT(error(""), HasSubstr("must name a file"));
}
TEST_F(ExternalDataErrors, absolute_path) {
  EXPECT_THAT(error("/etc/passwd"), HasSubstr("is absolute"));
}
TEST_F(ExternalDataErrors, path_that_climbs_out) {
  EXPECT_THAT(error("../weights.bin"), HasSubstr("leads out of the model's folder"));
  EXPECT_THAT(error("a/../../weights.bin"), HasSubstr("leads out of the model's folder"));
}
TEST_F(ExternalDataErrors, link_that_leads_out) {
  TemporaryFolder elsewhere;
  put(elsewhere / "weights.bin", weights_file());
  fs::create_symlink(elsewhere / "weights.bin", folder_ / "link.bin");
  fs::create_directory_symlink(elsewhere.path(), folder_ / "linked");
  EXPECT_THAT(error("link.bin"), HasSubstr("leads out of the model's folder"));
  EXPECT_THAT(error("linked/weights.bin"), HasSubstr("leads out of the model's folder"));
}

/// A cache as the Hugging Face hub's: snapshots hold links into a folder of blobs.
class ExternalDataOfCaches : public testing::Test {
 protected:
  ExternalDataOfCaches() {
    fs::create_directories(folder_ / "blobs");
    fs::create_directories(folder_ / "snapshots/abc/onnx");
    put(folder_ / "blobs/1f", external_model().SerializeAsString());
    put(folder_ / "blobs/2e", weights_file());
    fs::create_symlink("../../../blobs/1f", model());
  }
  fs::path model() const { return folder_ / "snapshots/abc/onnx/model.onnx"; }
  fs::path data() const { return folder_ / "snapshots/abc/onnx/weights.bin"; }
  static float second(const fs::path& path) { return import_model(path).graph->find("w")->data.as<float>()[1]; }
  static std::string error(const fs::path& path) {
    try {
      import_model(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "read";
  }
  TemporaryFolder folder_;
};

TEST_F(ExternalDataOfCaches, are_links_into_the_folder_of_the_model_itself) {
  fs::create_symlink("../../../blobs/2e", data());
  EXPECT_EQ(second(model()), -2);
  fs::create_symlink("snapshots/abc/onnx/model.onnx", folder_ / "chain.onnx");
  fs::rename(data(), folder_ / "moved");
  fs::create_symlink("blobs/2e", folder_ / "weights.bin");
  EXPECT_EQ(second(folder_ / "chain.onnx"), -2);
}
TEST_F(ExternalDataOfCaches, may_lie_beside_the_link) {
  put(data(), weights_file());
  EXPECT_EQ(second(model()), -2);
}
TEST_F(ExternalDataOfCaches, may_lie_beside_the_file_that_the_link_names) {
  put(folder_ / "blobs/weights.bin", weights_file());
  EXPECT_EQ(second(model()), -2);
}
TEST_F(ExternalDataOfCaches, that_are_nowhere_are_missing) {
  EXPECT_THAT(error(model()), HasSubstr("'weights.bin' is missing"));
  fs::create_symlink("../../../blobs/none", data());
  EXPECT_THAT(error(model()), HasSubstr("'weights.bin' is missing"));
}
TEST_F(ExternalDataOfCaches, do_not_lead_elsewhere) {
  TemporaryFolder elsewhere;
  put(elsewhere / "secret", weights_file());
  fs::create_symlink(elsewhere / "secret", data());
  EXPECT_THAT(error(model()), HasSubstr("leads out of the model's folder"));
  put(folder_ / "above", weights_file());
  fs::remove(data());
  fs::create_symlink("../../../above", data());
  EXPECT_THAT(error(model()), HasSubstr("leads out of the model's folder"));
  put(folder_ / "blobs/1f", external_model("../blobs/2e").SerializeAsString());
  EXPECT_EQ(second(model()), -2);  // from the blobs' folder, back into it
  put(folder_ / "blobs/1f", external_model("../above").SerializeAsString());
  EXPECT_THAT(error(model()), HasSubstr("leads out of the model's folder"));
}
TEST(ExternalData, may_be_named_through_a_folder_and_back) {
  TemporaryFolder folder, elsewhere;
  fs::create_directories(folder / "sub/deep");
  put(folder / "up.bin", weights_file());
  for (const char* location : {"sub/../up.bin", "./up.bin", "sub/deep/../../up.bin"}) {
    put(folder / "m.onnx", external_model(location).SerializeAsString());
    EXPECT_EQ(import_model(folder / "m.onnx").graph->find("w")->data.as<float>()[1], -2) << location;
    TemporaryFolder target;
    export_model(import_model(folder / "m.onnx"), target / "m.onnx");
    EXPECT_EQ(import_model(target / "m.onnx").graph->find("w")->data.as<float>()[1], -2) << location;
  }
  // The folder above a link is that of its target.
  fs::create_directories(elsewhere / "inner");
  put(elsewhere / "up.bin", weights_file());
  fs::create_directory_symlink(elsewhere / "inner", folder / "linked");
  EXPECT_THAT(import_error(external_model("linked/../up.bin"), folder.path()),
              HasSubstr("leads out of the model's folder"));
}
TEST_F(ExternalDataErrors, folder_instead_of_a_file) {
  fs::create_directory(folder_ / "sub");
  EXPECT_THAT(import_error(external_model("sub"), folder_.path()), HasSubstr("is not a regular file"));
}

}  // namespace
}  // namespace tessera
