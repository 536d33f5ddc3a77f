// Written models that somebody has saved anew: check takes over those that are still the program, and names the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "api/same_bits.h"
#include "api/small_model.h"
#include "tessera/base/error.h"
#include "tessera/check.h"
#include "tessera/onnx/export.h"
#include "tessera/onnx/external_location.h"
#include "tessera/onnx/import.h"

namespace tessera::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_io::contents;
using testing_io::put;

using Edit = std::function<void(OnnxModel&)>;

class ChangedModels : public testing::Test {
 protected:
  /// Three products and three sums over tp, of one type; by functions, those of the forms that are said.
  void write(Lower lower, const std::string& mesh = "tp=3", int64_t batch = 2, Form form = Form::mpmd) {
    const auto path = write_model(folder_, R"(<ir_version: 10, opset_import: ["" : 24]>
      g (float[batch, 8] x) => (float[batch, 8] y)
      <float[8, 32] a, float[32, 8] b, float[8, 32] c, float[32, 8] d, float[8, 32] e, float[32, 8] f> {
        p = MatMul (x, a)  q = Relu (p)  first = MatMul (q, b)  r = Relu (first)
        s = MatMul (r, c)  t = Relu (s)  second = MatMul (t, d)  u = Relu (second)
        v = MatMul (u, e)  w = Relu (v)  y = MatMul (w, f)
      })",
                                  1);
    Plan plan;
    plan.mesh = mesh;
    plan.shapes = {{"batch", batch}};
    WriteOptions options;
    options.lower = lower;
    options.form = form;
    const Program program = compile(Model::load(path), Mesh::parse(mesh), plan);
    program.write(out(), options);
    expected_ = Session(program, one_thread()).run(inputs_);
  }

  /// Saves a model of the program as an ONNX tool would that does not load its weights.
  void edit(const std::string& file, const Edit& change) {
    OnnxModel model = import_model(out() / file);
    change(model);
    ExportOptions options;
    options.value_info = true;
    for (const Value* state : model.graph->values_of(ValueKind::state)) {
      const auto location = external_location(*state);
      ASSERT_TRUE(location.has_value()) << state->name;
      options.stored[state->name] = {location->file, location->offset};
    }
    export_model(model, out() / file, options);
  }

  CheckReport report() const { return check_program(Program::read(out(), true)); }

  std::vector<std::string> faults_of_accepting() const {
    std::vector<std::string> faults;
    for (const CheckFinding& finding : accept_changed_models(out()).findings)
      faults.push_back(finding.rule + ": " + finding.message);
    return faults;
  }

  std::filesystem::path out() const { return folder_ / "out"; }

  TemporaryFolder folder_;
  const Tensors inputs_ = {{"x", ramp({3, 8})}};
  Tensors expected_;
};

Node* node_of(Graph& graph, std::string_view op_type, size_t index = 0) {
  for (const auto& node : graph.nodes())
    if (node->op_type.starts_with(op_type) && index-- == 0) return node.get();
  ADD_FAILURE() << "no " << op_type;
  return nullptr;
}

Function& function_of(OnnxModel& model, std::string_view name) {
  for (Function& function : model.functions)
    if (function.name.starts_with(name)) return function;
  throw std::runtime_error("no function " + std::string(name));
}

TEST_F(ChangedModels, AreTakenOverIfTheyAreStillTheProgram) {
  for (Lower lower : {Lower::collectives, Lower::primitives}) {
    write(lower);
    EXPECT_THAT(changed_models(out()), testing::IsEmpty());
    edit("rank_2.onnx", [](OnnxModel& model) {
      for (const auto& value : model.graph->values())
        if (value->kind == ValueKind::result && !model.graph->is_output(value.get()))
          model.graph->rename(value.get(), "its_" + value->name);
      for (Function& function : model.functions)
        for (const auto& value : function.body->values()) function.body->rename(value.get(), "its_" + value->name);
    });
    EXPECT_THAT(changed_models(out()), ElementsAre("rank_2.onnx"));
    try {
      Program::read(out());
      ADD_FAILURE() << "read";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("rank_2.onnx"), HasSubstr("`changed_models`")));
    }
    EXPECT_TRUE(report().good());
    EXPECT_TRUE(accept_changed_models(out()).good());
    EXPECT_THAT(changed_models(out()), testing::IsEmpty());
    expect_same(Session(Program::read(out()), one_thread()).run(inputs_), expected_);
  }
}

