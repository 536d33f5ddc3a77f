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

// Whoever asks for one of the parameters keeps it from being stacked, and hears that the file is not followed there.
TEST_F(ExpertAnnotations, GiveWayToWhatTheUserAdds) {
  ConfiguredModel configured = annotated(experts({"0", "0", "1", "1"}), 2).configured("c");
  configured.plan.annotations.insert(configured.plan.annotations.begin(), {"e.1.up=[-, -]", "annotation"});
  const Program program = compile(configured.model, Mesh::parse(configured.plan.mesh), configured.plan);
  EXPECT_FALSE(is_stacked(program));
  EXPECT_THAT(program.summary().warnings, Contains(HasSubstr("'e.#.up'")));
}

}  // namespace
}  // namespace tessera::test
