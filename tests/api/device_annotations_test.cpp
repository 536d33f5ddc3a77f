// ONNX's device annotations (IR version 11) are carried out: the answers are one device's, tensors lie as their lists
// say, and what cannot be is named.
#include <sstream>

#include "api/annotated.h"
#include "tessera/inspect.h"

namespace tessera::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr std::string_view kRelu = "g (float[2, 2] x) => (float[2, 2] y) { y = Relu (x) }";

// The examples of the standard: a 2x2 tensor in two, four and two times two shards, and groups.
TEST_F(DeviceAnnotations, FollowTheStandardsExamples) {
  auto relu = [&](ShardingSpec of_x) {
    ShardingSpec of_y = of_x;
    of_x.tensor = "x";
    of_y.tensor = "y";
    return layout_of(expect_followed(model(kRelu, 4, {{"y", {of_x, of_y}}})), "y");
  };
  EXPECT_EQ(relu({"", {0, 1}, {}, {{0, {{2, "", 2}}}}}), "[2{d}, -]");
  EXPECT_EQ(relu({"", {0, 1}, {}, {{1, {{2, "", 2}}}}}), "[-, 2{d}]");
  EXPECT_EQ(relu({"", {0, 1, 2, 3}, {}, {{0, {{2, "", 2}}}, {1, {{2, "", 2}}}}}), "[2{d0}, 2{d1}]");
  EXPECT_EQ(relu({"", {-1}, {{-1, {0, 1}}}, {}}), "[-, -]");
  EXPECT_EQ(relu({"", {-1, -2}, {{-1, {0, 1}}, {-2, {2, 3}}}, {{0, {{2, "", 2}}}}}), "[2{d0}, -]");
  EXPECT_EQ(relu({"", {-1, -2}, {{-1, {0, 2}}, {-2, {1, 3}}}, {{-1, {{2, "", 2}}}}}), "[-, 2{d1}]");
}

// A dimension that a reshape has made of several says each factor's shards.
TEST_F(DeviceAnnotations, SplitFactorsOfADimension) {
  const std::string text = "g (float[6, 2] x) => (float[6, 2] y) { y = Relu (x) }";
  const ShardingSpec middle{"y", {0, 1}, {}, {{0, {{3, "", 1}, {2, "", 2}}}}};
  EXPECT_EQ(layout_of(expect_followed(model(text, 2, {{"y", {middle}}})), "y"), "[3·2{d}, -]");
  const ShardingSpec both{"y", {0, 1, 2, 3, 4, 5}, {}, {{0, {{std::nullopt, "", 3}, {2, "", 2}}}}};
  EXPECT_EQ(layout_of(expect_followed(model(text, 6, {{"y", {both}}})), "y"), "[3{d0}·2{d1}, -]");
}

// Add of [M, 1] and [1, N], whose splits compose: shard [i, j] is where shard i of one and shard j of the other are.
TEST_F(DeviceAnnotations, ComposeWhatIsBroadcast) {
  const std::string text = "g (float[4, 1] a, float[1, 6] b) => (float[4, 6] y) { y = Add (a, b) }";
  const ShardingSpec a{"a", {-1, -2}, {{-1, {0, 1}}, {-2, {2, 3}}}, {{0, {{4, "", 2}}}}};
  const ShardingSpec b{"b", {-1, -2}, {{-1, {0, 2}}, {-2, {1, 3}}}, {{1, {{6, "", 2}}}}};
  const Model added = model(text, 4, {{"y", {a, b}}});
  EXPECT_EQ(layout_of(expect_followed(added), "y"), "[4{d0}, 6{d1}]");
  const std::vector<ShardingSpec> specs = said(added.completed("c"), "y");
  ASSERT_EQ(specs.size(), 3U);
  EXPECT_EQ(specs[2], (ShardingSpec{"y", {0, 1, 2, 3}, {}, {{0, {{4, "", 2}}}, {1, {{6, "", 2}}}}}));
}

constexpr std::string_view kChain = R"(
chain (float[4, 8] x) => (float[4, 8] y) <float[8, 16] up, float[16, 8] down> {
  h = MatMul (x, up)
  r = Relu (h)
  y = MatMul (r, down)
})";

// What one node says leaves the rest to propagation; a whole result is reduced to.
TEST_F(DeviceAnnotations, CompleteAPairOfProducts) {
  const Model pair = model(kChain, 2, {{"h", {spec("up", "RS")}}, {"y", {spec("y", "RR")}}});
  const Program program = expect_followed(pair);
  EXPECT_EQ(layout_of(program, "down"), "[16{d}, -]");
  ASSERT_EQ(program.summary().collectives.size(), 1U);
  EXPECT_EQ(program.summary().collectives[0].kind, "all_reduce");
  const Model completed = pair.completed("c");
  auto at = [&](const std::string& node, size_t index) { return said(completed, node).at(index); };
  auto sized = [](ShardingSpec spec, int64_t size) {
    spec.axes[0].factors[0].size = size;
    return spec;
  };
  EXPECT_EQ(at("h", 0), spec("up", "RS")) << "what is said stays";
  EXPECT_EQ(at("h", 1), spec("x", "RR"));
  EXPECT_EQ(at("h", 2), sized(spec("h", "RS"), 16));
  EXPECT_EQ(at("r", 0), sized(spec("h", "RS"), 16));
  EXPECT_EQ(at("y", 0), spec("y", "RR"));
  EXPECT_EQ(at("y", 1), sized(spec("r", "RS"), 16));
  EXPECT_EQ(at("y", 2), sized(spec("down", "SR"), 16));
  EXPECT_THAT(faults(completed), IsEmpty());
  EXPECT_EQ(layout_of(expect_followed(completed), "down"), "[16{d}, -]");
  for (const char* node : {"h", "r", "y"}) EXPECT_EQ(said(completed.completed("c"), node), said(completed, node));
}