// Two states of one type exchange their data; neither types nor layouts show it.
TEST_F(ChangedModels, KeepTheWeightsOfTheProgram) {
  for (Form form : {Form::mpmd, Form::spmd, Form::parallel_for}) {
    write(Lower::collectives, "tp=2", 2, form);
    const std::string file = form == Form::mpmd ? "rank_0.onnx" : "model.onnx";
    OnnxModel model = import_model(out() / file);
    std::map<std::string, ExternalLocation> stored;
    for (const Value* state : model.graph->values_of(ValueKind::state))
      stored[state->name] = {external_location(*state)->file, external_location(*state)->offset};
    std::swap(stored.at("a"), stored.at("c"));
    ExportOptions options;
    options.value_info = true;
    options.stored = stored;
    export_model(model, out() / file, options);
    try {
      report();
      ADD_FAILURE() << "read";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("the shard of 'a' that rank 0 finds in"),
                                      HasSubstr("has changed since it was written; it is that of 'c' on rank 0")));
    }
    EXPECT_THAT(faults_of_accepting(), ElementsAre(HasSubstr("program: [program] the shard of 'a' that rank 0 finds")));
  }
}

// A tool that loaded a model whole saves it: the weights are in it, or in a file beside it.
TEST_F(ChangedModels, MayHoldTheWeightsThemselves) {
  for (Form form : {Form::spmd, Form::parallel_for})
    for (bool beside : {false, true}) {
      write(Lower::collectives, "tp=2", 2, form);
      OnnxModel model = import_model(out() / "model.onnx");
      ExportOptions options;
      options.value_info = true;
      options.external_threshold = beside ? 0 : SIZE_MAX;
      options.external_file = "others.bin";
      export_model(model, out() / "model.onnx", options);
      EXPECT_TRUE(accept_changed_models(out()).good());
      expect_same(Session(Program::read(out()), one_thread()).run(inputs_), expected_);
      if (!beside) continue;
      std::string bytes = testing_io::contents(out() / "others.bin");
      const OnnxModel saved = import_model(out() / "model.onnx");
      bytes[external_location(*saved.graph->find("a"))->offset + 100] ^= 1;
      testing_io::put(out() / "others.bin", bytes);
      try {
        Program::read(out());
        ADD_FAILURE() << "read";
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("that rank 0 finds with"));
      }
      std::filesystem::remove_all(out());
    }
}

Graph& innermost(Graph& graph) {
  for (const auto& node : graph.nodes())
    for (Graph* region : node->regions()) return *region;
  return graph;
}

// The file's statements of types count for nothing beside what the nodes make, in a body as anywhere.
TEST_F(ChangedModels, StateTheTypesThatTheirNodesMake) {
  for (Form form : {Form::mpmd, Form::spmd, Form::parallel_for})
    for (Lower lower : {Lower::collectives, Lower::primitives}) {
      write(lower, "tp=2", 2, form);
      const std::string file = form == Form::mpmd ? "rank_0.onnx" : "model.onnx",
                        whole = contents(out() / file.c_str());
      std::vector<std::string> names;
      const OnnxModel model = import_model(out() / file);
      for (const auto& value : innermost(*model.graph).values())
        if (value->producer && value->dtype() == DType::float32) names.push_back(value->name);
      ASSERT_GT(names.size(), 10u);
      for (size_t n = 0; n < names.size(); ++n) {
        const bool rank = n % 2 == 1;
        edit(file, [&](OnnxModel& edited) {
          TensorType& type = innermost(*edited.graph).find(names[n])->type;
          if (rank)
            type.shape->push_back(1);
          else
            type.dtype = DType::float16;
        });
        // A call's result is that of the function's last node.
        const std::string name = lower == Lower::primitives ? "" : "'" + names[n] + "'";
        EXPECT_THAT(faults_of_accepting(), ElementsAre(AllOf(testing::StartsWith("type: "), HasSubstr(name),
                                                             HasSubstr(rank ? ", 1]" : "float16"))));
        put(out() / file.c_str(), whole);
      }
      std::filesystem::remove_all(out());
    }
}

