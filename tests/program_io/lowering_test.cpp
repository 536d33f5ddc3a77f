// Collectives as functions over Send and Recv do what the nodes of tessera.comm do: every form, any number of members,
// blocks that are even, uneven and empty.
#include "tessera/program_io/lowering.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "api/small_model.h"
#include "tessera/base/error.h"
#include "tessera/check.h"
#include "tessera/dialect/inline.h"
#include "tessera/proof/prove.h"
#include "tessera/runtime/executor.h"
#include "tessera/spmd/program.h"

namespace tessera::program_io {
namespace {

using dialect::Spec;
using Floats = std::vector<float>;
constexpr int kStacked = -1;  // each rank's tensor is a layer of the whole one, along a dimension of its own

struct Trial {
  Spec spec;
  std::string mesh;
  int in = kStacked, out = kStacked;  ///< the dimension that is split over the group, or kStacked
  int64_t rows = 0, columns = 0;      ///< of the whole matrix; of stacked ones, of each
  DType dtype = DType::float32;       ///< that the collective works in
};

int64_t share(int64_t size, int64_t index, int64_t count) {
  return size / count + (index < size % count);
}

/// Collectives as nodes; as functions in one program for all ranks, or in one per rank.
enum class Form { nodes, functions, functions_of_handles, functions_of_a_rank };

class Harness {
 public:
  explicit Harness(const Trial& trial) : trial_(trial), mesh_(Mesh::parse(trial.mesh)) {}

  /// The whole result.
  Floats run(Form form, const Floats& whole) const {
    auto programs = std::make_shared<runtime::RankPrograms>();
    const int count = form == Form::functions_of_a_rank ? static_cast<int>(mesh_.size()) : 1;
    for (int rank = 0; rank < count; ++rank)
      programs->programs.push_back(std::make_shared<spmd::Program>(
          program_of(form == Form::functions_of_a_rank ? std::optional<int64_t>(rank) : std::nullopt, form)));
    for (int rank = 0; rank < mesh_.size(); ++rank) programs->program_of.push_back(rank % count);
    const proof::Report report = proof::prove(*programs);
    if (groups_tell_other_things())
      EXPECT_TRUE(!report.good() && report.findings.front().rule == "output");
    else
      EXPECT_TRUE(report.good()) << report.findings.front().message;
    runtime::ExecutorOptions options;
    options.world.timeout = std::chrono::seconds(20);
    runtime::Executor executor(programs, options);
    auto outputs = executor.run({{"x", Tensor::of(DType::float32, *constants_of(*type_of(trial_.in).shape), whole)}});
    auto elements = outputs.at("y").as<float>();
    return Floats(elements.begin(), elements.end());
  }

  int64_t elements(int dim) const { return *product(*type_of(dim).shape).constant(); }

 private:
  int64_t members() const { return dialect::digits_of(trial_.spec.axes, mesh_).size; }

  // Each group's root scatters other data, although the result's layout states that groups have the same.
  bool groups_tell_other_things() const {
    return trial_.spec.op == "Scatter" && trial_.in == kStacked && members() < mesh_.size();
  }

  // The whole input's or output's type and layout.
  TensorType type_of(int dim) const {
    Shape shape = {trial_.rows, trial_.columns};
    if (dim == kStacked) shape.insert(shape.begin(), mesh_.size());
    return {DType::float32, shape};
  }
  Sharding sharding_of(int dim) const {
    Sharding sharding = Sharding::replicated(*type_of(dim).shape);
    std::vector<std::string> axes = trial_.spec.axes;
    if (dim == kStacked) {
      axes.clear();
      for (const MeshAxis& axis : mesh_.axes()) axes.push_back(axis.name);
    }
    for (const std::string& axis : axes)
      sharding.dims[dim == kStacked ? 0 : static_cast<size_t>(dim)].parts[0].axes.push_back(
          AxisRef::whole(mesh_.axes()[static_cast<size_t>(*mesh_.find(axis))]));
    return sharding;
  }
  int64_t member_of(int rank) const {
    auto digits = dialect::digits_of(trial_.spec.axes, mesh_);
    int64_t member = 0;
    for (const auto& digit : digits.digits) member = member * digit.size + rank / digit.stride % digit.size;
    return member;
  }
  int64_t extent_of(int dim) const { return dim == 0 ? trial_.rows : trial_.columns; }
  std::vector<int64_t> bounds(int dim) const {
    std::vector<int64_t> ends = {0};
    for (int64_t m = 0; m < members(); ++m) ends.push_back(ends.back() + share(extent_of(dim), m, members()));
    return ends;
  }
  std::string extent_text(int dim) const {
    Expr index = 0;
    for (const std::string& axis : trial_.spec.axes) {
      AxisRef whole = AxisRef::whole(mesh_.axes()[static_cast<size_t>(*mesh_.find(axis))]);
      index = index * whole.size + index_along(whole, mesh_);
    }
    return split_extent(extent_of(dim), index, members()).str();
  }

