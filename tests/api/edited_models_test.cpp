// Written models without a word about what their values are parts of: the proof needs none, and sees every
// communication that is gone, or done twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "api/same_bits.h"
#include "api/small_model.h"
#include "tessera/check.h"
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

  // All models, saved with computation and types, but without metadata.
  void edit(const Edit& change) {
    for (const auto& entry : std::filesystem::directory_iterator(out()))
      if (entry.path().extension() == ".onnx") save(entry.path(), change);
  }
  static void save(const std::filesystem::path& path, const Edit& change) {
    OnnxModel model = import_model(path);
    ExportOptions options;
    options.value_info = true;
    for (const Value* state : model.graph->values_of(ValueKind::state))
      if (const auto location = external_location(*state))
        options.stored[state->name] = {location->file, location->offset};
    for (const auto& value : model.graph->values()) value->extra.clear();
    change(*model.graph);
    export_model(model, path, options);
  }

  struct Site {
    Graph* graph;
    Node* node;
  };

  // In branches, too.
  static std::vector<Site> communications(Graph& graph) {
    static const std::set<std::string> kinds = {"AllReduce", "Permute", "Broadcast"};
    std::vector<Site> all;
    for (const auto& node : graph.nodes()) {
      for (Graph* region : node->regions())
        for (const Site& site : communications(*region)) all.push_back(site);
      if (node->output() && kinds.contains(node->op_type.substr(0, node->op_type.find('_'))))
        all.push_back({&graph, node.get()});
    }
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

TEST_P(EditedModels, MayCopyWhatIsSaidToMove) {
  edit([](Graph& graph) {
    for (const auto& [place, node] : communications(graph)) {
      Value* given = node->input(0);
      Value* copy = place->add_node("Identity", {given}, {""}, "", node)->output();
      copy->type = given->type;
      place->set_input(node, 0, copy);
    }
  });
  const CheckReport report = accept_changed_models(out());
  ASSERT_TRUE(report.good()) << report.findings.front().message;
  expect_same(Session(Program::read(out()), one_thread()).run(inputs_), expected_);
}

TEST_P(EditedModels, NeedNoMetadataOnSomeRanks) {
  bool first = true;
  for (const auto& entry : std::filesystem::directory_iterator(out())) {
    if (entry.path().extension() != ".onnx" || !std::exchange(first, false)) continue;
    save(entry.path(), [](Graph&) {});
  }
  const CheckReport report = accept_changed_models(out());
  ASSERT_TRUE(report.good()) << report.findings.front().message;
}

TEST_P(EditedModels, KeepTheirCommunications) {
  TemporaryFolder kept;
  std::filesystem::copy(out(), kept / "out", std::filesystem::copy_options::recursive);
  size_t count = 1;
  for (size_t index = 0; index < count; ++index) {
    SCOPED_TRACE(index);
    edit([&](Graph& graph) {
      const std::vector<Site> all = communications(graph);
      count = std::max(count, all.size());
      if (index >= all.size()) return;
      const auto [place, node] = all[index];
      const std::string name = node->output()->name;
      Value* copy = place->add_node("Identity", {node->input(0)}, {"instead"}, "", node)->output();
      copy->type = node->input(0)->type;
      place->replace_uses(node->output(), copy);
      place->erase(node);
      place->rename(copy, name);
    });
    EXPECT_FALSE(is_good());
    std::filesystem::remove_all(out());
    std::filesystem::copy(kept / "out", out(), std::filesystem::copy_options::recursive);
  }
  EXPECT_GT(count, 1u);
}

TEST_P(EditedModels, CommunicateOnce) {
  edit([](Graph& graph) {
    const std::vector<Site> all = communications(graph);
    if (all.empty()) return;
    const auto [place, node] = all.front();
    const std::string name = node->output()->name;
    place->rename(node->output(), name + ".once");
    Value* result = place->add_value(name, ValueKind::result, node->output()->type);
    place->replace_uses(node->output(), result);
    auto again = std::make_unique<Node>(*node);
    again->inputs[0] = node->output();
    again->outputs[0] = result;
    const auto& nodes = place->nodes();
    const auto at = std::find_if(nodes.begin(), nodes.end(), [&](const auto& each) { return each.get() == node; });
    place->adopt_node(std::move(again), at + 1 == nodes.end() ? nullptr : (at + 1)->get());
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
