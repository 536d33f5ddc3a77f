// Experts with parameters of their own, which rewriting stacks: nodes say of each where it lies.
#include <sstream>

#include "api/annotated.h"

namespace tessera::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kExperts = 4;

// Four experts, of which a token takes two. What follows the sum says nothing.
std::string mixture() {
  std::string states, nodes, sum = "s0";
  for (int e = 0; e < kExperts; ++e) {
    states += fmt::format(", float[8, 6] \"e.{0}.up\", float[6, 8] \"e.{0}.down\", int64 n{0} = {{{0}}}", e);
    nodes += fmt::format(R"(
      u{0} = MatMul (x, "e.{0}.up")
      h{0} = Relu (u{0})
      d{0} = MatMul (h{0}, "e.{0}.down")
      q{0} = Equal (i, n{0})
      f{0} = Cast <to = 1> (q{0})
      m{0} = Mul (w, f{0})
      k{0} = ReduceSum (m{0}, last)
      s{0} = Mul (d{0}, k{0}))",
                         e);
    if (e > 0) nodes += fmt::format("\n      a{0} = Add ({1}, s{0})", e, std::exchange(sum, fmt::format("a{}", e)));
  }
  return fmt::format(R"(<ir_version: 10, opset_import: ["" : 20]>
    g (float[5, 8] x, float[5, 4] r) => (float[5, 8] y) <int64[1] two = {{2}}, int64[1] last = {{-1}}{}> {{
      w, i = TopK <axis = -1> (r, two){}
      y = Neg ({})
    }})",
                     states, nodes, sum);
}

class ExpertAnnotations : public DeviceAnnotations {
 protected:
  using Specs = std::map<std::string, std::vector<ShardingSpec>>;

  // Each expert's weights in these layouts ("RR@{}" of each expert's devices).
  static Specs experts(const std::vector<std::string>& devices, const std::string& up = "RR",
                       const std::string& down = "RR") {
    Specs specs;
    for (int e = 0; e < kExperts; ++e) {
      const auto said = [&](const char* kind, const std::string& layout) {
        return spec(fmt::format("e.{}.{}", e, kind), layout + "@" + devices[static_cast<size_t>(e)]);
      };
      specs[fmt::format("u{}", e)] = {said("up", up)};
      specs[fmt::format("d{}", e)] = {said("down", down)};
    }
    return specs;
  }

  Model annotated(const Specs& specs, int64_t devices) { return model(mixture(), devices, specs); }

  // Runs it, and gives the answers of one device.
  static Program followed(const Model& model) {
    const ConfiguredModel configured = model.configured("c");
    EXPECT_THAT(configured.warnings, IsEmpty());
    Program program = compile(configured.model, Mesh::parse(configured.plan.mesh), configured.plan);
    const Tensors inputs = integers(model);
    expect_same(Session(program, one_thread()).run(inputs),
                Session(compile(model, Mesh(), {}), one_thread()).run(inputs));
    return program;
  }

  static bool is_stacked(const Program& program) { return program.text().find("Experts") != std::string::npos; }
};

TEST_F(ExpertAnnotations, OnDevicesOfTheirOwnSplitTheMixture) {
  for (const auto& [devices, layout] : std::initializer_list<std::pair<std::vector<std::string>, const char*>>{
           {{"0", "0", "1", "1"}, "[4{d}, -, -]"},
           {{"0", "1", "2", "3"}, "[4{d}, -, -]"},
           {{"0", "0", "1", "2"}, "[4{d}, -, -]"},
           {{"01", "01", "01", "01"}, "[-, -, -]"}}) {
    SCOPED_TRACE(layout);
    const Model model = annotated(experts(devices), 4);
    EXPECT_THAT(faults(model), IsEmpty());
    const Program program = followed(model);
    EXPECT_TRUE(is_stacked(program));
    EXPECT_EQ(layout_of(program, "e.#.up"), layout);
    EXPECT_EQ(layout_of(program, "e.#.down"), layout);
    EXPECT_LE(program.summary().collectives.size(), 1u);
  }
}

// Columns and rows within each expert, over all devices or over those of the expert.
TEST_F(ExpertAnnotations, SplitHiddenElements) {
  const Program columns = followed(annotated(experts({"01", "01", "01", "01"}, "RS", "SR"), 2));
  EXPECT_TRUE(is_stacked(columns));
  EXPECT_EQ(layout_of(columns, "e.#.up"), "[-, -, 6{d}]");
  EXPECT_EQ(layout_of(columns, "e.#.down"), "[-, 6{d}, -]");
  const Program both = followed(annotated(experts({"01", "01", "23", "23"}, "RS", "SR"), 4));
  EXPECT_TRUE(is_stacked(both));
  EXPECT_EQ(layout_of(both, "e.#.up"), "[4{d0}, -, 6{d1}]");
  EXPECT_EQ(layout_of(both, "e.#.down"), "[4{d0}, 6{d1}, -]");
}