// An operand of a Slice that cuts a rank's share is replaced by what no Slice can have.
TEST_F(ChangedModels, NameTheNodeThatCannotHaveItsOperands) {
  for (Form form : {Form::spmd, Form::parallel_for}) {
    write(Lower::collectives, "tp=2", 2, form);
    const std::string whole = contents(out() / "model.onnx");
    for (const size_t operand : {1, 2, 3})
      for (const Tensor& odd : {Tensor::zeros(DType::float32, {1}), Tensor::zeros(DType::int64, {2, 2}),
                                Tensor::zeros(DType::int64, {0})}) {
        std::string label;
        edit("model.onnx", [&](OnnxModel& model) {
          Graph& graph = innermost(*model.graph);
          Node* slice = node_of(graph, "Slice");
          label = slice->label();
          graph.set_input(slice, operand, graph.add_constant("odd", odd));
        });
        EXPECT_THAT(faults_of_accepting(), ElementsAre(HasSubstr(label)));
        put(out() / "model.onnx", whole);
      }
    std::filesystem::remove_all(out());
  }
}

// Tools make nodes of small initializers, and copy constants.
TEST_F(ChangedModels, MayHoldConstantsAsNodesAndCopyThem) {
  for (Form form : {Form::mpmd, Form::spmd, Form::parallel_for})
    for (const bool copied : {false, true}) {
      write(Lower::collectives, "tp=2", 2, form);
      const std::string file = form == Form::mpmd ? "rank_0.onnx" : "model.onnx";
      size_t changed = 0;
      edit(file, [&](OnnxModel& model) {
        for (Graph* graph : {model.graph.get(), &innermost(*model.graph)})
          for (Value* constant : graph->values_of(ValueKind::constant)) {
            if (constant->name == "tessera.token" || constant->uses.empty()) continue;
            Node* first = constant->uses.front().node;
            const std::string name = constant->name;
            if (!copied) graph->rename(constant, name + ".was");
            Node* node = copied ? graph->add_node("Identity", {constant}, {""}, "", first)
                                : graph->add_node("Constant", {}, {name}, "", first);
            if (!copied) node->set("value", constant->data);
            node->output()->type = constant->type;
            for (const Use& use : std::vector<Use>(constant->uses))
              if (use.node != node) graph->set_input(use.node, use.index, node->output());
            ++changed;
          }
      });
      EXPECT_THAT(faults_of_accepting(), ElementsAre());
      expect_same(Session(Program::read(out()), one_thread()).run(inputs_), expected_);
      EXPECT_TRUE(changed > 0 || form == Form::mpmd);
      std::filesystem::remove_all(out());
    }
}

