// Single operators whose operands and results are annotated: the answers are one device's, bit by bit.
#include "api/annotated.h"

namespace tessera::test {
namespace {

struct OperatorCase {
  std::string model;
  std::vector<std::string> specs;  // of the operands, then of the result
};

// An operator that is given the result's shape.
OperatorCase to_shape(const std::string& type, const std::string& from, const std::string& x, const std::string& to,
                      const std::string& y) {
  const auto rank = std::count(to.begin(), to.end(), ',') + 1;
  return {fmt::format("g (float[{}] x) => (float[{}] y) <int64[{}] s = {{{}}}> {{ y = {} (x, s) }}", from, to, rank, to,
                      type),
          {x, y}};
}

// The sharded operator tests of another engine (two devices, S split, R whole), which all of its rules were made for.
std::vector<OperatorCase> independent_cases() {
  std::vector<OperatorCase> all;
  auto matmul = [&](const std::string& a, const std::string& b, const std::string& y, const std::string& shape_a,
                    const std::string& shape_b, const std::string& shape_y) {
    all.push_back({fmt::format("g (float[{}] a, float[{}] b) => (float[{}] y) {{ y = MatMul (a, b) }}", shape_a,
                               shape_b, shape_y),
                   {a, b, y}});
  };
  for (const auto& [a, b, y] : std::vector<std::tuple<const char*, const char*, const char*>>{{"RS", "SR", "RR"},
                                                                                              {"RS", "RS", "RR"},
                                                                                              {"RS", "RS", "RS"},
                                                                                              {"SR", "RS", "RR"},
                                                                                              {"RR", "RS", "RS"},
                                                                                              {"RR", "SR", "RR"}})
    matmul(a, b, y, "6, 4", "4, 8", "6, 8");
  matmul("SRR", "RR", "SRR", "2, 6, 4", "4, 8", "2, 6, 8");
  matmul("SRR", "RRRR", "RSRR", "2, 6, 4", "3, 2, 4, 8", "3, 2, 6, 8");
  for (const char* split : {"SR", "RS"})
    all.push_back(
        {"g (float[4, 6] x) => (float[4, 2] y) <int64[1] s = {0}, int64[1] e = {2}, int64[1] a = {1}> "
         "{ y = Slice (x, s, e, a) }",
         {split, split}});
  for (const char* reduce : {"ReduceSum", "ReduceMax", "ReduceMean"})
    for (int axis : {0, 1})
      all.push_back({fmt::format("g (float[4, 8] x) => (float[{}] y) <int64[1] a = {{{}}}> {{ y = {} (x, a) }}",
                                 axis == 0 ? "1, 8" : "4, 1", axis, reduce),
                     {axis == 0 ? "RR" : "SR", "RR"}});
  auto expand = [&](const std::string& from, const std::string& to, const std::string& x, const std::string& y) {
    all.push_back(to_shape("Expand", from, x, to, y));
  };
  expand("8, 1", "8, 4", "RR", "RS");
  expand("8, 1", "8, 8", "RR", "RS@0101");
  expand("8, 1", "8, 4", "RR", "RR");
  expand("8, 1", "8, 4", "SR", "SR");
  expand("3, 4, 1, 2", "3, 4, 5, 2", "RSRR", "RSRR");
  auto reshape = [&](const std::string& from, const std::string& x, const std::string& to, const std::string& y) {
    all.push_back(to_shape("Reshape", from, x, to, y));
  };
  reshape("2, 3", "SR", "6", "S");
  reshape("2, 4", "RS", "8", "S@0101");
  reshape("2, 3, 5", "SRR", "6, 5", "SR");
  reshape("2, 4, 5", "RSR", "2, 20", "RS");
  reshape("2, 3, 6", "RRS", "2, 18", "RS@010101");
  reshape("6", "S", "2, 3", "SR");
  reshape("16", "S", "1, 16", "RS");
  for (const char* to : {"2, 8", "4, 4", "8, 2", "16, 1"}) reshape("16", "S", to, "SR");
  reshape("16", "S@0101", "1, 16", "RS@0101");
  reshape("16", "S@0101", "2, 8", "RS");
  for (const char* to : {"4, 4", "8, 2", "16, 1"}) reshape("16", "S@0101", to, "SR@0101");
  const char *merged = "21, 4096", *split = "3, 7, 4096", *heads = "3, 7, 64, 64";
  reshape(merged, "RS", split, "RRS");
  reshape(split, "RRS", merged, "RS");
  reshape(merged, "RR", split, "RRR");
  reshape(split, "RRR", merged, "RR");
  reshape(split, "RRS", heads, "RRSR");
  reshape(heads, "RRSR", split, "RRS");
  for (const char* last : {"64", "7"}) {
    const std::string apart = fmt::format("3, 64, 7, {}", last), joined = fmt::format("192, 7, {}", last);
    reshape(apart, "RSRR", joined, "SRR@010101");
    reshape(joined, "SRR@010101", apart, "RSRR");
  }
  return all;
}

// What that engine refuses, or computes wrongly.
std::vector<OperatorCase> refused_elsewhere() {
  const std::string batched = "g (float[2, 6, 4] a, float[2, 4, 8] b) => (float[2, 6, 8] y) { y = MatMul (a, b) }";
  const std::string plain = "g (float[6, 4] a, float[4, 8] b) => (float[6, 8] y) { y = MatMul (a, b) }";
  const std::string uneven = "g (float[5, 7] a, float[7, 3] b) => (float[5, 3] y) { y = MatMul (a, b) }";
  const std::string relu = "g (float[5, 7] x) => (float[5, 7] y) { y = Relu (x) }";
  std::vector<OperatorCase> all = {{batched, {"SRR", "SRR", "SRR"}},
                                   {batched, {"RRR", "SRR", "SRR"}},
                                   {batched, {"RRR", "RRR", "RSR"}},
                                   {plain, {"RR", "RR", "RR"}},
                                   {plain, {"RR", "RR", "SR"}},
                                   {plain, {"SS", "SR@01", "RR@0123"}},
                                   {plain, {"RS", "SR", "SR"}},
                                   {uneven, {"RS", "SR", "RR"}},
                                   {uneven, {"SR", "RR", "RS"}},
                                   {uneven, {"RR", "RR", "SS"}},
                                   {relu, {"SR", "RS"}},
                                   {relu, {"SS", "SS"}},
                                   {relu, {"RS", "SR@10"}},
                                   {relu, {"SR@012", "RS@012"}}};
  for (const auto& [reduce, extent] : {std::pair("ReduceSum", 7), {"ReduceMax", 7}, {"ReduceMean", 8}})
    for (const char* to : {"RR", "SR"})
      all.push_back({fmt::format("g (float[5, {}] x) => (float[5, 1] y) <int64[1] a = {{1}}> {{ y = {} (x, a) }}",
                                 extent, reduce),
                     {"RS", to}});
  auto reshape = [&](const std::string& from, const std::string& x, const std::string& to, const std::string& y) {
    all.push_back(to_shape("Reshape", from, x, to, y));
  };
  reshape("2, 3", "RS", "6", "S");
  reshape("6", "S", "3, 2", "SR");
  reshape("5, 6", "SR", "30", "S");
  reshape("4, 6", "SS", "24", "S@0123");
  return all;
}

class ShardedOperators : public DeviceAnnotations, public testing::WithParamInterface<OperatorCase> {};

TEST_P(ShardedOperators, GiveOneDevicesAnswer) {
  const OperatorCase& given = GetParam();
  OnnxModel parsed = parse_text(given.model);
  const Node& node = *parsed.graph->nodes()[0];
  std::vector<ShardingSpec> specs;
  int64_t devices = 1;
  for (size_t i = 0; i + 1 < given.specs.size(); ++i) specs.push_back(spec(node.inputs[i]->name, given.specs[i]));
  specs.push_back(spec("y", given.specs.back()));
  for (const ShardingSpec& one : specs)
    for (int64_t device : one.devices) devices = std::max(devices, device + 1);
  const Model annotated = model(given.model, devices, {{"y", specs}});
  const ConfiguredModel configured = annotated.configured("c");
  const Program program = compile(configured.model, Mesh::parse(configured.plan.mesh), configured.plan);
  EXPECT_EQ(program.mesh().size(), devices);
  EXPECT_TRUE(check_program(program).good());
  const Tensors inputs = integers(annotated);
  expect_same(Session(program, one_thread()).run(inputs),
              Session(compile(annotated, Mesh(), {}), one_thread()).run(inputs));
  const bool split = given.specs.back().find('S') != std::string::npos;
  const auto& outputs = program.impl().compiled->decisions.outputs;
  const std::string layout = outputs.begin()->second.str(program.mesh());
  EXPECT_EQ(layout.find("{d") != std::string::npos, split) << layout;
  for (size_t i = 0; i + 1 < specs.size(); ++i)
    EXPECT_EQ(layout_of(program, specs[i].tensor).find("{d") != std::string::npos, !specs[i].axes.empty());
}

INSTANTIATE_TEST_SUITE_P(Independent, ShardedOperators, testing::ValuesIn(independent_cases()));
INSTANTIATE_TEST_SUITE_P(RefusedElsewhere, ShardedOperators, testing::ValuesIn(refused_elsewhere()));

}  // namespace
}  // namespace tessera::test