// What no split of a stack says stays as it is: each expert runs on the devices that hold it.
TEST_F(ExpertAnnotations, ThatNoStackHasPlaceEachExpert) {
  const auto expect_placed = [&](const Specs& specs) {
    const Program program = followed(annotated(specs, 4));
    EXPECT_FALSE(is_stacked(program));
  };
  expect_placed(experts({"0", "1", "0", "1"}));  // not in blocks
  expect_placed(experts({"3", "2", "0", "1"}));
  Specs some = experts({"0", "0", "1", "1"});
  some.erase("u2");
  expect_placed(some);
  Specs unlike = experts({"01", "01", "01", "01"}, "RS", "SR");
  unlike["u1"] = {spec("e.1.up", "SR@01")};
  expect_placed(unlike);
  Specs inner = experts({"0", "0", "1", "1"});
  inner["h1"] = {spec("h1", "RR@0")};
  expect_placed(inner);
}

// A part of the place that all experts have in common is the mixture's; nodes between that say nothing are there, too.
TEST_F(ExpertAnnotations, MayBeOnSomeOfTheDevices) {
  Specs specs = experts({"2", "2", "3", "3"});
  specs["w"] = {spec("r", "RR@0123")};
  const Program program = followed(annotated(specs, 4));
  EXPECT_TRUE(is_stacked(program));
  EXPECT_EQ(layout_of(program, "e.#.up"), "[4{d:(2)2}, -, -] at(d:(1)2=1)");
  EXPECT_EQ(program.figures(0).parameter_bytes, 0);
  EXPECT_EQ(program.figures(2).parameter_bytes, program.figures(3).parameter_bytes);
}

// What nodes of an expert say beside: where it agrees with the mixture it changes nothing; else experts are placed.
TEST_F(ExpertAnnotations, GoWithWhatElseTheirNodesSay) {
  // `devices` of a tensor that the nodes of each expert, or of one, read.
  const auto also = [&](const Specs& more) {
    Specs specs = experts({"0", "0", "1", "1"});
    for (const auto& [node, said] : more) specs[node].insert(specs[node].end(), said.begin(), said.end());
    const Model model = annotated(specs, 2);
    EXPECT_THAT(faults(model), IsEmpty()) << more.begin()->first;
    const Program program = followed(model);
    EXPECT_EQ(program.figures(0).parameter_bytes, program.figures(1).parameter_bytes) << more.begin()->first;
    return is_stacked(program);
  };
  const auto of_each = [&](const char* node, const char* tensor, const std::vector<std::string>& layouts) {
    Specs specs;
    for (int e = 0; e < kExperts; ++e)
      specs[fmt::format("{}{}", node, e)] = {spec(tensor, layouts[static_cast<size_t>(e)])};
    return specs;
  };
  EXPECT_TRUE(also(of_each("q", "i", {"RR@0", "RR@0", "RR@1", "RR@1"}))) << "what rewriting replaces";
  EXPECT_TRUE(also(of_each("u", "x", {"RR@01", "RR@01", "RR@01", "RR@01"})));
  EXPECT_TRUE(also({{"y", {spec("y", "SR@01")}}}));
  EXPECT_TRUE(also({{"w", {spec("w", "SR@01")}}})) << "tokens are split where choices are made";
  EXPECT_FALSE(also({{"u3", {spec("x", "RR@1")}}})) << "the product runs on one device";
  EXPECT_FALSE(also({{"s3", {spec("k3", "RR@1")}}}));
  Said said;
  for (const auto& [node, list] : experts({"0", "0", "1", "1"}))
    said[node] = {{"c", list, node.back() - '0' < 2 ? 0 : 1}};
  EXPECT_TRUE(is_stacked(followed(model(mixture(), {{"c", 2, {}}}, said)))) << "stages of the same devices";
}

TEST_F(ExpertAnnotations, ComeBackInOtherTypesAndAtPlaces) {
  const Model plain = annotated({}, 4);
  for (const auto& [mesh, places, dtype] :
       std::initializer_list<std::tuple<const char*, std::vector<std::string>, DType>>{
           {"ep=2", {}, DType::bfloat16},
           {"ep=2,tp=2", {}, DType::float16},
           {"pp=2,ep=2", {"y=pp:1", "a3=pp:1"}, DType::float32},
           {"ep=2,pp=2", {"y=pp:1", "a3=pp:1"}, DType::float32}}) {
    SCOPED_TRACE(mesh);
    Plan plan;
    plan.dtype = dtype;
    for (const std::string& place : places) plan.places.push_back({place, "place"});
    const Program program = compile(plain, Mesh::parse(mesh), plan);
    EXPECT_TRUE(is_stacked(program));
    const Model annotated = plain.annotated(program.mesh(), plan, "c");
    ConfiguredModel configured = annotated.configured("c");
    EXPECT_THAT(configured.warnings, IsEmpty());
    configured.plan.dtype = dtype;
    const Program again = compile(configured.model, Mesh::parse(configured.plan.mesh), configured.plan);
    EXPECT_TRUE(is_stacked(again));
    ASSERT_EQ(again.mesh().size(), program.mesh().size());
    for (int64_t rank = 0; rank < program.mesh().size(); ++rank)
      EXPECT_EQ(again.figures(rank).parameter_bytes, program.figures(rank).parameter_bytes);
  }
}