TEST_F(ChangedModels, StateTheTypesOfCopiesOfConstants) {
  write(Lower::collectives, "tp=2", 2, Form::spmd);
  const std::string whole = contents(out() / "model.onnx");
  for (const bool rank : {false, true}) {
    edit("model.onnx", [&](OnnxModel& model) {
      Graph& graph = innermost(*model.graph);
      Node* relu = node_of(graph, "Relu");
      Value* zero = graph.add_constant("zero", Tensor::zeros(DType::float32, {1}));
      Node* copy = graph.add_node("Identity", {zero}, {"copied"}, "", relu);
      copy->output()->type = {rank ? DType::float32 : DType::float16, rank ? Shape{1, 1} : Shape{1}};
      Node* sum = graph.add_node("Add", {relu->input(0), copy->output()}, {"shifted"}, "", relu);
      sum->output()->type = relu->input(0)->type;
      graph.set_input(relu, 0, sum->output());
    });
    EXPECT_THAT(faults_of_accepting(), ElementsAre(AllOf(testing::StartsWith("type: 'copied' is stated as "),
                                                         HasSubstr(rank ? "[1, 1]" : "float16"))));
    put(out() / "model.onnx", whole);
  }
}

// A model of two ranks with different weights can hold those of one.
TEST_F(ChangedModels, HoldNoWeightsForRanksThatDiffer) {
  write(Lower::collectives, "tp=2");
  OnnxModel model = import_model(out() / "rank_0.onnx");
  ExportOptions options;
  options.external_threshold = SIZE_MAX;
  export_model(model, out() / "rank_0.onnx", options);
  try {
    report();
    ADD_FAILURE() << "read";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("the shard of 'a' that rank 1 finds with"),
                                    HasSubstr("save the model without loading its external data")));
  }
}

TEST_F(ChangedModels, AreNotTakenOverIfTheyAreWrong) {
  for (Lower lower : {Lower::collectives, Lower::primitives}) {
    write(lower);
    edit("rank_2.onnx", [](OnnxModel& model) {
      Graph& graph = *model.graph;
      graph.set_input(node_of(graph, "AllReduce", 1), 0, node_of(graph, "AllReduce", 0)->input(0));
    });
    const CheckReport found = report();
    ASSERT_EQ(found.findings.size(), 1u);
    EXPECT_EQ(found.findings[0].rule, "layout");
    EXPECT_THAT(found.findings[0].message, AllOf(HasSubstr("says that it moves"), HasSubstr("on rank 2")));
    EXPECT_FALSE(accept_changed_models(out()).good());
    EXPECT_THAT(changed_models(out()), ElementsAre("rank_2.onnx"));
  }
}

struct CallEdit {
  const char* name;
  Lower lower;
  const char* rule;
  Edit change;

  friend std::ostream& operator<<(std::ostream& stream, const CallEdit& edit) { return stream << edit.name; }
};

class ChangedCalls : public ChangedModels, public testing::WithParamInterface<CallEdit> {};

TEST_P(ChangedCalls, AreFound) {
  write(GetParam().lower, "tp=4", 8192);
  ASSERT_TRUE(report().good());
  edit("rank_0.onnx", GetParam().change);
  const CheckReport found = report();
  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].rule, GetParam().rule) << found.findings[0].message;
}

// All ranks take the opposite rank's part, so that messages still match.
void turn_ranks(OnnxModel& model) {
  Graph& graph = *model.graph;
  Node* call = node_of(graph, "AllReduce");
  Value* rank = call->input(1);
  Value* turned = graph.add_node("Add", {rank, graph.constant_int64({2}, true)}, {"turned"}, "", call)->outputs[0];
  Value* within = graph.add_node("Mod", {turned, graph.constant_int64({4}, true)}, {"within"}, "", call)->outputs[0];
  for (Value* value : {turned, within}) value->type = {DType::int64, Shape{}};
  graph.set_input(call, 1, within);
}

// Replaces a sum by max, in a function that states max; the addends carry no metadata.
void reduce_otherwise(OnnxModel& model) {
  for (Function& function : model.functions) {
    for (const auto& node : function.body->nodes())
      if (node->op_type == "Add" && std::any_of(node->inputs.begin(), node->inputs.end(), [](const Value* operand) {
            return operand->producer && operand->producer->op_type == "Recv";
          }))
        node->op_type = "Max";
    if (const size_t at = function.extra.find("\"sum\""); at != std::string::npos)
      function.extra.replace(at, 5, "\"max\"");
  }
  node_of(*model.graph, "AllReduce")->input(0)->extra.clear();
}

