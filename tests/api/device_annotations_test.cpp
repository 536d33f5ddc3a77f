// ONNX's device annotations (IR version 11) are carried out: the answers are one device's, tensors lie as their lists
// say, and what cannot be is named.
#include "api/annotated.h"

namespace tessera::test {
namespace {

using testing::AllOf;
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
  EXPECT_THAT(some.devices, ElementsAre(5, 2)) << "devices that no node names have no rank";
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
  EXPECT_THAT(one.warnings, ElementsAre(HasSubstr("no node is annotated for the devices of 'c'")));
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
                                HasSubstr("it gets [{d}]"))));
  EXPECT_THAT(warnings(kRelu, 2, {{"y", {spec("x", "SR@01"), spec("y", "SR@10")}}}),
              ElementsAre(HasSubstr("in 2 shards on devices 1,0 is not a layout of this mesh")));
  const ShardingSpec ones{"x", {0, 1}, {}, {{0, {{2, "", 1}, {1, "", 2}}}}};
  EXPECT_THAT(warnings(kRelu, 2, {{"y", {ones}}}), ElementsAre(HasSubstr("it is split into blocks there")));
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
  EXPECT_THAT(fault({"y", {0, 4}, {}, {{0, {{2, "", 2}}}}}), only("names 4, which is neither a device (0 to 3)"));
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
  EXPECT_THAT(fault(good, {}), ElementsAre(HasSubstr("the model does not declare this configuration, nor any other")));
  EXPECT_THAT(fault(good, {{"d", 2, {}}}), ElementsAre(HasSubstr("does not declare this configuration, but 'd'")));
  EXPECT_THAT(fault(good, {{"c", 0, {}}}), ElementsAre(HasSubstr("it has 0 devices")));
  EXPECT_THAT(fault(good, {{"c", 2'000'000'000, {}}}), ElementsAre(HasSubstr("give it 1 to 1048576")));
  EXPECT_THAT(check_annotations(model(kRelu, {{"", 2, {}}}, {})).at(0).message, HasSubstr("it has no name"));
  EXPECT_THAT(fault(good, {{"c", 2, {"a"}}}), ElementsAre(HasSubstr("it has 2 devices, but names 1")));
  EXPECT_THAT(fault(good, {{"c", 2, {}}, {"c", 2, {}}}), ElementsAre(HasSubstr("two of this name")));
  EXPECT_THAT(faults(model(kRelu, {{"c", 2, {}}}, {{"y", {{"c", {good, good}, std::nullopt}}}})),
              only("lays it out twice"));
  EXPECT_THAT(faults(model(kRelu, {{"c", 2, {}}}, {{"y", {{"c", {}, -1}}}})),
              ElementsAre(HasSubstr("-1 is not a stage")));
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
              ElementsAre(HasSubstr("axis 0 of 'b' must be split like the corresponding axis of 'a'")));
  EXPECT_THAT(faults(model(product, 2, {{"y", {spec("a", "RR@0"), spec("b", "RR@1")}}})),
              ElementsAre(HasSubstr("no device holds 'b' and the operands before it")));
  const std::string sum = "g (float[4, 6] a, float[4, 6] b) => (float[4, 6] y) { y = Add (a, b) }";
  const ShardingSpec low{"a", {-1, -2}, {{-1, {0, 1}}, {-2, {2, 3}}}, {{0, {{4, "", 2}}}}};
  ShardingSpec high{"b", {-1, -2}, {{-1, {0, 2}}, {-2, {1, 3}}}, {{0, {{4, "", 2}}}}};
  EXPECT_THAT(faults(model(sum, 4, {{"y", {low, high}}})),
              ElementsAre(HasSubstr("axis 0 of 'b' must be split like the corresponding axis of 'a'")));
  const std::string determinant = "g (float[4, 6, 6] x) => (float[4] y) { y = Det (x) }";
  EXPECT_THAT(faults(model(determinant, 2, {{"y", {spec("x", "SRR")}}})), IsEmpty());
  EXPECT_THAT(faults(model(determinant, 2, {{"y", {spec("x", "RRS")}}})),
              ElementsAre(HasSubstr("the operator needs axis 2 of 'x' whole, but it is split into 2")));
}

}  // namespace
}  // namespace tessera::test