// An operand that two nodes want in two layouts, and a result that its node wants in one that its reader does not.
TEST_F(DeviceAnnotations, GiveEachReaderItsLayout) {
  const std::string text = R"(
    two (float[4, 6] x) => (float[4, 6] y, float[4, 6] z) {
      h = Relu (x)
      y = Neg (h)
      z = Abs (h)
    })";
  const Model both = model(text, 2, {{"y", {spec("h", "SR")}}, {"z", {spec("h", "RS")}}});
  EXPECT_EQ(layout_of(expect_followed(both), "y"), "[4{d}, -]");
  EXPECT_EQ(layout_of(expect_followed(both), "z"), "[-, 6{d}]");
  const Program turned = expect_followed(model(text, 2, {{"h", {spec("h", "SR")}}, {"z", {spec("h", "RS")}}}));
  EXPECT_EQ(layout_of(turned, "h"), "[4{d}, -]");
  EXPECT_EQ(layout_of(turned, "z"), "[-, 6{d}]");
  ASSERT_EQ(turned.summary().collectives.size(), 1U);
  EXPECT_EQ(turned.summary().collectives[0].kind, "all_to_all");
  const Program inputs =
      expect_followed(model("g (float[4, 6] x) => (float[4, 6] y, float[4, 6] z) { y = Neg (x)\n z = Abs (x) }", 2,
                            {{"y", {spec("x", "SR")}}, {"z", {spec("x", "RS")}}}));
  EXPECT_EQ(layout_of(inputs, "y"), "[4{d}, -]");
  EXPECT_EQ(layout_of(inputs, "z"), "[-, 6{d}]");
}