  Node* add_node(Graph& graph, Value* data) const {
    const Spec& spec = trial_.spec;
    Node* node = graph.add_node(spec.op, {data}, {"result"}, spmd::kCommDomain);
    node->set("axes", spec.axes);
    const bool reduces = spec.op == "AllReduce" || spec.op == "ReduceScatter" || spec.op == "Reduce";
    if (reduces) node->set("reduction", std::string(name_of(spec.reduction)));
    const bool rooted = spec.op == "Broadcast" || spec.op == "Reduce" || spec.op == "Scatter" || spec.op == "Gather";
    if (rooted) node->set("root", spec.root);
    if (spec.op == "Permute") node->set("targets", spec.targets);
    if (spec.op == "AllToAll") {
      node->set("split_dim", spec.dim);
      node->set("concat_dim", spec.concat_dim);
      node->set("split_extent", extent_text(static_cast<int>(spec.dim)));
      node->set("concat_extent", extent_text(static_cast<int>(spec.concat_dim)));
    } else if (blocked()) {
      node->set("dim", spec.dim);
      node->set("extent", extent_text(static_cast<int>(spec.dim)));
    }
    return node;
  }
  bool blocked() const {
    const std::string& op = trial_.spec.op;
    return op == "ReduceScatter" || op == "AllGather" || op == "Scatter" || op == "Gather";
  }

  void add_call(OnnxModel& model, Value* data, std::optional<int64_t> rank, bool handles) const {
    Spec spec = trial_.spec;
    const bool reduces = spec.op == "AllReduce" || spec.op == "ReduceScatter" || spec.op == "Reduce";
    spec.float32 = reduces && bits_of(trial_.dtype) == 16;
    spec.boolean = trial_.dtype == DType::boolean;
    Graph& graph = *model.graph;
    dialect::Library library(mesh_, handles);
    std::vector<Value*> operands = {data};
    if (spec.op == "AllToAll" || blocked())
      operands.push_back(graph.constant_int64(bounds(static_cast<int>(spec.dim))));
    if (spec.op == "AllToAll") operands.push_back(graph.constant_int64(bounds(static_cast<int>(spec.concat_dim))));
    operands.push_back(rank ? graph.constant_int64({*rank}, true)
                            : graph.add_node("RankId", {}, {"rank"}, spmd::kCommDomain)->outputs[0]);
    Node* node = graph.add_node(library.name_of(spec), operands, {"result"}, spmd::kCommDomain);
    node->set("value", std::string("x"));
    node->set("dtype", static_cast<int64_t>(trial_.dtype));
    model.functions = library.take();
  }

  Value* cast(Graph& graph, Value* value, DType dtype) const {
    if (trial_.dtype == DType::float32) return value;
    Node* node = graph.add_node("Cast", {value}, {"cast"});
    node->set("to", static_cast<int64_t>(dtype));
    return node->outputs[0];
  }

  spmd::Program program_of(std::optional<int64_t> rank, Form form) const {
    OnnxModel model;
    Graph& graph = *model.graph;
    Shape local;
    for (const Expr& extent : local_shape(sharding_of(trial_.in), mesh_))
      local.push_back(rank ? bind_rank(extent, mesh_, mesh_.coordinates(*rank)) : extent);
    Value* x = graph.add_input("x", {DType::float32, local});
    Value* data =
        trial_.in == kStacked ? graph.add_node("Squeeze", {x, graph.constant_int64({0})}, {"layer"})->outputs[0] : x;
    data = cast(graph, data, trial_.dtype);
    if (form == Form::nodes)
      add_node(graph, data);
    else
      add_call(model, data, rank, form == Form::functions_of_handles);
    Value* result = cast(graph, graph.find("result"), DType::float32);
    if (trial_.out == kStacked)
      result = graph.add_node("Unsqueeze", {result, graph.constant_int64({0})}, {"y"})->outputs[0];
    graph.outputs = {result};
    const std::string name = result->name;
    dialect::settle(model, mesh_);
    fold_expression_nodes(graph, mesh_, rank);
    graph.verify("test");
    spmd::Program program;
    program.mesh = mesh_;
    program.graph = std::move(model.graph);
    program.inputs = {{"x", x}};
    program.outputs = {{"y", program.graph->find(name)}};
    program.placements[x] = {"x", type_of(trial_.in), sharding_of(trial_.in)};
    program.placements[program.outputs[0].value] = {"y", type_of(trial_.out), sharding_of(trial_.out)};
    return program;
  }

