// A program written as a folder and read back gives the same bits, and errors name whatever is wrong with the folder.
#include "tessera/program_io/written_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "io/temporary_folder.h"
#include "program_io/compiled_models.h"
#include "tessera/base/error.h"
#include "tessera/compiler/compile.h"
#include "tessera/io/npz.h"
#include "tessera/onnx/import.h"
#include "tessera/onnx/metadata.h"
#include "tessera/onnx/opaque_type.h"
#include "tessera/proof/prove.h"
#include "tessera/runtime/executor.h"

namespace tessera::program_io {
namespace {

namespace fs = std::filesystem;
using test::compile_on;
using test::folder_of;
using testing::AllOf;
using testing::HasSubstr;
using testing_io::contents;
using testing_io::put;
using testing_io::TemporaryFolder;

using Tensors = runtime::Executor::Tensors;

void expect_same_bits(const Tensors& actual, const Tensors& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(actual.contains(name)) << name;
    const Tensor& other = actual.at(name);
    ASSERT_EQ(other.dtype, tensor.dtype) << name;
    ASSERT_EQ(other.dims, tensor.dims) << name;
    EXPECT_EQ(std::memcmp(other.data, tensor.data, tensor.bytes), 0) << name;
  }
}

std::map<std::string, std::string> files_in(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files[fs::relative(entry.path(), folder).string()] = contents(entry.path());
  return files;
}

std::vector<std::string> names_of(const std::map<std::string, std::string>& files, const std::string& suffix) {
  std::vector<std::string> names;
  for (const auto& [name, bytes] : files)
    if (name.ends_with(suffix)) names.push_back(name);
  return names;
}

struct Case {
  std::string model, mesh, preset;
};

void PrintTo(const Case& of, std::ostream* out) {
  *out << of.model << " on " << of.mesh << " " << of.preset;
}

class WrittenProgram : public testing::TestWithParam<Case> {};

TEST_P(WrittenProgram, RunsAgainWithTheSameBits) {
  const auto& [model, mesh, preset] = GetParam();
  auto program = compile_on(model, mesh, preset);
  TemporaryFolder folder;
  write_program(*program, model, folder / "out");
  runtime::Executor before(program, {}), after(read_program(folder / "out"), {});
  int cases = 0;
  for (;; ++cases) {
    fs::path inputs = folder_of(model) / ("inputs_" + std::to_string(cases) + ".npz");
    if (!fs::exists(inputs)) break;
    Tensors given = read_npz(inputs);
    expect_same_bits(after.run(given), before.run(given));
  }
  EXPECT_GT(cases, 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, WrittenProgram,
    testing::Values(Case{"mlp", "tp=1", ""}, Case{"mlp", "tp=2", ""}, Case{"mlp", "tp=3", ""},
                    Case{"mlp", "dp=2,tp=2", ""}, Case{"mlp", "dp=3", ""}, Case{"tiny", "tp=2", ""},
                    Case{"tiny", "tp=3", ""}, Case{"tiny", "dp=2,tp=2", ""}, Case{"tiny", "dp=3,tp=2", ""},
                    Case{"tiny", "tp=2", "megatron+sequence"}, Case{"tiny", "tp=3", "megatron+sequence"},
                    Case{"gpt2", "tp=5", ""}, Case{"llama", "tp=3", ""}, Case{"bert", "dp=2,tp=2", ""},
                    Case{"vit", "tp=3", ""}, Case{"resnet", "tp=2", ""}, Case{"resnet", "dp=2", ""}));

struct FormCase {
  Case of;
  WriteOptions options;
};

void PrintTo(const FormCase& form, std::ostream* out) {
  const WriteOptions& options = form.options;
  PrintTo(form.of, out);
  *out << (options.lower == Lower::primitives ? " primitives" : " collectives")
       << (options.order == Order::tokens ? " tokens" : " position") << " rank_id " << static_cast<int>(options.rank_id)
       << (options.rank_type == RankType::opaque ? " opaque" : "");
}

std::vector<FormCase> forms() {
  std::vector<FormCase> all;
  for (const Case& of : {Case{"mlp", "tp=2", ""}, Case{"mlp", "dp=2,tp=3", ""}, Case{"tiny", "tp=2", ""},
                         Case{"tiny", "tp=3", "megatron+sequence"}, Case{"gpt2", "dp=2,tp=2", ""}})
    for (Lower lower : {Lower::collectives, Lower::primitives})
      for (Order order : {Order::tokens, Order::position})
        for (RankIdentity rank_id : {RankIdentity::input, RankIdentity::op, RankIdentity::constant})
          if (of.model == "mlp" || (order == Order::tokens) == (rank_id != RankIdentity::constant))
            all.push_back({of, {lower, order, rank_id}});
  for (const Case& of : {Case{"mlp", "dp=2,tp=3", ""}, Case{"tiny", "dp=2,tp=2", ""}})
    for (Lower lower : {Lower::collectives, Lower::primitives})
      for (RankIdentity rank_id : {RankIdentity::input, RankIdentity::op})
        all.push_back({of, {lower, Order::tokens, rank_id, RankType::opaque}});
  return all;
}

class WrittenForm : public testing::TestWithParam<FormCase> {};

// Functions may add in another order than the collective does; sums of two may not.
TEST_P(WrittenForm, gives_the_same_answers) {
  const auto& [model, mesh, preset] = GetParam().of;
  auto program = compile_on(model, mesh, preset);
  TemporaryFolder folder;
  write_program(*program, model, folder / "out", GetParam().options);
  auto programs = read_program(folder / "out");
  EXPECT_TRUE(proof::prove(*programs).good());
  runtime::Executor before(program, {}), after(programs, {});
  const Tensors given = read_npz(folder_of(model) / "inputs_0.npz");
  const Tensors expected = before.run(given), actual = after.run(given);
  if (GetParam().options.lower == Lower::collectives || mesh.ends_with("tp=2")) {
    expect_same_bits(actual, expected);
    return;
  }
  for (const auto& [name, tensor] : expected) {
    auto a = actual.at(name).as<float>(), b = tensor.as<float>();
    ASSERT_EQ(a.size(), b.size());
    float largest = 0, difference = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      largest = std::max(largest, std::abs(b[i]));
      difference = std::max(difference, std::abs(a[i] - b[i]));
    }
    EXPECT_LE(difference, 1e-5f * largest) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, WrittenForm, testing::ValuesIn(forms()));

TEST(WriteProgram, primitives_need_no_operators_but_send_and_recv) {
  TemporaryFolder folder;
  write_program(*compile_on("gpt2", "dp=2,tp=3"), "gpt2", folder / "out",
                {Lower::primitives, Order::tokens, RankIdentity::input});
  for (const auto& [name, bytes] : files_in(folder / "out")) {
    if (!name.ends_with(".onnx")) continue;
    OnnxModel model = import_model(folder / "out" / name);
    std::set<std::string> own, needed;
    for (const Function& function : model.functions) own.insert(function.domain + "." + function.name);
    auto look = [&](const Graph& graph) {
      for (const auto& node : graph.nodes())
        if (!node->domain.empty() && !own.contains(node->domain + "." + node->op_type))
          needed.insert(node->domain + "." + node->op_type);
    };
    look(*model.graph);
    for (const Function& function : model.functions) look(*function.body);
    EXPECT_EQ(needed, (std::set<std::string>{"tessera.comm.Recv", "tessera.comm.Send"})) << name;
    EXPECT_NE(model.graph->find("tessera.rank"), nullptr);
    EXPECT_EQ(model.graph->outputs.back()->name, "tessera.token.last");
  }
}

TEST(WriteProgram, folded_rank_makes_one_model_per_rank) {
  TemporaryFolder folder;
  write_program(*compile_on("mlp", "tp=2"), "mlp", folder / "out",
                {Lower::primitives, Order::tokens, RankIdentity::constant});
  EXPECT_THAT(names_of(files_in(folder / "out"), ".onnx"), testing::ElementsAre("rank_0.onnx", "rank_1.onnx"));
}

TEST(WriteProgram, rank_may_be_a_handle) {
  TemporaryFolder folder;
  const auto program = compile_on("mlp", "dp=2,tp=2");
  write_program(*program, "mlp", folder / "out",
                {Lower::primitives, Order::tokens, RankIdentity::input, RankType::opaque});
  OnnxModel model = import_model(folder / "out/rank_0.onnx");
  ASSERT_NE(model.graph->find("tessera.rank"), nullptr);
  EXPECT_TRUE(has_opaque_type(*model.graph->find("tessera.rank"), "tessera.comm", "Rank"));
  try {
    write_program(*program, "mlp", folder / "no",
                  {Lower::primitives, Order::tokens, RankIdentity::constant, RankType::opaque});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("a rank that is a handle cannot be a constant"));
  }
}

// A program with messages of its own: each rank gets its neighbour's shard.
TEST(WriteProgram, messages_are_written_and_run) {
  auto program = std::make_shared<spmd::Program>();
  program->mesh = Mesh::parse("r=3");
  program->graph = std::make_unique<Graph>();
  Graph& graph = *program->graph;
  Expr r = Expr::axis_index("r");
  const TensorType global{DType::float32, Shape{6}};
  Value* x = graph.add_input("x", {DType::float32, Shape{2}});
  auto message = [&](const char* op, std::vector<Value*> operands, const std::vector<std::string>& results) {
    Node* node = graph.add_node(op, std::move(operands), results, spmd::kCommDomain);
    node->set("axes", std::vector<std::string>{"r"});
    node->set("value", std::string("x"));
    return node;
  };
  message("Barrier", {}, {});
  message("Send", {x, graph.add_expression("next", {mod(r + 1, 3)}, true)}, {});
  Node* recv =
      message("Recv", {graph.add_expression("previous", {mod(r + 2, 3)}, true), graph.constant_int64({2})}, {"y"});
  recv->set("dtype", static_cast<int64_t>(DType::float32));
  recv->outputs[0]->type = x->type;
  graph.outputs = {recv->outputs[0]};
  program->inputs = {{"x", x}};
  program->outputs = {{"y", recv->outputs[0]}};
  for (Value* value : {x, recv->outputs[0]})
    program->placements[value] = {value->name, global, parse_sharding("[r]", *global.shape, program->mesh, "x")};
  const Tensors given = {{"x", Tensor::of<float>(DType::float32, {6}, {0, 1, 2, 3, 4, 5})}};
  const Tensors expected = {{"y", Tensor::of<float>(DType::float32, {6}, {4, 5, 0, 1, 2, 3})}};
  expect_same_bits(runtime::Executor(program, {}).run(given), expected);
  for (Lower lower : {Lower::collectives, Lower::primitives})
    for (Order order : {Order::tokens, Order::position})
      for (RankIdentity rank_id : {RankIdentity::input, RankIdentity::op, RankIdentity::constant}) {
        TemporaryFolder folder;
        write_program(*program, "by hand", folder / "out", {lower, order, rank_id});
        auto programs = read_program(folder / "out");
        EXPECT_TRUE(proof::prove(*programs).good());
        expect_same_bits(runtime::Executor(programs, {}).run(given), expected);
      }
}

TEST(WriteProgram, manifest_tells_the_form) {
  TemporaryFolder folder;
  const auto program = compile_on("mlp", "tp=2");
  write_program(*program, "mlp", folder / "a", {Lower::primitives, Order::tokens, RankIdentity::input});
  auto form = nlohmann::json::parse(contents(folder / "a/manifest.json"))["form"];
  EXPECT_EQ(form["lower"], "primitives");
  EXPECT_EQ(form["rank_id"], "input");
  EXPECT_EQ(form["token"], "tessera.token.last");
  write_program(*program, "mlp", folder / "b", {Lower::collectives, Order::position});
  form = nlohmann::json::parse(contents(folder / "b/manifest.json"))["form"];
  EXPECT_EQ(form["order"], "position");
  EXPECT_TRUE(form["token"].is_null());
}

TEST(WriteProgram, positions_are_said_where_there_are_no_tokens) {
  TemporaryFolder folder;
  write_program(*compile_on("mlp", "tp=2"), "mlp", folder / "out",
                {Lower::collectives, Order::position, RankIdentity::op});
  OnnxModel model = import_model(folder / "out/rank_0.onnx");
  int ordered = 0;
  for (const auto& node : model.graph->nodes())
    if (node->is("AllReduce", spmd::kCommDomain)) ordered += node->get_string("order", "") == "position";
  EXPECT_EQ(ordered, 1);
  EXPECT_EQ(model.graph->find("tessera.token"), nullptr);
}

TEST(WriteProgram, same_program_gives_the_same_bytes) {
  TemporaryFolder folder;
  write_program(*compile_on("tiny", "dp=2,tp=3"), "tiny", folder / "a");
  write_program(*compile_on("tiny", "dp=2,tp=3"), "tiny", folder / "b");
  EXPECT_EQ(files_in(folder / "a"), files_in(folder / "b"));
  EXPECT_EQ(folder.entries(), 2u) << "no litter";
}

TEST(WriteProgram, files_are_known_by_their_names) {
  for (const auto form : {tessera::Form::mpmd, tessera::Form::spmd, tessera::Form::parallel_for}) {
    TemporaryFolder folder;
    const fs::path out = folder / "out";
    EXPECT_THAT(files_of_written_program(out), testing::IsEmpty());
    write_program(*compile_on("mlp", "tp=3"), "mlp", out, {.form = form});
    std::vector<fs::path> written;
    for (const auto& [name, bytes] : files_in(out)) written.push_back(out / name);
    put(out / "model_2.onnx", "a user's own");
    put(out / "notes.json", "{}");
    EXPECT_THAT(files_of_written_program(out), testing::UnorderedElementsAreArray(written));
  }
}

TEST(WriteProgram, ranks_that_differ_only_in_their_batch_share_model_and_weights) {
  TemporaryFolder folder;
  write_program(*compile_on("mlp", "dp=3"), "mlp", folder / "out");
  auto files = files_in(folder / "out");
  EXPECT_THAT(names_of(files, ".onnx"), testing::ElementsAre("rank_0.onnx"));
  EXPECT_THAT(names_of(files, ".bin"), testing::ElementsAre("weights/0.bin"));
}

// mlp's 128 hidden units over 3 ranks are 43, 43 and 42.
TEST(WriteProgram, uneven_split_makes_one_model_per_extent_and_one_weights_file_per_shard) {
  TemporaryFolder folder;
  write_program(*compile_on("mlp", "tp=3"), "mlp", folder / "out");
  auto files = files_in(folder / "out");
  EXPECT_THAT(names_of(files, ".onnx"), testing::ElementsAre("rank_0.onnx", "rank_2.onnx"));
  EXPECT_THAT(names_of(files, ".bin"), testing::ElementsAre("weights/0.bin", "weights/1.bin", "weights/2.bin"));
}

TEST(WriteProgram, replicas_read_one_weights_file) {
  TemporaryFolder folder;
  write_program(*compile_on("mlp", "dp=2,tp=2"), "mlp", folder / "out");
  auto manifest = nlohmann::json::parse(contents(folder / "out/manifest.json"));
  EXPECT_EQ(manifest["mesh"], "dp=2,tp=2");
  EXPECT_EQ(manifest["inputs"][0]["sharding"], "[batch{dp}, -]");
  ASSERT_EQ(manifest["models"].size(), 1u);
  EXPECT_EQ(manifest["models"][0]["ranks"], "0-3");
  ASSERT_EQ(manifest["weights"].size(), 2u);
  EXPECT_EQ(manifest["weights"][0]["ranks"], "0,2");
  EXPECT_EQ(manifest["weights"][1]["ranks"], "1,3");
}

TEST(WriteProgram, models_are_onnx_with_local_types_and_global_ones_as_metadata) {
  TemporaryFolder folder;
  write_program(*compile_on("mlp", "dp=2,tp=2"), "mlp", folder / "out");
  OnnxModel model = import_model(folder / "out/rank_0.onnx");
  EXPECT_EQ(model.opset_imports.at("tessera.comm"), 1);
  const Value* x = model.graph->inputs.at(0);
  EXPECT_EQ(x->shape().at(0).str(), "floordiv(-@dp + batch + 1, 2)");
  EXPECT_EQ(get_metadata(*x, "tessera.global")->substr(0, 14), "float32[batch,");
  EXPECT_EQ(get_metadata(*x, "tessera.sharding"), "[batch{dp}, -]");
}

TEST(WriteProgram, failure_leaves_the_old_program) {
  TemporaryFolder folder;
  auto program = compile_on("mlp", "tp=2");
  write_program(*program, "first", folder / "out");
  auto before = files_in(folder / "out");
  program->initial.begin()->second.data = nullptr;
  EXPECT_THROW(write_program(*program, "second", folder / "out"), Error);
  EXPECT_EQ(files_in(folder / "out"), before);
  EXPECT_EQ(folder.entries(), 1u) << "no litter";
}

TEST(WriteProgram, folder_of_something_else_is_left_alone) {
  TemporaryFolder folder;
  put(folder / "thesis.tex", "years of work");
  EXPECT_THROW(write_program(*compile_on("mlp", "tp=2"), "mlp", folder.path()), Error);
  EXPECT_EQ(contents(folder / "thesis.tex"), "years of work");
}

TEST(WriteProgram, folder_with_a_manifest_of_its_own_or_files_of_its_own_is_left_alone) {
  auto program = compile_on("mlp", "tp=2");
  TemporaryFolder folder;
  auto objection = [&] {
    auto before = files_in(folder / "out");
    std::string said = "none";
    try {
      write_program(*program, "again", folder / "out");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user) << error.what();
      said = error.what();
      EXPECT_EQ(files_in(folder / "out"), before);
    }
    return said;
  };
  fs::create_directory(folder / "out");
  put(folder / "out" / "manifest.json", "hi");
  EXPECT_THAT(objection(), HasSubstr("contains a manifest.json that is not of a written program"));
  fs::remove(folder / "out" / "manifest.json");
  EXPECT_EQ(objection(), "none");
  put(folder / "out" / "weights" / "thesis.tex", "years of work");
  EXPECT_THAT(objection(), HasSubstr("contains 'weights/thesis.tex', which is not a part of the program there"));
  fs::remove(folder / "out" / "weights" / "thesis.tex");
  EXPECT_EQ(objection(), "none");
}