// Nodes run where their operands are; what makes a result elsewhere sends it.
TEST_F(DeviceAnnotations, RunOnTheDevicesOfTheList) {
  const Program program = expect_followed(
      model(kChain, 4, {{"h", {spec("up", "RS@01"), spec("h", "RS@01")}}, {"y", {spec("down", "SR@23")}}}));
  EXPECT_EQ(program.mesh().str(), "d0=2,d1=2");
  for (int64_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(program.figures(rank).parameter_bytes, 8 * 16 * 4 / 2) << "one of the two products' weights";
  expect_followed(model(kChain, 4, {{"h", {spec("x", "RR@01"), spec("h", "RS@23")}}}));
  expect_followed(model(kChain, 3, {{"h", {spec("x", "RR@0"), spec("h", "RR@1")}}, {"y", {spec("r", "RR@2")}}}));
  const ConfiguredModel some = model(kChain, 8, {{"h", {spec("up", "RS@52")}}}).configured("c");
  EXPECT_THAT(some.devices, ElementsAre(5, 2)) << "devices that nobody names have no rank";
}

TEST_F(DeviceAnnotations, RunInStages) {
  auto staged = [&](std::optional<int64_t> h, std::optional<int64_t> y, int64_t devices,
                    const std::vector<ShardingSpec>& of_y = {}) {
    return model(kChain, {{"c", devices, {}}}, {{"h", {{"c", {}, h}}}, {"y", {{"c", of_y, y}}}});
  };
  for (const auto& [first, second] : {std::pair(0, 1), {1, 2}, {3, 7}}) {
    const Program program = expect_followed(staged(first, second, 2));
    EXPECT_EQ(program.mesh().str(), "d=2");
    for (int64_t rank = 0; rank < 2; ++rank) EXPECT_EQ(program.figures(rank).parameter_bytes, 8 * 16 * 4);
  }
  const Program both = expect_followed(staged(0, 1, 4, {spec("down", "SR@23")}));
  EXPECT_EQ(layout_of(both, "down"), "[16{d1}, -] at(d0=1)");
  EXPECT_EQ(layout_of(both, "up"), "[-, 16{d1}] at(d0=0)") << "as its result is used";
  const ConfiguredModel one = staged(0, 0, 2).configured("c");
  EXPECT_EQ(one.plan.mesh, "");
  EXPECT_THAT(one.warnings, ElementsAre(HasSubstr("no node says how it is split over the devices of 'c'")));
  EXPECT_EQ(expect_followed(staged(0, 1, 1)).mesh().size(), 1);
}

// More devices than stages, none of which splits anything: those of a stage do the same.
TEST_F(DeviceAnnotations, RunAStageOnAllItsDevices) {
  const Program program =
      expect_followed(model(kChain, {{"c", 4, {}}}, {{"h", {{"c", {}, 0}}}, {"y", {{"c", {}, 1}}}}));
  EXPECT_EQ(program.mesh().size(), 4);
  for (int64_t rank = 0; rank < 4; ++rank) EXPECT_EQ(program.figures(rank).parameter_bytes, 8 * 16 * 4);
}

// Each of a thousand devices is in lists that fit, that fit in another order, and that fit no mesh.
TEST_F(DeviceAnnotations, FindMeshesOfManyDevices) {
  constexpr int64_t kDevices = 1024;
  const std::string text = "g (float[1024] x) => (float[1024] y, float[1024] z) { y = Relu (x)\n z = Neg (y) }";
  ShardingSpec all{"x", {}, {}, {{0, {{kDevices, "", kDevices}}}}}, turned = all, odd{"y", {}, {}, {}};
  turned.tensor = "z";
  for (int64_t device = 0; device < kDevices; ++device) {
    all.devices.push_back(device);
    turned.devices.push_back((device * 5 + 7) % kDevices);
    if (device > 0) odd.devices.push_back(device);
  }
  const ConfiguredModel configured = model(text, kDevices, {{"y", {all, odd}}, {"z", {turned}}}).configured("c");
  EXPECT_EQ(configured.plan.mesh, "d=1024");
  EXPECT_THAT(configured.warnings, testing::SizeIs(2));
}

TEST_F(DeviceAnnotations, SplitOverAllDevicesWithoutAList) {
  ShardingSpec unlisted{"up", {}, {}, {{1, {{16, "", 4}}}}};
  EXPECT_EQ(layout_of(expect_followed(model(kChain, 4, {{"h", {unlisted}}})), "up"), "[-, 16{d}]");
  unlisted.axes[0].factors[0].shards = 2;
  EXPECT_THAT(faults(model(kChain, 4, {{"h", {unlisted}}})),
              ElementsAre(HasSubstr("split into 2 shards and lists no devices, of which there are 4")));
}

TEST_F(DeviceAnnotations, HaveOnePlanPerConfiguration) {
  const Model both =
      model(kChain, {{"rows", 2, {"a", "b"}}, {"columns", 3, {}}},
            {{"h", {{"rows", {spec("x", "SR")}, std::nullopt}, {"columns", {spec("up", "RS@012")}, std::nullopt}}}});
  EXPECT_THAT(both.configurations(), ElementsAre("rows", "columns"));
  EXPECT_EQ(layout_of(expect_followed(both, "rows"), "y"), "[4{d}, -]");
  EXPECT_EQ(layout_of(expect_followed(both, "columns"), "up"), "[-, 16{d}]");
  EXPECT_THROW(both.configured("cells"), Error);
  const Model third = both.annotated(Mesh::parse("dp=2,tp=2"), {}, "ours");
  EXPECT_THAT(third.configurations(), ElementsAre("rows", "columns", "ours"));
  EXPECT_EQ(expect_followed(third, "ours").mesh().str(), "dp=2,tp=2");
  EXPECT_EQ(layout_of(expect_followed(third, "rows"), "y"), "[4{d}, -]");
  EXPECT_THAT(both.annotated(Mesh::parse("dp=2"), {}, "rows").configurations(), ElementsAre("columns", "rows"));
}

// What has no layout is followed as nearly as can be, and said.
TEST_F(DeviceAnnotations, SayWhatTheyCannotFollow) {
  auto warnings = [&](std::string_view text, int64_t devices,
                      const std::map<std::string, std::vector<ShardingSpec>>& specs) {
    const Model annotated = model(text, devices, specs);
    const ConfiguredModel configured = annotated.configured("c");
    const Program program = compile(configured.model, Mesh::parse(configured.plan.mesh), configured.plan);
    const Tensors inputs = integers(annotated);
    expect_same(Session(program, one_thread()).run(inputs),
                Session(compile(annotated, Mesh(), {}), one_thread()).run(inputs));
    std::vector<std::string> all = configured.warnings;
    all.insert(all.end(), program.summary().warnings.begin(), program.summary().warnings.end());
    return all;
  };
  EXPECT_THAT(warnings("g (float[7] x) => (float[7] y) { y = Relu (x) }", 2, {{"y", {spec("y", "S@0101")}}}),
              ElementsAre(AllOf(HasSubstr("Relu producing 'y': 'y' [7] in 4 shards on devices 0,1,0,1"),
                                HasSubstr("it lies as [{d}]"))));
  EXPECT_THAT(warnings(kRelu, 2, {{"y", {spec("x", "SR@01"), spec("y", "SR@10")}}}),
              ElementsAre(HasSubstr("in 2 shards on devices 1,0 has no layout of its own")));
  const ShardingSpec ones{"x", {0, 1}, {}, {{0, {{2, "", 1}, {1, "", 2}}}}};
  EXPECT_THAT(warnings(kRelu, 2, {{"y", {ones}}}), ElementsAre(HasSubstr("it lies in blocks there")));
  const std::string copied =
      "g (float[4] x) => (float[4] y, float[4] z) { i = Identity (x)\n y = Relu (i)\n z = Neg (i) }";
  EXPECT_THAT(warnings(copied, 2, {{"i", {spec("x", "S")}}, {"y", {spec("y", "R@1")}}, {"z", {spec("z", "R@0")}}}),
              testing::Each(HasSubstr("the place is followed, and the layout is not")));
  EXPECT_THAT(warnings(kRelu, 4, {{"y", {spec("x", "SR@01"), spec("y", "RR@012")}}}), Not(IsEmpty()));
}

TEST_F(DeviceAnnotations, NameEveryFault) {
  auto fault = [&](const ShardingSpec& of_y, std::vector<DeviceConfiguration> configurations = {{"c", 4, {}}}) {
    return faults(model(kRelu, configurations, {{"y", {{"c", {of_y}, std::nullopt}}}}));
  };
  const std::string where = "Relu producing 'y', configuration 'c', ";
  auto only = [&](const std::string& what) { return ElementsAre(AllOf(HasSubstr(where), HasSubstr(what))); };
  EXPECT_THAT(fault({"y", {0, 1}, {}, {{0, {{2, "", 2}}}}}), IsEmpty());
  EXPECT_THAT(fault({"z", {0, 1}, {}, {}}), only("'z': it is neither an operand nor a result of the node"));
  EXPECT_THAT(fault({"y", {0, 1}, {}, {{2, {{2, "", 2}}}}}), only("'y': it has no axis 2: it is [2, 2]"));
  EXPECT_THAT(fault({"y", {0, 1}, {}, {{-3, {{2, "", 2}}}}}), only("it has no axis -3"));
  EXPECT_THAT(fault({"y", {0, 1, 2, 3}, {}, {{1, {{2, "", 2}}}, {-1, {{2, "", 2}}}}}),
              only("its axis -1 is split twice"));
  EXPECT_THAT(fault({"y", {0, 4}, {}, {{0, {{2, "", 2}}}}}), only("names 4, which is neither a device, as 0 to 3"));
  EXPECT_THAT(fault({"y", {0, -1}, {}, {{0, {{2, "", 2}}}}}), only("names -1"));
  EXPECT_THAT(fault({"y", {0, 1, 2}, {}, {{0, {{2, "", 2}}}}}),
              only("split into 2 shards, but its list has 3 entries"));
  EXPECT_THAT(fault({"y", {0}, {}, {{0, {{2, "", 2}}}, {1, {{2, "", 2}}}}}), only("into 4 shards, but its list has 1"));
  EXPECT_THAT(fault({"y", {-1, -2}, {{-1, {0, 1}}, {-2, {1, 2}}}, {{0, {{2, "", 2}}}}}),
              only("the device 1 is in two different groups, [0, 1] and [1, 2]"));
  EXPECT_THAT(fault({"y", {-1, 1}, {{-1, {0, 1}}}, {{0, {{2, "", 2}}}}}), only("[0, 1] and [1]"));
  EXPECT_THAT(fault({"y", {-1, -2}, {{-1, {0, 1}}, {-2, {0, 1}}}, {{0, {{2, "", 2}}}}}), IsEmpty()) << "equal groups";
  EXPECT_THAT(fault({"y", {-1, 2}, {{-1, {0, 7}}}, {{0, {{2, "", 2}}}}}), only("the group -1 has the device 7"));
  EXPECT_THAT(fault({"y", {-1, 2}, {{-1, {0, 0}}}, {{0, {{2, "", 2}}}}}), only("names the device 0 twice"));
  EXPECT_THAT(fault({"y", {-1, 2}, {{-1, {}}}, {{0, {{2, "", 2}}}}}), only("the group -1 has no devices"));
  EXPECT_THAT(fault({"y", {-1}, {{-1, {0}}, {-1, {0}}}, {}}), only("the group -1 is defined twice"));
  EXPECT_THAT(fault({"y", {0}, {}, {{0, {{2, "", 0}}}}}), only("split into 0 shards"));
  EXPECT_THAT(fault({"y", {0}, {}, {{0, {}}}}), only("listed, but not split"));
  EXPECT_THAT(fault({"y", {0, 1}, {}, {{0, {{3, "", 2}}}}}), only("multiply to 3, but it has 2 elements"));
  EXPECT_THAT(fault({"y", {0, 1}, {}, {{0, {{3, "", 2}, {std::nullopt, "", 1}}}}}),
              only("do not divide its 2 elements"));
  EXPECT_THAT(fault({"y", {0, 1}, {}, {{0, {{std::nullopt, "a", 2}, {std::nullopt, "b", 1}}}}}),
              only("two factors of its axis 0 have no size"));
  EXPECT_THAT(fault({"y", {0, 1}, {}, {{0, {{0, "", 2}}}}}), only("a factor of its axis 0 has 0 elements"));
  EXPECT_THAT(fault({"y", {}, {}, {{0, {{2, "", 1LL << 40}}}, {1, {{2, "", 1LL << 40}}}}}),
              ElementsAre(HasSubstr("shards and lists no devices, of which there are 4")));
  EXPECT_THAT(fault({"y", {0}, {}, {{0, {{1LL << 62, "", 1}, {1LL << 62, "", 1}}}}}), only("more than 64 bits hold"));
  const ShardingSpec good{"y", {0, 1}, {}, {{0, {{2, "", 2}}}}};
  EXPECT_THAT(fault(good, {}), ElementsAre(HasSubstr("the model has no such configuration, nor any other")));
  EXPECT_THAT(fault(good, {{"d", 2, {}}}), ElementsAre(HasSubstr("no such configuration, but has 'd'")));
  EXPECT_THAT(fault(good, {{"c", 0, {}}}), ElementsAre(HasSubstr("it has 0 devices")));
  EXPECT_THAT(fault(good, {{"c", 2'000'000'000, {}}}), ElementsAre(HasSubstr("give it 1 to 1048576")));
  EXPECT_THAT(check_annotations(model(kRelu, {{"", 2, {}}}, {})).at(0).message, HasSubstr("it has no name"));
  EXPECT_THAT(fault(good, {{"c", 2, {"a"}}}), ElementsAre(HasSubstr("it has 2 devices, but names 1")));
  EXPECT_THAT(fault(good, {{"c", 2, {}}, {"c", 2, {}}}), ElementsAre(HasSubstr("two of this name")));
  EXPECT_THAT(faults(model(kRelu, {{"c", 2, {}}}, {{"y", {{"c", {good, good}, std::nullopt}}}})),
              only("lays it out twice"));
  EXPECT_THAT(faults(model(kRelu, {{"c", 2, {}}}, {{"y", {{"c", {}, -1}}}})), ElementsAre(HasSubstr("-1 is no stage")));
  EXPECT_THAT(faults(model(kRelu, {{"c", 2, {}}}, {{"y", {{"c", {good}, std::nullopt}, {"c", {}, 1}}}})),
              ElementsAre(HasSubstr("the node has two entries for it")));
}

TEST_F(DeviceAnnotations, NameOperatorsThatCannotBeSoSplit) {
  const std::string product = "g (float[4, 6] a, float[6, 8] b) => (float[4, 8] y) { y = MatMul (a, b) }";
  EXPECT_THAT(faults(model(product, 2, {{"y", {spec("a", "RS"), spec("b", "SR")}}})), IsEmpty());
  EXPECT_THAT(faults(model(product, 2, {{"y", {spec("a", "SR"), spec("b", "RS")}}})),
              ElementsAre(AllOf(HasSubstr("MatMul producing 'y', configuration 'c': different axes of 'a' and 'b'"),
                                HasSubstr("over the same devices"))));
  EXPECT_THAT(faults(model(product, 2, {{"y", {spec("a", "RS"), spec("b", "RR")}}})),
              ElementsAre(HasSubstr("axis 0 of 'b' must be split as the axis of 'a' that belongs to it")));
  EXPECT_THAT(faults(model(product, 2, {{"y", {spec("a", "RR@0"), spec("b", "RR@1")}}})),
              ElementsAre(HasSubstr("no device holds 'b' and the operands before it")));
  const std::string sum = "g (float[4, 6] a, float[4, 6] b) => (float[4, 6] y) { y = Add (a, b) }";
  const ShardingSpec low{"a", {-1, -2}, {{-1, {0, 1}}, {-2, {2, 3}}}, {{0, {{4, "", 2}}}}};
  ShardingSpec high{"b", {-1, -2}, {{-1, {0, 2}}, {-2, {1, 3}}}, {{0, {{4, "", 2}}}}};
  EXPECT_THAT(faults(model(sum, 4, {{"y", {low, high}}})),
              ElementsAre(HasSubstr("axis 0 of 'b' must be split as the axis of 'a' that belongs to it")));
  const std::string determinant = "g (float[4, 6, 6] x) => (float[4] y) { y = Det (x) }";
  EXPECT_THAT(faults(model(determinant, 2, {{"y", {spec("x", "SRR")}}})), IsEmpty());
  EXPECT_THAT(faults(model(determinant, 2, {{"y", {spec("x", "RRS")}}})),
              ElementsAre(HasSubstr("the operator needs axis 2 of 'x' whole, but it is split into 2")));
}

// What nodes in bodies say is checked, too.
TEST_F(DeviceAnnotations, InBodiesAreChecked) {
  const std::string text = R"(
    g (float[4] x, bool c) => (float[4] y) {
      y = If (c) <then_branch = t () => (float[4] a) { a = Relu (x) },
                  else_branch = e () => (float[4] b) { b = Neg (x) }>
    })";
  EXPECT_THAT(faults(model(text, 2, {{"a", {spec("a", "S")}}})), IsEmpty());
  EXPECT_THAT(faults(model(text, 2, {{"a", {spec("b", "S")}}})), ElementsAre(HasSubstr("'b': it is neither")));
  const Model undeclared = model(text, std::vector<DeviceConfiguration>{}, {{"a", {{"c", {spec("a", "S")}, {}}}}});
  EXPECT_FALSE(check_annotations(undeclared).empty()) << "no configuration is declared";
  ShardingSpec far = spec("x", "S");
  far.axes[0].axis = 7;
  EXPECT_THAT(faults(model(text, 2, {{"a", {far}}})), ElementsAre(HasSubstr("'x': it has no axis 7: it is [4]")));
}

// The same for nodes in bodies, and once for all iterations that are written out.
TEST_F(DeviceAnnotations, NameOperatorsInBodiesThatCannotBeSoSplit) {
  const std::string text = R"(
    g (float[4, 8] x) => (float[4, 8] y, float[4, 8] z) <float[8, 8] w, int64 many = {100}, int64 two = {2}> {
      y = Loop <body = often (int64 i, bool c, float[4, 8] v) => (bool c2, float[4, 8] v2) {
        v2 = MatMul (v, w)
        c2 = Identity (c)
      }> (many, "", x)
      z = Loop <body = twice (int64 j, bool d, float[4, 8] u) => (bool d2, float[4, 8] u2) {
        s = Softmax (u)
        p = MatMul (s, w)
        u2 = Neg (p)
        d2 = Identity (d)
      }> (two, "", x)
    })";
  EXPECT_THAT(faults(model(text, 2, {{"v2", {spec("v", "RS"), spec("w", "SR")}}, {"p", {spec("s", "SR")}}})),
              IsEmpty());
  EXPECT_THAT(
      faults(model(text, 2, {{"v2", {spec("v", "SR"), spec("w", "RS")}}})),
      ElementsAre(AllOf(HasSubstr("MatMul producing 'y/v2', configuration 'c': different axes of 'v' and 'w'"))));
  EXPECT_THAT(faults(model(text, 2, {{"p", {spec("s", "RS"), spec("w", "RR")}}})),
              ElementsAre(HasSubstr("axis 0 of 'w' must be split as the axis of 's' that belongs to it")));
  EXPECT_THAT(faults(model(text, 2, {{"s", {spec("s", "SR")}}, {"p", {spec("w", "RS")}}})),
              ElementsAre(HasSubstr("different axes of 's' and 'w'")));
}

// What follows in bodies and functions is written down, too, and following it is the same program.
TEST_F(DeviceAnnotations, CompleteBodiesAndFunctions) {
  const std::string text = R"(<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
    g (float[4, 8] x) => (float[4, 8] y, float[4, 8] z) <float[8, 8] w, int64 many = {100}, int64 two = {2}> {
      f = local.F (x, w)
      k = local.F (f)
      )" + kBranchInALoop + R"((many, "", k)
      z = Loop <body = twice (int64 j, bool d, float[4, 8] u) => (bool d2, float[4, 8] u2) {
        shape = Constant <value = int64[2] {4, 8}> ()
        q = Reshape (u, shape)
        u2 = Abs (q)
        d2 = Identity (d)
      }> (two, "", k)
    }
    <domain: "local", opset_import: ["" : 21]>
    F (m, n) => (o) { h = Neg (m)  o = Abs (h) })";
  const auto specs_of = [](const Model& model, const std::string& result) {
    std::vector<ShardingSpec> found;
    const std::function<void(const Graph&)> look_at = [&](const Graph& graph) {
      for (const auto& node : graph.nodes()) {
        for (const Graph* region : node->regions()) look_at(*region);
        if (node->outputs[0]->name == result)
          for (const NodeDevices& said : device_annotations(*node))
            found.insert(found.end(), said.specs.begin(), said.specs.end());
      }
    };
    look_at(*model.impl().model.graph);
    for (const Function& function : model.impl().model.functions) look_at(*function.body);
    return found;
  };
  const std::map<std::string, std::vector<ShardingSpec>> rows = {{"f", {spec("x", "SR"), spec("f", "SR")}}};
  const std::map<std::string, std::vector<ShardingSpec>> columns = {{"p", {spec("w", "RS")}},
                                                                    {"u2", {spec("q", "RS")}}};
  for (const auto& said : {rows, columns}) {
    const Model partial = model(text, 2, said);
    const Model whole = partial.completed("c");
    EXPECT_THAT(faults(whole), IsEmpty());
    for (const char* result : {"p", "r", "a", "b", "u2", "h", "o", "f", "y"})
      EXPECT_GE(specs_of(whole, result).size(), 2u) << result;
    EXPECT_EQ(specs_of(whole, "q").size(), 2u) << "a shape has no layout";
    const Program before = expect_followed(partial), after = expect_followed(whole);
    EXPECT_EQ(after.mesh().str(), "d=2");
    ASSERT_EQ(before.summary().collectives.size(), after.summary().collectives.size());
    for (size_t i = 0; i < before.summary().collectives.size(); ++i) {
      EXPECT_EQ(before.summary().collectives[i].kind, after.summary().collectives[i].kind);
      EXPECT_EQ(before.summary().collectives[i].count, after.summary().collectives[i].count);
    }
    EXPECT_EQ(specs_of(whole.completed("c"), "p"), specs_of(whole, "p")) << "nothing is left to complete";
  }
  const auto half = [&](const char* tensor, int64_t axis, int64_t size) {
    return ShardingSpec{tensor, {0, 1}, {}, {{axis, {{size, "", 2}}}}};
  };
  const Model whole = model(text, 2, rows).completed("c");
  EXPECT_THAT(specs_of(whole, "o"), ElementsAre(half("h", 0, 4), half("o", 0, 4))) << "both calls agree";
  EXPECT_THAT(specs_of(whole, "b"), ElementsAre(half("v", 0, 4), half("b", 0, 4)));
  const ShardingSpec w_whole{"w", {0, 1}, {}, {}};
  EXPECT_THAT(specs_of(whole, "p"), ElementsAre(half("v", 0, 4), w_whole, half("p", 0, 4)));
}

// What must be known before a run stays known: sizes that a body captures, that a function computes, or that it is
// given.
TEST_F(DeviceAnnotations, CompleteWhatReadsSizes) {
  const auto whole_of = [&](const std::string& text, const char* result, const char* tensor, const char* layout) {
    const Model whole = model(text, 2, {{result, {spec(tensor, layout)}}}).completed("c");
    EXPECT_THAT(faults(whole), IsEmpty()) << text;
    expect_followed(whole);
    return whole;
  };
  for (const char* reader : {"ReduceSum <keepdims = 1> (x1, one)", "Slice (x1, one, two, one)", "CumSum (x1, axis)",
                             "Pad (x1, pads)", "Tile (x1, twice)", "Expand (x1, shape)", "TopK (x1, one)"})
    whole_of(fmt::format(R"(
      g (float[4, 8] x) => (float[p, q] y)
        <int64[1] one = {{1}}, int64[1] two = {{2}}, int64 axis = {{1}}, int64[4] pads = {{0, 1, 0, 1}},
         int64[2] twice = {{1, 2}}, int64[2] shape = {{4, 8}}, float zero = {{0}}> {{
        x1 = Neg (x)
        sum = ReduceSum <keepdims = 0> (x)
        c = Greater (sum, zero)
        y = If (c) <then_branch = t () => (a) {{ a{0} = {1} }}, else_branch = e () => (b) {{ b{0} = {1} }}>
      }})",
                         std::string(reader).starts_with("TopK") ? ", i" : "", reader),
             "x1", "x1", "SR");
  whole_of(R"(<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
    g (float[4, 8] x, float[1, 1, 4, 8] image) => (float[4, 8] y, float[1, 1, 8, 16] z) {
      scales = Constant <value = float[4] {1, 1, 2, 2}> ()
      y = local.F (x)
      z = local.G (image, scales)
    }
    <domain: "local", opset_import: ["" : 21]>
    F (m) => (o) {
      s = Shape (m)
      r = Reshape (m, s)
      o = Abs (r)
    }
    <domain: "local", opset_import: ["" : 21]>
    G (m, s) => (o) { o = Resize <mode = "nearest"> (m, "", s) })",
           "y", "y", "SR");
}