  Trial trial_;
  Mesh mesh_;
};

Floats integers(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  Floats values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 200) - 100);
  return values;
}

void expect_same(const Trial& trial, Form form = Form::functions) {
  SCOPED_TRACE(testing::Message() << trial.spec.op << " " << trial.spec.form << " " << trial.mesh << " "
                                  << name_of(trial.spec.reduction) << " root " << trial.spec.root << " of "
                                  << trial.rows << "x" << trial.columns);
  Harness harness(trial);
  const Floats x = integers(harness.elements(trial.in), 7);
  const Floats plain = harness.run(Form::nodes, x), lowered = harness.run(form, x);
  ASSERT_EQ(plain.size(), lowered.size());
  EXPECT_EQ(plain, lowered);
  EXPECT_TRUE(plain.empty() || std::memcmp(plain.data(), lowered.data(), plain.size() * sizeof(float)) == 0);
}

Spec spec_of(std::string op, std::string form, std::vector<std::string> axes = {"r"}) {
  Spec spec;
  spec.op = std::move(op);
  spec.form = std::move(form);
  spec.axes = std::move(axes);
  return spec;
}

std::string line(int64_t ranks) {
  return "r=" + std::to_string(ranks);
}

class AnyCount : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Lowering, AnyCount, testing::Range<int64_t>(1, 10));

// Rows that divide among the members, that do not, fewer than members, and none.
std::vector<int64_t> rows_for(int64_t members) {
  return {2 * members, 2 * members + 1, members / 2, 0};
}

TEST_P(AnyCount, all_reduce) {
  for (const char* form : {"ring", "doubling"})
    for (Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min, Reduction::mean}) {
      Spec spec = spec_of("AllReduce", form);
      spec.reduction = reduction;
      for (int64_t rows : rows_for(GetParam())) expect_same({spec, line(GetParam()), kStacked, kStacked, rows, 1});
    }
}

TEST_P(AnyCount, reduce_scatter) {
  for (const char* form : {"ring", "exchange"})
    for (int64_t dim : {0, 1}) {
      Spec spec = spec_of("ReduceScatter", form);
      spec.dim = dim;
      for (int64_t n : rows_for(GetParam()))
        expect_same({spec, line(GetParam()), kStacked, static_cast<int>(dim), dim ? 3 : n, dim ? n : 3});
    }
}

TEST_P(AnyCount, all_gather) {
  for (int64_t dim : {0, 1}) {
    Spec spec = spec_of("AllGather", "ring");
    spec.dim = dim;
    for (int64_t n : rows_for(GetParam()))
      expect_same({spec, line(GetParam()), static_cast<int>(dim), kStacked, dim ? 3 : n, dim ? n : 3});
  }
}

TEST_P(AnyCount, all_to_all) {
  for (int64_t split : {0, 1}) {
    Spec spec = spec_of("AllToAll", "pairwise");
    spec.dim = split;
    spec.concat_dim = 1 - split;
    for (int64_t n : rows_for(GetParam()))
      expect_same({spec, line(GetParam()), static_cast<int>(1 - split), static_cast<int>(split), n, 5});
  }
}

TEST_P(AnyCount, rooted) {
  for (int64_t root : {int64_t{0}, GetParam() / 2, GetParam() - 1})
    for (int64_t n : rows_for(GetParam())) {
      for (const char* op : {"Broadcast", "Reduce"}) {
        Spec spec = spec_of(op, "tree");
        spec.root = root;
        expect_same({spec, line(GetParam()), kStacked, kStacked, n, 2});
      }
      Spec scatter = spec_of("Scatter", "direct"), gather = spec_of("Gather", "direct");
      scatter.root = gather.root = root;
      expect_same({scatter, line(GetParam()), kStacked, 0, n, 2});
      expect_same({gather, line(GetParam()), 0, kStacked, n, 2});
    }
}

