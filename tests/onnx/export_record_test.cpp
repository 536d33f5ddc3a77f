// What an exporter's metadata say about initializers.
#include "tessera/onnx/export_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/ir/text.h"
#include "tessera/onnx/metadata.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr std::string_view kKind = "pkg.torch.export.graph_signature.InputSpec.kind";
constexpr std::string_view kFolded = "pkg.onnxscript.optimizer.folded_from";
constexpr std::string_view kSignature = "pkg.torch.export.ExportedProgram.graph_signature";

class ExportRecords : public testing::Test {
 protected:
  // A graph in which each of these tensors is added to x, with its metadata.
  void make(const std::vector<std::string>& names, const std::string& dims = "[4, 4]") {
    std::string text =
        "<ir_version: 10, opset_import: [\"\" : 22]>\ng (float" + dims + " x) => (float" + dims + " y) <";
    std::string body, last = "x";
    for (const std::string& name : names) {
      text += (name == names[0] ? "float" : ", float") + dims + " \"" + name + "\"";
      body += "  \"sum." + name + "\" = Add (\"" + last + "\", \"" + name + "\")\n";
      last = "sum." + name;
    }
    model_ = parse_text(text + "> {\n" + body + "  y = Identity (\"" + last + "\")\n}");
    int seed = 0;
    for (Value* state : graph().values_of(ValueKind::state)) {
      std::vector<float> elements(static_cast<size_t>(state->data.count()));
      for (size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<float>(i) + static_cast<float>(++seed);
      state->data = Tensor::of(DType::float32, state->data.dims, elements);
    }
  }
  Graph& graph() { return *model_.graph; }
  void say(const std::string& name, std::string_view key, std::string_view text) {
    set_metadata(*graph().find(name), key, text);
  }
  void sign(std::string_view signature) { set_metadata(graph(), kSignature, signature); }
  Provenance of(const std::string& name) { return ExportRecord(graph()).of(*graph().find(name)); }

  OnnxModel model_;
};

TEST_F(ExportRecords, say_nothing_of_files_without_them) {
  make({"w"});
  EXPECT_TRUE(ExportRecord(graph()).empty());
  EXPECT_EQ(of("w").role, Role::unknown);
}

TEST_F(ExportRecords, know_parameters_and_buffers) {
  make({"w", "table"});
  say("w", kKind, "PARAMETER");
  say("table", kKind, "BUFFER");
  EXPECT_EQ(of("w").role, Role::parameter);
  EXPECT_EQ(of("table").role, Role::buffer);
}

TEST_F(ExportRecords, tell_copies_from_what_was_computed) {
  make({"val_7", "permute_2", "exp", "unsqueeze_3", "add_1", "val_8", "val_9", "stack"});
  sign(
      "p_q: PARAMETER target='q.weight'\np_k: PARAMETER target='k.weight'\np_n: PARAMETER target='n.weight'\nb_i: "
      "BUFFER target='inv_freq'\n");
  say("val_7", kFolded, "['q.weight', 'val_1']");        // a transposition in a linear layer
  say("permute_2", kFolded, "['q.weight', 'view']");     // moved by the model
  say("exp", kFolded, "['q.weight']");                   // computed
  say("unsqueeze_3", kFolded, "['q.weight', 'log_2']");  // computed, then moved
  say("add_1", kFolded, "['q.weight', 'k.weight']");
  say("stack", kFolded, "['q.weight', 'k.weight']");
  say("val_8", kFolded, "['inv_freq', 'val_2']");
  say("val_9", kFolded, "['val_1', 'val_2']");
  EXPECT_EQ(of("val_7").role, Role::copy);
  EXPECT_THAT(of("val_7").sources, ElementsAre("q.weight"));
  EXPECT_EQ(of("permute_2").role, Role::copy);
  EXPECT_EQ(of("exp").role, Role::computed);
  EXPECT_EQ(of("unsqueeze_3").role, Role::computed);
  EXPECT_EQ(of("add_1").role, Role::computed);
  EXPECT_THAT(of("add_1").sources, UnorderedElementsAre("q.weight", "k.weight"));
  EXPECT_EQ(of("val_8").role, Role::constant);
  EXPECT_EQ(of("val_9").role, Role::constant);
  EXPECT_EQ(of("stack").role, Role::copy);
  EXPECT_THAT(ExportRecord(graph()).missing(), ElementsAre("n.weight"));
  EXPECT_THAT(ExportRecord(graph()).merged(), IsEmpty());
  set_metadata(*graph().nodes().front(), "pkg.torch.onnx.fx_node",
               "%n : call_function[target=norm](args = (%x, %p_n, 1))");
  EXPECT_THAT(ExportRecord(graph()).merged(), ElementsAre("n.weight"));
}

TEST_F(ExportRecords, take_rows_of_a_table_as_copies_if_none_occurs_twice) {
  make({"embedding_1", "index"});
  sign("p_p: PARAMETER target='positions'\n");
  say("embedding_1", kFolded, "['positions', 'arange', 'add', 'val_3']");
  say("index", kFolded, "['positions', 'arange', 'repeat']");
  Value* twice = graph().find("index");
  std::vector<float> elements = {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 9, 9, 9, 9};
  twice->data = Tensor::of(DType::float32, {4, 4}, elements);
  EXPECT_EQ(of("embedding_1").role, Role::copy);
  EXPECT_EQ(of("index").role, Role::computed);
}

TEST_F(ExportRecords, read_signatures_of_older_versions) {
  make({"val_7", "val_8"});
  sign(
      "ExportGraphSignature(input_specs=[InputSpec(kind=<InputKind.PARAMETER: 2>, arg=TensorArgument(name='p_w'), "
      "target='w', persistent=None), InputSpec(kind=<InputKind.USER_INPUT: 1>, arg=TensorArgument(name='x'), "
      "target=None, persistent=None), InputSpec(kind=<InputKind.BUFFER: 3>, target='b', persistent=True)])");
  say("val_7", kFolded, "['w']");
  say("val_8", kFolded, "['b']");
  EXPECT_EQ(of("val_7").role, Role::copy);
  EXPECT_EQ(of("val_8").role, Role::constant);
  EXPECT_THAT(ExportRecord(graph()).missing(), IsEmpty());
}

TEST_F(ExportRecords, do_without_a_signature) {
  make({"val_7", "val_8"});
  say("val_7", kFolded, "['encoder.weight']");
  say("val_8", kFolded, "['encoder.weight', 'x']");
  EXPECT_EQ(of("val_7").role, Role::copy);
  EXPECT_EQ(of("val_8").role, Role::unknown);
}

TEST_F(ExportRecords, find_the_parameters_that_one_tensor_stands_for) {
  make({"head.weight", "other"});
  sign("p_e: PARAMETER target='embed.weight'\np_h: PARAMETER target='head.weight'\n");
  say("head.weight", kKind, "PARAMETER");
  for (const auto& node : graph().nodes())
    set_metadata(*node, "pkg.torch.onnx.name_scopes",
                 node->input(1) == graph().find("head.weight") ? "['', 'embed', 'embedding']" : "['', 'other', 'add']");
  EXPECT_THAT(of("head.weight").sources, ElementsAre("head.weight", "embed.weight"));
  const ExportRecord record(graph());
  EXPECT_TRUE(record.matches("*embed.weight", *graph().find("head.weight")));
  EXPECT_FALSE(record.matches("*embed.weight", *graph().find("other")));
  EXPECT_THAT(record.missing(), IsEmpty());
}

}  // namespace
}  // namespace tessera