const CallEdit kCalls[] = {
    {"by_another_rank", Lower::primitives, "function", turn_ranks},
    {"of_another_reduction", Lower::primitives, "layout", reduce_otherwise},
};
INSTANTIATE_TEST_SUITE_P(By, ChangedCalls, testing::ValuesIn(kCalls),
                         [](const auto& info) { return std::string(info.param.name); });

// A function's name and its metadata do not count.
TEST_F(ChangedModels, AreTheProgramWhateverItsFunctionsSay) {
  const Edit edits[] = {
      [](OnnxModel& model) {
        for (Function& function : model.functions) function.domain = "other", function.extra.clear();
        for (const auto& node : model.graph->nodes())
          if (node->op_type.starts_with("AllReduce")) node->domain = "other";
        for (Function& function : model.functions)
          for (const auto& node : function.body->nodes())
            if (node->op_type.starts_with("ReduceScatter_") || node->op_type.starts_with("AllGather_"))
              node->domain = "other";
        model.opset_imports["other"] = 1;
        for (Function& function : model.functions) function.opset_imports["other"] = 1;
      },
      [](OnnxModel& model) { function_of(model, "AllReduce_ring").extra.clear(); },
      [](OnnxModel& model) {
        Function& function = function_of(model, "AllGather_ring");
        function.extra.replace(function.extra.find("ring"), 4, "tree");
      },
  };
  for (const Edit& change : edits) {
    write(Lower::primitives, "tp=4", 8192);
    edit("rank_0.onnx", change);
    const CheckReport found = report();
    EXPECT_TRUE(found.good()) << found.findings.front().message;
  }
}

struct FunctionEdit {
  const char* name;
  const char* function;
  std::function<void(Function&)> change;

  friend std::ostream& operator<<(std::ostream& stream, const FunctionEdit& edit) { return stream << edit.name; }
};

class ChangedFunctions : public ChangedModels, public testing::WithParamInterface<FunctionEdit> {};

// Rings whose messages still fit, but that compute something else.
TEST_P(ChangedFunctions, AreFound) {
  write(Lower::primitives, "tp=4", 8192);
  ASSERT_TRUE(report().good());
  edit("rank_0.onnx", [](OnnxModel& model) { GetParam().change(function_of(model, GetParam().function)); });
  const CheckReport found = report();
  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].rule, "function");
  EXPECT_THAT(found.findings[0].message, HasSubstr(GetParam().function));
}

void turn(Function& function) {
  Graph& body = *function.body;
  Value* const to = node_of(body, "Send")->input(1);
  Value* const from = node_of(body, "Recv")->input(0);
  for (const auto& node : body.nodes()) {
    if (node->op_type == "Send") body.set_input(node.get(), 1, from);
    if (node->op_type == "Recv") body.set_input(node.get(), 0, to);
  }
}

Node* last_of(Function& function, std::string_view op_type) {
  Node* last = nullptr;
  for (const auto& node : function.body->nodes())
    if (node->op_type == op_type) last = node.get();
  return last;
}

const FunctionEdit kEdits[] = {
    {"ring_turned", "ReduceScatter_ring", turn},
    {"gathering_ring_turned", "AllGather_ring", turn},
    {"blocks_the_other_way_round", "AllGather_ring",
     [](Function& function) {
       Node* concat = last_of(function, "Concat");
       std::swap(concat->inputs.front(), concat->inputs.back());
     }},
    {"an_addend_twice", "ReduceScatter_ring",
     [](Function& function) {
       Node* add = last_of(function, "Add");
       function.body->set_input(add, 0, add->input(1));
     }},
    {"another_reduction", "ReduceScatter_ring", [](Function& function) { last_of(function, "Add")->op_type = "Max"; }},
};
INSTANTIATE_TEST_SUITE_P(By, ChangedFunctions, testing::ValuesIn(kEdits),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tessera::test