TEST_P(AnyCount, permute) {
  Spec spec = spec_of("Permute", "direct");
  for (int64_t member = 0; member < GetParam(); ++member) spec.targets.push_back((member + 2) % GetParam());
  expect_same({spec, line(GetParam()), kStacked, kStacked, 3, 2});
  spec.targets[0] = -1;  // the first sends nothing, and one gets nothing
  expect_same({spec, line(GetParam()), kStacked, kStacked, 3, 2});
}

// Groups whose ranks are not neighbours, and groups of several axes.
TEST(Lowering, groups_of_a_mesh) {
  for (const std::vector<std::string>& axes : std::vector<std::vector<std::string>>{
           {"a"}, {"b"}, {"c"}, {"a", "c"}, {"c", "a"}, {"b", "c"}, {"a", "b", "c"}}) {
    for (const char* form : {"ring", "doubling"})
      for (Form read : {Form::functions, Form::functions_of_a_rank})
        expect_same({spec_of("AllReduce", form, axes), "a=2,b=3,c=2", kStacked, kStacked, 5, 3}, read);
    expect_same({spec_of("AllGather", "ring", axes), "a=2,b=3,c=2", 0, kStacked, 13, 2});
    if (axes.size() > 1)
      expect_same({spec_of("AllReduce", "hierarchical", axes), "a=2,b=3,c=2", kStacked, kStacked, 5, 3});
  }
}

// Collectives without blocks are lowered for any number of members; the program is read as one for all of them.
TEST(Lowering, groups_of_many_members) {
  test::TemporaryFolder folder;
  const auto path = test::write_model(folder, "<ir_version: 10, opset_import: [\"\" : 24]>" + std::string(test::kPair));
  Plan plan;
  plan.shapes = {{"batch", 4096}};  // of 128 KiB
  plan.annotations = {{"up=[-, tp]", "annotation"}};
  WriteOptions options;
  options.form = ::tessera::Form::spmd;
  options.lower = Lower::primitives;
  compile(Model::load(path), Mesh::parse("dp=3,tp=100"), plan).write(folder / "out", options);
  const CheckReport report = check_program(Program::read(folder / "out"));
  EXPECT_TRUE(report.good()) << report.findings.front().message;
  EXPECT_EQ(report.models, 1);
  EXPECT_EQ(report.communications, 300 * 2 * (2 + 6)) << "36 of 100 fold in and out, 64 exchange six times";
  plan.annotations = {{"up=[-, tp]", "annotation"}, {"active=[-, -]", "annotation"}};
  try {
    compile(Model::load(path), Mesh::parse("dp=3,tp=100"), plan).write(folder / "out", options);
    ADD_FAILURE() << "an all-gather of 100 blocks is written";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("AllGather support up to 63"), std::string::npos) << error.what();
  }
}

// Both members add the same two values.
TEST(Lowering, sums_of_two_have_the_same_bits) {
  for (const char* form : {"ring", "doubling"}) {
    const Trial trial{spec_of("AllReduce", form), "r=2", kStacked, kStacked, 17, 3};
    Harness harness(trial);
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    Floats x(static_cast<size_t>(harness.elements(kStacked)));
    for (float& value : x) value = normal(random);
    EXPECT_EQ(harness.run(Form::nodes, x), harness.run(Form::functions, x)) << form;
  }
}

// If ranks are handles, positions and peers come from the dialect's own operators.
TEST(Lowering, handles_lead_to_the_same_members) {
  const std::string mesh = "a=2,b=3,c=2";
  for (const std::vector<std::string>& axes : std::vector<std::vector<std::string>>{{"b"}, {"a", "c"}, {"c", "b"}}) {
    const auto handles = Form::functions_of_handles;
    for (const char* form : {"ring", "doubling"})
      expect_same({spec_of("AllReduce", form, axes), mesh, kStacked, kStacked, 5, 3}, handles);
    expect_same({spec_of("AllGather", "ring", axes), mesh, 0, kStacked, 13, 2}, handles);
    for (const char* op : {"Broadcast", "Reduce"}) {
      Spec spec = spec_of(op, "tree", axes);
      spec.root = 2;
      expect_same({spec, mesh, kStacked, kStacked, 3, 2}, handles);
    }
    Spec scatter = spec_of("Scatter", "direct", axes);
    scatter.root = 1;
    expect_same({scatter, mesh, kStacked, 0, 7, 2}, handles);
    Spec permute = spec_of("Permute", "direct", axes);
    for (int64_t member = dialect::digits_of(axes, Mesh::parse(mesh)).size; member-- > 0;)
      permute.targets.push_back(member == 1 ? -1 : member);
    expect_same({permute, mesh, kStacked, kStacked, 3, 2}, handles);
  }
}