// Symbols with names that no expression can hold are written under others.
TEST(WriteProgram, symbol_that_looks_like_an_expression_is_renamed) {
  OnnxModel model = import_model(folder_of("mlp") / "model.onnx");
  for (Value* port : {model.graph->inputs.at(0), model.graph->outputs.at(0)})
    port->type.shape->at(0) = Expr::symbol("batch size (n)");
  compiler::CompileOptions options;
  options.mesh = Mesh::parse("dp=2");
  auto program = compiler::compile(model, options).program;
  TemporaryFolder folder;
  write_program(*program, "mlp", folder / "out");
  runtime::Executor before(program, {}), after(read_program(folder / "out"), {});
  Tensors given = read_npz(folder_of("mlp") / "inputs_0.npz");
  expect_same_bits(after.run(given), before.run(given));
}

// A counter: count becomes count + x after a step.
TEST(ReadProgram, state_keeps_its_next_value) {
  auto program = std::make_shared<spmd::Program>();
  program->graph = std::make_unique<Graph>();
  Graph& graph = *program->graph;
  Value* x = graph.add_input("x", {DType::float32, Shape{2}});
  Value* count = graph.add_value("count", ValueKind::state, x->type);
  Value* sum = graph.add_node("Add", {count, x}, {"sum"})->outputs[0];
  Value* twice = graph.add_node("Add", {sum, sum}, {"y"})->outputs[0];
  sum->type = twice->type = x->type;
  graph.set_next(count, sum);
  graph.outputs = {twice};
  program->inputs = {{"x", x}};
  program->outputs = {{"y", twice}};
  program->initial[count] = Tensor::of<float>(DType::float32, {2}, {1, 2});
  for (Value* value : {x, count, sum, twice})
    program->placements[value] = {value->name, value->type, Sharding::replicated(value->shape())};
  TemporaryFolder folder;
  write_program(*program, "counter", folder / "out");

  OnnxModel model = import_model(folder / "out/rank_0.onnx");
  ASSERT_EQ(model.graph->outputs.size(), 2u) << "what a state becomes is an output for other tools";
  EXPECT_EQ(model.graph->outputs[1]->name, "sum");

  auto read = read_program(folder / "out");
  const Value* state = read->of(0).graph->find("count");
  ASSERT_TRUE(state && state->next);
  EXPECT_EQ(state->next->name, "sum");
  EXPECT_EQ(read->of(0).outputs.size(), 1u);
  auto y = runtime::Executor(read, {}).run({{"x", Tensor::of<float>(DType::float32, {2}, {10, 20})}}).at("y");
  EXPECT_EQ(y.as<float>()[1], 44.0f);
}

// Every value by its global name, whole, from ranks whose models differ.
TEST(ReadProgram, intermediate_values_can_be_compared) {
  TemporaryFolder folder;
  auto program = compile_on("tiny", "tp=3");
  write_program(*program, "tiny", folder / "out");
  runtime::ExecutorOptions options;
  options.keep_all = true;
  runtime::Executor before(program, options), after(read_program(folder / "out"), options);
  Tensors given = read_npz(folder_of("tiny") / "inputs_0.npz");
  before.run(given);
  after.run(given);
  auto expected = before.kept(), actual = after.kept();
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE(expected[i].name);
    expect_same_bits({{actual[i].name, actual[i].value}}, {{expected[i].name, expected[i].value}});
  }
}

}  // namespace
}  // namespace tessera::program_io