// What another configuration of that name has said in bodies and functions is gone.
TEST_F(DeviceAnnotations, AreReplacedEverywhere) {
  const std::string text = R"(<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
    g (float[8, 8] x) => (float[8, 8] y) <float zero = {0}> {
      sum = ReduceSum <keepdims = 0> (x)
      c = Greater (sum, zero)
      o = Gelu (x)
      p = local.F (o)
      y = If (c) <then_branch = t () => (float[8, 8] a) { a = Abs (p) }, else_branch = e () => (float[8, 8] b) { b = Neg (p) }>
    }
    <domain: "local", opset_import: ["" : 21]> F (r) => (q) { q = Relu (r) }
    <domain: "", opset_import: ["" : 21]> Gelu (i) => (j) { j = Sigmoid (i) })";
  for (const char* said : {"y", "a", "q", "j"}) {
    SCOPED_TRACE(said);
    const Model four = model(text, 4, {{said, {spec(said, "SR@0123")}}});
    for (const Model& before : {four, four.completed("c")}) {
      const Model two = before.annotated(Mesh::parse("tp=2"), {}, "c");
      EXPECT_THAT(faults(two), IsEmpty());
      expect_followed(two);
    }
  }
}

// An operand that a call leaves out has none, nor has it in the bodies of the function's nodes.
TEST_F(DeviceAnnotations, CompleteFunctionsWithOperandsLeftOut) {
  const std::string text = R"(<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
    g (float[4, 8] x) => (float[4, 8] y, float[4, 8] z) <float low = {0}> {
      y = local.F (x, low)
      z = local.F (x)
    }
    <domain: "local", opset_import: ["" : 21]>
    F (m, n) => (o) {
      none = Constant <value = float {0}> ()
      sum = ReduceSum <keepdims = 0> (m)
      c = Greater (sum, none)
      k = If (c) <then_branch = t () => (a) { a = Clip (m, n) }, else_branch = e () => (b) { b = Neg (m) }>
      o = Clip (k, n)
    })";
  const Model whole = model(text, 2, {{"y", {spec("x", "SR"), spec("y", "SR")}}}).completed("c");
  EXPECT_THAT(faults(whole), IsEmpty());
  expect_followed(whole);
}

