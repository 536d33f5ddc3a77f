#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "api/small_model.h"
#include "tessera/compare.h"
#include "tessera/inspect.h"
#include "tessera/profile.h"

namespace tessera {
namespace {

using test::kPair;
using test::TemporaryFolder;
using test::write_model;
using testing::HasSubstr;

std::string error_of(const Model& model, const std::vector<std::string>& names) {
  try {
    static_cast<void>(model.with_outputs(names));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    return error.what();
  }
  return "no error";
}

TEST(Outputs, may_be_any_result_of_a_node) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, kPair));
  const Tensors inputs = {{"x", test::ramp({3, 8})}};
  const Tensors all = Session(compile(model.with_outputs({"active", "y", "hidden"}), Mesh())).run(inputs);
  EXPECT_EQ(all.size(), 3u);
  EXPECT_TRUE(compare("y", Session(compile(model, Mesh())).run(inputs).at("y"), all.at("y"), {0.0, 0.0}).pass);
  for (const char* mesh : {"tp=2", "dp=2", "tp=3"}) {
    const Tensors some = Session(compile(model.with_outputs({"active"}), Mesh::parse(mesh))).run(inputs);
    ASSERT_EQ(some.size(), 1u);
    EXPECT_TRUE(compare("active", all.at("active"), some.at("active")).pass) << mesh;
  }
  EXPECT_EQ(inspect(model.with_outputs({"hidden"})).read.size(), 1u) << "the rest is not computed";
  EXPECT_EQ(model.outputs().size(), 1u) << "the model itself stays as it is";
}

TEST(Outputs, that_cannot_be_are_refused) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, kPair));
  EXPECT_THAT(error_of(model, {"hiden"}), HasSubstr("[outputs] no node of the model makes a tensor 'hiden'; did you "
                                                    "mean 'hidden'?"));
  EXPECT_THAT(error_of(model, {"x"}), HasSubstr("no node of the model makes a tensor 'x'"));
  EXPECT_THAT(error_of(model, {"y", "y"}), HasSubstr("named twice"));
  EXPECT_THAT(error_of(model, {}), HasSubstr("name at least one tensor"));
}

TEST(Figures, count_a_body_once_for_each_iteration) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, R"(<ir_version: 10, opset_import: ["" : 21]>
g (float[b, 8] s, float[t, b, 8] x) => (float[b, 8] y) <float[8, 8] w> {
  y = Scan <num_scan_inputs = 1, body = step (float[b, 8] h, float[b, 8] v) => (float[b, 8] h2) {
    p = MatMul (h, w)
    h2 = Add (p, v)
  }> (s, x)
})"));
  Plan plan;
  plan.annotations = {{"w=[tp, -]"}};
  const Program one = compile(model, Mesh()), two = compile(model, Mesh::parse("tp=2"), plan);
  for (const int64_t t : {1, 9}) {
    const SymbolSizes sizes = {{"b", 6}, {"t", t}};
    EXPECT_EQ(one.figures(0, sizes).flops, t * (2 * 6 * 8 * 8 + 6 * 8));
    EXPECT_EQ(inspect(model, sizes).flops, one.figures(0, sizes).flops);
    SessionOptions options;
    options.profile = true;
    Session session(two, options);
    session.run({{"s", test::ramp({6, 8})}, {"x", test::ramp({t, 6, 8})}});
    for (const RankProfile& rank : session.profile().ranks)
      for (const char* op : {"MatMul", "Add"}) {
        const auto is_op = [&](const ProfileEvent& event) { return event.op == op; };
        EXPECT_EQ(std::count_if(rank.events.begin(), rank.events.end(), is_op), t) << op;
      }
  }
  plan.shapes = {{"b", 6}, {"t", 9}};
  const Program sized = compile(model, Mesh::parse("tp=2"), plan);
  ASSERT_EQ(sized.summary().collectives.size(), 1u);
  EXPECT_EQ(sized.summary().collectives[0].count, 9);
}

TEST(Figures, of_ranks_add_up_to_those_of_one) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, kPair));
  const RankFigures one = compile(model, Mesh()).figures(0, {{"batch", 6}});
  EXPECT_EQ(one.flops, 2 * 2 * 6 * 8 * 32 + 6 * 32) << "two products and a Relu";
  EXPECT_EQ(one.parameter_bytes, 4 * 2 * 8 * 32);
  for (const char* mesh : {"tp=2", "tp=5", "dp=4"}) {
    const Program program = compile(model, Mesh::parse(mesh));
    RankFigures sum;
    for (int64_t rank = 0; rank < program.mesh().size(); ++rank) {
      const RankFigures figures = program.figures(rank, {{"batch", 6}});
      EXPECT_EQ(figures.peak_bytes, program.peak_bytes(rank, {{"batch", 6}}));
      EXPECT_GT(figures.peak_bytes, figures.parameter_bytes);
      sum.flops += figures.flops;
      sum.parameter_bytes += figures.parameter_bytes;
    }
    EXPECT_EQ(sum.flops, one.flops) << mesh;
    EXPECT_EQ(sum.parameter_bytes, one.parameter_bytes * (mesh[0] == 'd' ? 4 : 1)) << mesh;
  }
}

}  // namespace
}  // namespace tessera