// The functions of AxisIndex and Neighbor compute the operators' results from the rank.
TEST(Lowering, positions_follow_from_the_rank) {
  const Mesh mesh = Mesh::parse("a=2,b=3,c=2");
  auto number = [&](const Spec& spec, int rank, bool lowered) {
    OnnxModel model;
    Graph& graph = *model.graph;
    dialect::Library library(mesh);
    Node* node = nullptr;
    if (lowered) {
      node = graph.add_node(library.name_of(spec), {graph.constant_int64({rank}, true)}, {"n"}, spmd::kCommDomain);
      model.functions = library.take();
    } else {
      node = graph.add_node(spec.op, {}, {"n"}, spmd::kCommDomain);
      if (spec.op == "Neighbor") {
        node->set("axes", spec.axes);
        node->set("offset", spec.offset);
      } else {
        node->set("axis", spec.axes[0]);
      }
    }
    graph.outputs = {node->outputs[0]};
    dialect::settle(model, mesh);
    fold_expression_nodes(graph, mesh, rank);
    EXPECT_EQ(graph.outputs[0]->rank(), 0u);
    return *bind_rank(graph.outputs[0]->content->front(), mesh, mesh.coordinates(rank)).constant();
  };
  for (int rank = 0; rank < mesh.size(); ++rank) {
    for (const char* axis : {"a", "b", "c"}) {
      const Spec spec = spec_of("AxisIndex", "arithmetic", {axis});
      EXPECT_EQ(number(spec, rank, true), number(spec, rank, false)) << axis << " of rank " << rank;
    }
    for (int64_t offset : {1, -1, 2}) {
      Spec spec = spec_of("Neighbor", "arithmetic", {"c", "b"});
      spec.offset = offset;
      EXPECT_EQ(number(spec, rank, true), number(spec, rank, false)) << offset << " from rank " << rank;
    }
  }
  Spec spec = spec_of("Neighbor", "arithmetic", {"b"});
  spec.offset = 1;
  EXPECT_EQ(number(spec, 4, true), 0) << "rank 4 is at 0 2 0: the next along b is at 0 0 0";
}

// Sums of 16-bit floats are rounded once, those of truth values are `or`, integers stay integers.
TEST(Lowering, element_types) {
  for (DType dtype : {DType::bfloat16, DType::float16, DType::int64, DType::int32, DType::float64, DType::boolean})
    for (Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min}) {
      SCOPED_TRACE(name_of(dtype));
      for (const char* form : {"ring", "doubling"}) {
        Spec spec = spec_of("AllReduce", form);
        spec.reduction = reduction;
        expect_same({spec, "r=5", kStacked, kStacked, 7, 3, dtype});
      }
      for (const char* form : {"ring", "exchange"}) {
        Spec spec = spec_of("ReduceScatter", form);
        spec.reduction = reduction;
        expect_same({spec, "r=5", kStacked, 0, 7, 3, dtype});
      }
      Spec spec = spec_of("Reduce", "tree");
      spec.reduction = reduction;
      expect_same({spec, "r=5", kStacked, kStacked, 7, 3, dtype});
    }
  expect_same({spec_of("AllGather", "ring"), "r=3", 0, kStacked, 7, 3, DType::bfloat16});
}

// Others than the root get zeros.
TEST(Lowering, what_the_root_gets) {
  Spec spec = spec_of("Reduce", "tree");
  spec.root = 1;
  const Floats x = {1, 2, 10, 20, 100, 200};
  for (Form form : {Form::nodes, Form::functions})
    EXPECT_EQ((Harness{{spec, "r=3", kStacked, kStacked, 1, 2}}.run(form, x)), (Floats{0, 0, 111, 222, 0, 0}));
  spec.op = "Gather";
  spec.form = "direct";
  for (Form form : {Form::nodes, Form::functions})
    EXPECT_EQ((Harness{{spec, "r=2", 0, kStacked, 3, 1}}.run(form, {1, 2, 3})), (Floats{0, 0, 0, 1, 2, 3}));
}

}  // namespace
}  // namespace tessera::program_io
