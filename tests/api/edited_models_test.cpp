// Written models without a word about what their values are parts of: the proof needs none, and sees every
// communication that is gone, or done twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "api/same_bits.h"
#include "api/small_model.h"
#include "tessera/check.h"
#include "tessera/dialect/schema.h"
#include "tessera/onnx/export.h"
#include "tessera/onnx/external_location.h"
#include "tessera/onnx/import.h"

namespace tessera::test {
namespace {

struct How {
  const char* name;
  Form form;
  Lower lower;
  bool placed;
  friend std::ostream& operator<<(std::ostream& stream, const How& how) { return stream << how.name; }
};

class EditedModels : public testing::TestWithParam<How> {
 protected:
  void SetUp() override {
    const auto path = write_model(folder_, R"(<ir_version: 10, opset_import: ["" : 24]>
      g (float[batch, 8] x) => (float[batch, 8] y)
      <float[8, 32] a, float[32, 8] b, float[8, 32] c, float[32, 8] d> {
        p = MatMul (x, a)  q = Relu (p)  [early] first = MatMul (q, b)
        [late] s = Relu (first)  [up] r = MatMul (s, c)  [act] t = Relu (r)  [down] y = MatMul (t, d)
      })");
    Plan plan;
    plan.mesh = GetParam().placed ? "pp=2,tp=2" : "tp=2";
    plan.shapes = {{"batch", 2}};
    if (GetParam().placed)
      for (const char* node : {"late", "up", "act", "down"})
        plan.places.push_back({std::string(node) + "=pp:1", "place"});
    WriteOptions options;
    options.form = GetParam().form;
    options.lower = GetParam().lower;
    options.order = Order::position;
    const Program program = compile(Model::load(path), Mesh::parse(plan.mesh), plan);
    program.write(out(), options);
    expected_ = Session(program, one_thread()).run(inputs_);
  }

  using Edit = std::function<void(Graph&)>;

  // All models, saved by somebody who keeps nothing but what computes.
  void edit(const Edit& change) {
    for (const auto& entry : std::filesystem::directory_iterator(out())) {
      if (entry.path().extension() != ".onnx") continue;
      OnnxModel model = import_model(entry.path());
      ExportOptions options;
      for (const Value* state : model.graph->values_of(ValueKind::state))
        if (const auto location = external_location(*state))
          options.stored[state->name] = {location->file, location->offset};
      for (const auto& value : model.graph->values()) value->extra.clear();
      change(*model.graph);
      export_model(model, entry.path(), options);
    }
  }

  static std::vector<Node*> communications(Graph& graph) {
    std::vector<Node*> all;
    for (const auto& node : graph.nodes())
      if (node->output() && (dialect::communicates(*node) || node->op_type.find('_') != std::string::npos))
        all.push_back(node.get());
    return all;
  }

  bool is_good() const { return check_program(Program::read(out(), true)).good(); }
  std::filesystem::path out() const { return folder_ / "out"; }

  TemporaryFolder folder_;
  const Tensors inputs_ = {{"x", ramp({3, 8})}};
  Tensors expected_;
};

TEST_P(EditedModels, NeedNoMetadata) {
  edit([](Graph&) {});
  const CheckReport report = accept_changed_models(out());
  ASSERT_TRUE(report.good()) << report.findings.front().message;
  expect_same(Session(Program::read(out()), one_thread()).run(inputs_), expected_);
}

TEST_P(EditedModels, KeepTheirCommunications) {
  TemporaryFolder kept;
  std::filesystem::copy(out(), kept / "out", std::filesystem::copy_options::recursive);
  size_t count = 1;
  for (size_t index = 0; index < count; ++index) {
    SCOPED_TRACE(index);
    edit([&](Graph& graph) {
      const std::vector<Node*> all = communications(graph);
      count = std::max(count, all.size());
      if (index >= all.size()) return;
      Node* node = all[index];
      Node* copy = graph.add_node("Identity", {node->input(0)}, {"instead"}, "", node);
      copy->output()->type = node->input(0)->type;
      graph.replace_uses(node->output(), copy->output());
      graph.erase(node);
    });
    EXPECT_FALSE(is_good());
    std::filesystem::remove_all(out());
    std::filesystem::copy(kept / "out", out(), std::filesystem::copy_options::recursive);
  }
  EXPECT_GT(count, 1u);
}

TEST_P(EditedModels, CommunicateOnce) {
  edit([](Graph& graph) {
    Node* node = communications(graph).front();
    auto again = std::make_unique<Node>(*node);
    Value* result = graph.add_value("again", ValueKind::result, node->output()->type);
    again->inputs[0] = node->output();
    again->outputs[0] = result;
    const auto& nodes = graph.nodes();
    const auto at = std::find_if(nodes.begin(), nodes.end(), [&](const auto& each) { return each.get() == node; });
    graph.replace_uses(node->output(), result);
    graph.adopt_node(std::move(again), at + 1 == nodes.end() ? nullptr : (at + 1)->get());
  });
  EXPECT_FALSE(is_good());
}

const How kForms[] = {
    {"mpmd", Form::mpmd, Lower::collectives, false},
    {"mpmd_primitives", Form::mpmd, Lower::primitives, false},
    {"spmd", Form::spmd, Lower::collectives, false},
    {"spmd_primitives", Form::spmd, Lower::primitives, false},
    {"placed_mpmd", Form::mpmd, Lower::collectives, true},
    {"placed_mpmd_primitives", Form::mpmd, Lower::primitives, true},
    {"placed_spmd", Form::spmd, Lower::collectives, true},
    {"placed_spmd_primitives", Form::spmd, Lower::primitives, true},
};
INSTANTIATE_TEST_SUITE_P(Of, EditedModels, testing::ValuesIn(kForms),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tessera::test
