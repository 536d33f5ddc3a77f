// Partial or masked values may hold anything: NaN, infinities, both zeros, denormals, the largest finite numbers. Every
// operator gets, operand by operand, the result of a lookup, a sum or an extreme over a split dimension, annotated as
// partial; and every operator runs on such numbers under the shardings of its operands.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

#include "property/cases.h"
#include "property/shardings.h"
#include "property/trial.h"
#include "sample.h"
#include "tessera/base/error.h"
#include "tessera/ops/op.h"

namespace tessera::property {
namespace {

bool is_filled(const Value* value) {
  return value && is_float(value->dtype()) && (value->kind == ValueKind::input || value->kind == ValueKind::state);
}

Subject copy_of(const Subject& subject) {
  Subject copy = subject;
  copy.graph = subject.graph->clone();
  return copy;
}

void refill(Subject& subject, Value* value, Fill fill, uint64_t seed) {
  Tensor data = filled(value->dtype(), subject.dims_of(value), fill, seed);
  (value->kind == ValueKind::state ? value->data : subject.inputs.at(value->name)) = std::move(data);
}

/// How a partial value is made, and what it and others hold. Sums of large numbers are left out: whether they overflow
/// depends on their order.
struct Maker {
  std::string_view op;
  Reduction reduction;
  Fill fill;
};
constexpr Maker kMakers[] = {{"Gather", Reduction::sum, Fill::special},
                             {"ReduceMax", Reduction::max, Fill::special},
                             {"ReduceMin", Reduction::min, Fill::special},
                             {"ReduceSum", Reduction::sum, Fill::special_integers}};
constexpr int64_t kRows = 3;

/// The subject with operand `index` of its node made of a table of three of its kind, and the other float operands
/// filled with special numbers if `others` says so. Nullopt where the operator refuses an operand that is not a
/// constant.
struct Derived {
  Subject subject;
  std::vector<spmd::Annotation> annotations;
};
std::optional<Derived> derived(const Subject& original, size_t index, const Maker& maker, bool others,
                               const Mesh& mesh) {
  Derived made{copy_of(original), {}};
  Subject& subject = made.subject;
  Graph& graph = *subject.graph;
  Node* node = graph.nodes().front().get();
  const Value* operand = node->inputs[index];
  subject.name += fmt::format(", operand {} of {}{}", index, maker.op, others ? ", others special" : "");
  uint64_t seed = seed_of(subject.name);
  Shape shape = operand->shape();
  shape.insert(shape.begin(), Expr(kRows));
  Value* table = graph.add_input("table", {operand->dtype(), shape});
  subject.inputs["table"] = {};
  refill(subject, table, maker.fill, seed++);
  Value* which = maker.op == "Gather" ? graph.constant_int64({1}, true) : graph.constant_int64({0});
  Node* makes = graph.add_node(maker.op, {table, which}, {"part"}, "", node);
  makes->set(maker.op == "Gather" ? "axis" : "keepdims", int64_t{0});
  graph.set_input(node, index, makes->outputs[0]);
  for (Value* other : node->inputs)
    if (others && is_filled(other)) refill(subject, other, maker.fill, seed++);
  // Products of a sum's parts by numbers other than integers are rounded apart.
  if (maker.op == "ReduceSum") subject.bound.relative = std::max(subject.bound.relative, kReordered.relative);
  try {
    ops::infer_types(graph);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user) << error.what();
    return std::nullopt;
  }
  Sharding rows = Sharding::replicated(shape), part = Sharding::replicated(makes->outputs[0]->shape());
  const AxisRef axis = AxisRef::whole(mesh.axes()[0]);
  rows.dims[0].parts = {Part{kRows, {axis}}};
  part.partial = {{axis, maker.reduction}};
  made.annotations = {{table, rows, "test"}, {makes->outputs[0], part, "test"}};
  return made;
}

// Those that have a case with an operand of floats.
std::vector<OperatorKey> operators_on_floats() {
  std::vector<OperatorKey> keys;
  for (const auto& [key, subjects] : cases_by_operator())
    if (std::any_of(subjects.begin(), subjects.end(), [](const Subject& subject) {
          const auto& values = subject.graph->values();
          return std::any_of(values.begin(), values.end(), [](const auto& value) { return is_filled(value.get()); });
        }))
      keys.push_back(key);
  return keys;
}

class Specials : public testing::TestWithParam<OperatorKey> {};

TEST_P(Specials, PassNoOperatorThatIsNotLinearInThem) {
  int right = 0;
  size_t turn = 0;
  for (const Subject& original : cases_by_operator().at(GetParam())) {
    const auto& operands = original.graph->nodes().front()->inputs;
    for (size_t index = 0; index < operands.size(); ++index) {
      if (!is_filled(operands[index])) continue;
      const Mesh mesh({{"x", turn % 2 == 0 ? 2 : 3}});
      // Lookups for all, and one of the others.
      const size_t other = 1 + turn++ % (std::size(kMakers) - 1);
      for (size_t m = 0; m < std::size(kMakers); ++m) {
        if (!test::tries_all() && m != 0 && m != other) continue;
        for (bool others : {false, true}) {
          auto made = derived(original, index, kMakers[m], others, mesh);
          if (!made) continue;
          SCOPED_TRACE(made->subject.name);
          Trials trials(made->subject);
          trials.run(mesh, made->annotations);
          right += trials.right();
        }
      }
    }
  }
  if (turn == 0) GTEST_SKIP() << "its own node reads no floats";
  EXPECT_GT(right, 0);
}

TEST_P(Specials, AreWhereOneRankHasThem) {
  const std::vector<Mesh> meshes = {Mesh({{"x", 2}}), Mesh({{"x", 3}})};
  size_t turn = 0;
  for (const Subject& original : cases_by_operator().at(GetParam())) {
    Subject subject = copy_of(original);
    uint64_t seed = seed_of(subject.name + " special");
    bool any = false;
    for (const auto& value : subject.graph->values())
      if (is_filled(value.get())) {
        refill(subject, value.get(), Fill::special_integers, seed++);
        any = true;
      }
    if (!any) continue;
    SCOPED_TRACE(subject.name + ", special");
    Trials trials(subject);
    for (const Value* value : subject.annotatable())
      for (const Mesh& mesh : meshes)
        for (const Sharding& sharding : single_shardings(value->shape(), AxisRef::whole(mesh.axes()[0]), 0))
          if (test::tries_all() || turn++ % 2 == 0) trials.run(mesh, {{value, sharding, "test"}});
  }
}

// Rows that are -inf on some ranks and on all, or have an infinity or NaN on one.
TEST(SpecialRows, AreNormalizedAsOnOneRank) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const std::string type : {"Softmax", "LogSoftmax"}) {
    Builder builder(type + " of special rows");
    Value* x = builder.input("5 4");
    Value* y = builder.node(type, {x}, {axis(1)});
    Subject subject = builder.output(y).done(kNormalized);
    subject.inputs[x->name] = Tensor::of<float>(
        DType::float32, {5, 4},
        {-kInf, -kInf, 1, 2, -kInf, -kInf, -kInf, -kInf, 3, kInf, 1, 2, kNaN, 1, 2, -kInf, 9, 8, 7, -kInf});
    SCOPED_TRACE(subject.name);
    Trials trials(subject);
    for (int64_t ranks : {2, 3, 4, 6}) {
      const Mesh mesh({{"x", ranks}});
      for (const Value* value : {x, y})
        for (const Sharding& sharding : single_shardings(value->shape(), AxisRef::whole(mesh.axes()[0]), 2))
          trials.run(mesh, {{value, sharding, "test"}});
    }
    EXPECT_GT(trials.right(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Property, Specials, testing::ValuesIn(operators_on_floats()),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace tessera::property
