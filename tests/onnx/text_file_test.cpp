// Models in ONNX's text syntax, read from files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/temporary_folder.h"
#include "tessera/base/error.h"
#include "tessera/ir/text.h"
#include "tessera/onnx/export.h"
#include "tessera/onnx/import.h"

namespace tessera {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_io::put;
using testing_io::TemporaryFolder;

class TextFile : public testing::Test {
 protected:
  OnnxModel read(const std::string& text) {
    put(folder_ / "m.onnxtxt", text);
    return import_model(folder_ / "m.onnxtxt");
  }

  std::string error_of(const std::string& text) {
    try {
      read(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user);
      return error.what();
    }
    ADD_FAILURE() << "read: " << text;
    return "";
  }

  TemporaryFolder folder_;
};

constexpr const char* kModel = R"(<ir_version: 10, opset_import: ["" : 20]>
g (float[n, 2] x) => (float[n, 2] y) <float[2] b = {1.0, 2.0}> {
  s = Shape (x)
  z = Reshape (x, s)
  y = Add (z, b)
}
)";

TEST_F(TextFile, is_the_model_that_protobuf_is) {
  const OnnxModel text = read(kModel);
  EXPECT_EQ(text.source, (folder_ / "m.onnxtxt").string());
  export_model(text, folder_ / "m.onnx");
  EXPECT_EQ(print_text(import_model(folder_ / "m.onnx")), print_text(text));
}

TEST_F(TextFile, of_either_ending_is_read) {
  put(folder_ / "m.onnxtext", kModel);
  EXPECT_EQ(print_text(import_model(folder_ / "m.onnxtext")), print_text(parse_text(kModel)));
}

TEST_F(TextFile, has_an_identity) {
  put(folder_ / "m.onnxtxt", kModel);
  std::vector<uint64_t> identities;
  import_model(folder_ / "m.onnxtxt", &identities);
  ASSERT_EQ(identities.size(), 1u);
  EXPECT_NE(identities[0], 0u);
}

TEST_F(TextFile, initializer_without_data_is_zeros) {
  const OnnxModel model = read("g (float[2] x) => (float[2] y) <float[2] w> { y = Add (x, w) }");
  EXPECT_EQ(model.graph->find("w")->data.as<float>()[1], 0.0F);
}

TEST_F(TextFile, long_name_of_the_default_domain_is_read) {
  const OnnxModel model = read(
      R"(<ir_version: 10, opset_import: ["ai.onnx" : 20]> g (float[2] x) => (float[2] y) { y = ai.onnx.Relu (x) })");
  EXPECT_EQ(model.opset(), 20);
  EXPECT_TRUE(model.graph->nodes()[0]->is("Relu"));
}

TEST_F(TextFile, mistakes_are_told_with_file_and_line) {
  EXPECT_THAT(error_of("g (float[2] x) => (float[2] y) {\n  y = Relu x\n}"),
              AllOf(HasSubstr("m.onnxtxt', line 2, column 12: "), HasSubstr("expected '('")));
  EXPECT_THAT(error_of("g (float[2] x) => (float[2] y) {\n  y = Relu (z)\n}"),
              HasSubstr("m.onnxtxt', line 2, column 13: there is no value 'z'"));
  EXPECT_THAT(error_of(""), HasSubstr("m.onnxtxt', line 1, column 1: expected the graph's name"));
  EXPECT_THAT(error_of("\x08\x0a:\x05"), HasSubstr("m.onnxtxt', line 1"));
}

TEST_F(TextFile, versions_are_checked_as_protobufs_are) {
  const std::string graph = " g (float[2] x) => (float[2] y) { y = Relu (x) }";
  EXPECT_THAT(error_of("<ir_version: 99, opset_import: [\"\" : 20]>" + graph),
              HasSubstr("m.onnxtxt' has IR version 99; supported are"));
  EXPECT_THAT(error_of("<ir_version: 10, opset_import: [\"\" : 99]>" + graph),
              HasSubstr("m.onnxtxt' uses version 99 of ONNX's operator set"));
  EXPECT_THAT(error_of("<ir_version: 10, opset_import: [\"other\" : 1]>" + graph),
              HasSubstr("m.onnxtxt' imports no version of ONNX's operator set, which Relu"));
  EXPECT_THAT(error_of("<ir_version: 10, opset_import: [\"\" : 20, \"ai.onnx\" : 20]>" + graph),
              HasSubstr("name it once"));
}

TEST_F(TextFile, negative_extents_are_refused) {
  EXPECT_THAT(error_of("g (float[-2] x) => (float[-2] y) { y = Relu (x) }"),
              HasSubstr("m.onnxtxt', line 1, column 10: negative extent -2"));
}

}  // namespace
}  // namespace tessera