// Whether a program makes a value of that name, and lays it out so.
bool has_layout(const Program& program, const std::string& value, const std::string& layout) {
  std::istringstream lines(program.text());
  for (std::string line; std::getline(lines, line);)
    if (line.find("\"" + value + "\" = ") != std::string::npos && line.ends_with(": " + layout)) return true;
  return false;
}

// A loop that stays one, a branch in it that the run decides, a scan, and a loop that is written out.
TEST_F(DeviceAnnotations, InBodiesAreFollowed) {
  const std::string text = R"(
    g (float[4, 8] x, float[3, 4, 8] rows) => (float[4, 8] y, float[4, 8] z, float[3, 4, 8] all)
      <float[8, 8] w, int64 many = {100}, int64 two = {2}> {
      yes = Constant <value = bool {1}> ()
      )" + kBranchInALoop + R"((many, yes, x)
      z = Loop <body = twice (int64 j, bool d, float[4, 8] u) => (bool d2, float[4, 8] u2) {
        q = Add (u, u)
        u2 = Identity (q)
        d2 = Identity (d)
      }> (two, "", x)
      last, all = Scan <num_scan_inputs = 1, body = each (float[4, 8] h, float[4, 8] row) =>
          (float[4, 8] h2, float[4, 8] out) { h2 = Add (h, row)  out = Abs (h2) }> (x, rows)
    })";
  // The weight that the body multiplies by is split by columns, and so is the product.
  const Program columns = expect_followed(model(text, 2, {{"p", {spec("w", "RS")}}}));
  EXPECT_EQ(columns.mesh().str(), "d=2") << "no other node names a device";
  EXPECT_TRUE(has_layout(columns, "y/w.as", "[-, 8{d}]")) << columns.text();
  EXPECT_TRUE(has_layout(expect_followed(model(text, 2, {{"p", {spec("p", "SR")}}})), "y/p.as", "[4{d}, -]"));
  EXPECT_TRUE(has_layout(expect_followed(model(text, 2, {{"a", {spec("p", "RS")}}})), "y/r/then/p.as", "[-, 8{d}]"));
  EXPECT_TRUE(has_layout(expect_followed(model(text, 2, {{"out", {spec("h2", "SR"), spec("out", "SR")}}})),
                         "last/1/out.as", "[4{d}, -]"));
  ShardingSpec from_the_end = spec("q", "RS");
  from_the_end.axes[0].axis = -1;
  const Program both = expect_followed(model(text, 2, {{"q", {from_the_end}}}));
  for (const char* iteration : {"z/0/q.as", "z/1/q.as"})
    EXPECT_TRUE(has_layout(both, iteration, "[-, 8{d}]")) << iteration << both.text();
  EXPECT_FALSE(has_layout(both, "z/1/q.as", "[4{d}, -]"));
  // One node's result is the next one's operand, and both say how it lies.
  expect_followed(model(text, 2, {{"p", {spec("p", "SR")}}, {"size", {spec("p", "RS")}}, {"b", {spec("b", "RS")}}}));
}