TEST_F(ExpertAnnotations, AreExplainedAsRows) {
  const ConfiguredModel configured = annotated(experts({"0", "0", "1", "1"}), 2).configured("c");
  const Program program = compile(configured.model, Mesh::parse(configured.plan.mesh), configured.plan);
  ASSERT_TRUE(program.can_explain("e.2.up"));
  const Explanation found = program.explain("e.2.up");
  EXPECT_EQ(found.tensor.name, "e.#.up");
  EXPECT_EQ(found.row, 2);
  EXPECT_FALSE(program.can_explain("h2"));
}

TEST_F(ExpertAnnotations, AreCompletedOneByOne) {
  const Model whole = annotated(experts({"0", "0", "1", "1"}), 2).completed("c");
  EXPECT_THAT(faults(whole), IsEmpty());
  followed(whole);
  for (int e = 0; e < kExperts; ++e)
    EXPECT_THAT(said(whole, fmt::format("u{}", e)), Contains(spec(fmt::format("u{}", e), e < 2 ? "RR@0" : "RR@1")))
        << "where the expert is";
}

// The layout of a stack may be asked for by its name, and by wildcards that fit it.
TEST_F(ExpertAnnotations, MayNameAStack) {
  const Model plain = annotated({}, 2);
  const auto compiled = [&](const char* text, bool stored = false) {
    Plan plan;
    plan.presets = "none";
    (stored ? plan.storage : plan.annotations).push_back({text, "annotation"});
    return compile(plain, Mesh::parse("ep=2"), plan);
  };
  for (const char* text : {"e.#.up=[ep, -, -]", "e.*.up=[ep, -, -]", "*.up=[ep, ...]"}) {
    const bool fits_each = std::string(text).find("...") != std::string::npos;
    EXPECT_EQ(is_stacked(compiled(text)), !fits_each) << text << ": what names the parameters keeps them";
    if (!fits_each) {
      EXPECT_EQ(layout_of(compiled(text), "e.#.down"), "[4{ep}, -, -]") << text;
    }
  }
  EXPECT_TRUE(is_stacked(compiled("e.*.up=[ep, -, -]", true)));
  EXPECT_FALSE(is_stacked(compiled("e.*.up=[ep, -]", true)));
  try {
    compiled("f.#.up=[ep, -, -]");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("'f.#.up' matches no tensor of the model"));
  }
}

// Whoever asks for one of the parameters keeps it from being stacked; then experts are placed.
TEST_F(ExpertAnnotations, GiveWayToWhatTheUserAdds) {
  const Model model = annotated(experts({"0", "0", "1", "1"}), 2);
  const auto beside = [&](const Plan& before) {
    const ConfiguredModel configured = model.configured("c", before);
    const Plan plan = before.over(configured.plan);
    Program program = compile(configured.model, Mesh::parse(configured.plan.mesh), plan);
    EXPECT_FALSE(is_stacked(program));
    return program;
  };
  Plan named, stored;
  named.annotations = {{"e.1.up=[-, -]", "annotation"}};
  stored.storage = {{"e.1.up=[-, -]", "store"}};
  for (const Plan& before : {named, stored}) {
    const Program program = beside(before);
    EXPECT_THAT(program.summary().warnings, IsEmpty());
    EXPECT_LT(program.figures(0).parameter_bytes, int64_t{4 * 2 * 8 * 6 * 4}) << "each is where it was annotated";
  }
  // Without knowing, the file's layout of the stack finds nothing.
  ConfiguredModel unaware = model.configured("c");
  unaware.plan.annotations.insert(unaware.plan.annotations.begin(), {"e.1.up=[-, -]", "annotation"});
  EXPECT_THAT(compile(unaware.model, Mesh::parse(unaware.plan.mesh), unaware.plan).summary().warnings,
              Contains(HasSubstr("the parameters 'e.#.up' are not stacked")));
}

TEST_F(ExpertAnnotations, SayWhyAStackIsNotThere) {
  Plan plan;
  plan.presets = "none";
  plan.annotations = {{"e.#.up=[ep, -, -]", "annotation"}, {"e.1.up=[-, -]", "annotation"}};
  try {
    compile(annotated({}, 2), Mesh::parse("ep=2"), plan);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("are not stacked, because another option names one of them"));
  }
}

}  // namespace
}  // namespace tessera::test