// As nearly as can be, and with a word.
TEST_F(DeviceAnnotations, InBodiesSayWhatTheyCannotFollow) {
  const std::string text = R"(
    g (float[4, 4] x) => (float[4, 4] y, float[4, 4] z) <float zero = {0}> {
      z = Abs (x)
      sum = ReduceSum <keepdims = 0> (x)
      c = Greater (sum, zero)
      y = If (c) <then_branch = t () => (float[4, 4] a) { k = ReduceSum <keepdims = 0> (x)  a = Add (x, k) },
                  else_branch = e () => (float[4, 4] b) { b = Neg (x) }>
    })";
  const auto warnings = [&](const std::map<std::string, std::vector<ShardingSpec>>& specs) {
    const ConfiguredModel configured = model(text, 2, specs).configured("c");
    const Program program = compile(configured.model, Mesh::parse(configured.plan.mesh), configured.plan);
    std::vector<std::string> all = configured.warnings;
    all.insert(all.end(), program.summary().warnings.begin(), program.summary().warnings.end());
    return all;
  };
  EXPECT_THAT(warnings({{"z", {spec("x", "SR@01")}}, {"b", {spec("x", "SR@10")}}}),
              ElementsAre(AllOf(HasSubstr("'x' in 2 shards on devices 1,0 has no layout of its own"))));
  EXPECT_THAT(warnings({{"z", {spec("x", "SR@01")}}, {"k", {spec("k", "RS")}}}),
              ElementsAre(AllOf(HasSubstr("k' has 0 dimensions"), HasSubstr("propagation decides there"))));
  ShardingSpec from_both = spec("x", "SS@0011");
  from_both.axes[1].axis = -1;
  EXPECT_THAT(warnings({{"b", {from_both}}}), Contains(HasSubstr("axes that count from both ends")));
}

TEST_F(DeviceAnnotations, InBodiesPlaceNothing) {
  const std::string text = R"(
    g (float[4] x) => (float[4] y) <float zero = {0}> {
      sum = ReduceSum <keepdims = 0> (x)
      c = Greater (sum, zero)
      y = If (c) <then_branch = t () => (float[4] a) { n = Neg (x)  a = Relu (n) },
                  else_branch = e () => (float[4] b) { b = Neg (x) }>
    })";
  const ConfiguredModel placed =
      model(text, 2, {{"y", {spec("y", "S")}}, {"n", {spec("n", "R@1")}}, {"b", {spec("b", "R@0")}}}).configured("c");
  EXPECT_THAT(placed.warnings,
              ElementsAre(AllOf(HasSubstr("all devices run it"), HasSubstr("2 nodes in its bodies say"))));
  expect_followed(model(text, 2, {{"y", {spec("y", "S")}}}));
}

// A function is called twice, and calls another; each call has the layouts of its nodes.
TEST_F(DeviceAnnotations, InFunctionsAreFollowedInEachCall) {
  const std::string text = R"(<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
    g (float[4, 8] x) => (float[4, 8] z) <float[8, 16] up, float[16, 8] down> {
      y = local.Block (x, up, down)
      z = local.Block (y, up, down)
    }
    <domain: "local", opset_import: ["" : 21, "local" : 1]>
    Block (a, u, d) => (c) {
      h = local.Half (a, u)
      c = MatMul (h, d)
    }
    <domain: "local", opset_import: ["" : 21]>
    Half (p, w) => (r) {
      q = MatMul (p, w)
      r = Relu (q)
    })";
  const Program columns = expect_followed(model(text, 2, {{"q", {spec("w", "RS")}}}));
  EXPECT_EQ(columns.mesh().str(), "d=2");
  EXPECT_EQ(layout_of(columns, "up"), "[-, 16{d}]");
  ASSERT_EQ(columns.summary().collectives.size(), 1u);
  EXPECT_EQ(columns.summary().collectives[0].count, 2) << "the partial sums of each call";
  // A call's own words are of its operands and results, wherever its nodes put them.
  const Program rows =
      expect_followed(model(text, 2, {{"y", {spec("x", "SR"), spec("y", "RR")}}, {"h", {spec("h", "SR")}}}));
  EXPECT_EQ(layout_of(rows, "x"), "[4{d}, -]");
  EXPECT_EQ(layout_of(rows, "y"), "[-, -]");
  EXPECT_EQ(layout_of(rows, "z"), "[4{d}, -]") << "the second call says nothing of its own";
  EXPECT_EQ(layout_of(expect_followed(model(text, 2, {{"z", {spec("z", "RS")}}, {"q", {spec("q", "SR")}}})), "z"),
            "[-, 8{d}]");
}

// A call in a branch; a function whose branch is annotated, called with one value twice; and one that is an operator of
// Tessera's own.
TEST_F(DeviceAnnotations, InFunctionsAreFollowedWhereverTheyAreCalled) {
  const std::string functions = R"(
    <domain: "local", opset_import: ["" : 21]>
    F (p, v) => (r) { q = MatMul (p, v)  r = Relu (q) }
    <domain: "local", opset_import: ["" : 21]>
    G (s, t) => (u) {
      m = ReduceSum <keepdims = 0> (s)
      none = Constant <value = float {0}> ()
      d = Greater (m, none)
      u = If (d) <then_branch = t1 () => (f) { f = Add (s, t) }, else_branch = e1 () => (h) { h = Sub (s, t) }>
    }
  )";
  const auto own = [](const std::string& domain) {
    return "<domain: \"" + domain + R"(", opset_import: ["" : 21]> Gelu (i) => (j) { j = Sigmoid (i) })";
  };
  const std::string text = R"(<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
    g (float[4, 8] x) => (float[4, 8] y, float[4, 8] z) <float[8, 8] w, float zero = {0}> {
      sum = ReduceSum <keepdims = 0> (x)
      c = Greater (sum, zero)
      y = If (c) <then_branch = t () => (float[4, 8] a) { a = local.F (x, w) },
                  else_branch = e () => (float[4, 8] b) { b = Neg (x) }>
      o = Gelu (x)
      z = local.G (x, x)
    })" + functions;
  EXPECT_EQ(layout_of(expect_followed(model(text, 2, {{"q", {spec("v", "RS")}}})), "w"), "[-, 8{d}]");
  const Program branch = expect_followed(model(text, 2, {{"f", {spec("s", "SR")}}}));
  EXPECT_EQ(branch.mesh().str(), "d=2") << "only a branch of a function is annotated";
  const Program twice = expect_followed(model(text, 2, {{"z", {spec("x", "SR")}}, {"m", {spec("s", "SR")}}}));
  EXPECT_EQ(twice.text().find("AllGather"), std::string::npos) << "both operands lie so";
  for (const char* domain : {"", "ai.onnx"})
    EXPECT_THAT(
        model(text + own(domain), 2, {{"y", {spec("y", "SR")}}, {"j", {spec("j", "SR")}}}).configured("c").warnings,
        ElementsAre(AllOf(HasSubstr("functions that are operators of Tessera's own"), HasSubstr("(1 node)"))))
        << domain;
  Said said = {{"q", {{"other", {spec("v", "RS")}, {}}}}, {"y", {{"c", {spec("y", "SR")}, {}}}}};
  EXPECT_THAT(model(text, {{"c", 2, {}}, {"other", 2, {}}}, said).configured("c").warnings, IsEmpty());
}

TEST_F(DeviceAnnotations, OfCallsMayPlaceAFunction) {
  const std::string text = R"(<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
    g (float[4, 8] x) => (float[4, 8] z) { y = local.F (x)  z = local.F (y) }
    <domain: "local", opset_import: ["" : 21]>
    F (a) => (c) { b = Neg (a)  c = Relu (b) })";
  Said said;
  for (const int64_t stage : {0, 1}) said[stage == 0 ? "y" : "z"] = {{"c", {}, stage}};
  said["b"] = {{"c", {}, std::nullopt}};
  const Program staged = expect_followed(model(text, {{"c", 2, {}}}, said));
  EXPECT_EQ(staged.mesh().str(), "d=2");
  EXPECT_EQ(staged.summary().collectives.size(), 1u) << "from stage to stage";
}

class WrittenAnnotations : public DeviceAnnotations,
                           public testing::WithParamInterface<std::tuple<std::string, std::string>> {};

// What Tessera decides, written as annotations, is the same program when it is followed.
TEST_P(WrittenAnnotations, ComeBack) {
  const auto& [name, mesh] = GetParam();
  const Model read =
      Model::load(name == "tiny" ? std::filesystem::path(TESSERA_EXAMPLES) / "tiny" / "model.onnx"
                                 : std::filesystem::path(TESSERA_TEST_DATA) / "models" / name / "model.onnx");
  Plan plan;
  if (mesh.starts_with("pp"))
    for (const char* place : {"m.transformer.wte=pp:0", "m.transformer.wpe=pp:0", "m.transformer.h.0=pp:0",
                              "m.transformer.h.1=pp:1", "m.transformer.ln_f=pp:1", "m.lm_head=pp:1"})
      plan.places.push_back({place, "place"});
  const Program program = compile(read, Mesh::parse(mesh), plan);
  read.annotated(program.mesh(), plan, "ours").write(folder_ / "annotated.onnx");
  const Model annotated = Model::load(folder_ / "annotated.onnx");
  EXPECT_THAT(faults(annotated), IsEmpty());
  const ConfiguredModel configured = annotated.configured("ours");
  EXPECT_THAT(configured.warnings, IsEmpty());
  EXPECT_EQ(configured.plan.mesh, program.mesh().str());
  const Program again = compile(configured.model, Mesh::parse(configured.plan.mesh), configured.plan);
  auto communication = [](const Program& of) {
    std::vector<std::tuple<std::string, std::vector<std::string>, int64_t, int64_t>> all;
    for (const CollectiveSummary& entry : of.summary().collectives)
      all.emplace_back(entry.kind, entry.axes, entry.count, entry.bytes);
    std::sort(all.begin(), all.end());
    return all;
  };
  EXPECT_EQ(communication(again), communication(program));
  for (int64_t rank = 0; rank < program.mesh().size(); ++rank)
    EXPECT_EQ(again.figures(rank).parameter_bytes, program.figures(rank).parameter_bytes);
  const Tensors inputs = random_inputs(read, read.complete({}), 3);
  expect_same(Session(again, one_thread()).run(inputs), Session(program, one_thread()).run(inputs));
  const Model completed = annotated.completed("ours");
  EXPECT_THAT(faults(completed), IsEmpty());
  // Completed, an expert is where its parameters lie, bodies name their tensors, and each stage's tensors their place.
  if (name.starts_with("moe") || name == "control-flow" || mesh.starts_with("pp")) return;
  const ConfiguredModel all = completed.configured("ours");
  const Program of_all = compile(all.model, Mesh::parse(all.plan.mesh), all.plan);
  EXPECT_EQ(communication(of_all), communication(program));
  EXPECT_EQ(of_all.figures(0).flops, program.figures(0).flops) << "what is said inside keeps nothing from being raised";
}

INSTANTIATE_TEST_SUITE_P(Models, WrittenAnnotations,
                         testing::Combine(testing::Values("mlp", "gpt2", "tiny", "llama", "resnet"),
                                          testing::Values("tp=2", "dp=2,tp=3")));
INSTANTIATE_TEST_SUITE_P(BodiesAndExperts, WrittenAnnotations,
                         testing::Combine(testing::Values("control-flow", "moe-scan", "moe-stacks"),
                                          testing::Values("tp=2")));
INSTANTIATE_TEST_SUITE_P(ExpertsOfTheirOwn, WrittenAnnotations,
                         testing::Combine(testing::Values("moe-masks", "moe-apart"),
                                          testing::Values("tp=2", "ep=4", "ep=2,tp=2", "dp=2,ep=3")));
INSTANTIATE_TEST_SUITE_P(Stages, WrittenAnnotations,
                         testing::Combine(testing::Values("gpt2"), testing::Values("pp=2,tp=2")));

}  // namespace
}  // namespace tessera::test
