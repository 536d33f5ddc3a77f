// Blocks of models that are alike, and the same models with fewer of them.
#include "tessera/rewrite/blocks.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "tessera/ir/text.h"
#include "tessera/onnx/import.h"

namespace tessera::rewrite {
namespace {

using testing::ElementsAre;
using testing::IsSupersetOf;

/// The text of a model: what comes before its layers, a text for each layer, and what comes after. `declared` are its
/// initializers.
struct Written {
  std::string inputs = "float[batch, 8] h0, float[batch, 8] mask";
  std::string outputs = "float[batch, 4] y";
  std::string first = "  h0_ = Neg (h0)\n";
  std::string last = "  y = MatMul (h{}_, head)\n";
  std::string shared = "float[8, 4] head";
  std::string declared = "float[8, 8] w{0}, float[8] b{0}";
  std::string layer = R"(  m{0} = MatMul (h{0}_, w{0})
  a{0} = Add (m{0}, b{0})
  g{0} = Mul (a{0}, mask)
  h{1}_ = Add (h{0}_, g{0})
)";

  std::string of(int layers, const std::function<std::string(int)>& other = nullptr) const {
    std::string parameters = shared, nodes = first;
    for (int i = 0; i < layers; ++i) {
      parameters += ", " + fmt::format(fmt::runtime(declared), i);
      nodes += fmt::format(fmt::runtime(other && !other(i).empty() ? other(i) : layer), i, i + 1);
    }
    return fmt::format("m ({}) => ({}) <{}> {{\n{}{}}}", inputs, outputs, parameters, nodes,
                       fmt::format(fmt::runtime(last), layers));
  }
};

std::string printed(const OnnxModel& model) {
  model.graph->verify("test");
  return print_text(model);
}

// The first `count` blocks make the model that has so few layers.
void expect_fewer(const Written& written, int layers) {
  const OnnxModel model = parse_text(written.of(layers));
  const std::optional<Blocks> blocks = find_blocks(model);
  ASSERT_TRUE(blocks);
  EXPECT_EQ(static_cast<int>(blocks->count), layers);
  for (int count = 1; count <= layers; ++count) {
    SCOPED_TRACE(count);
    EXPECT_EQ(printed(with_blocks(model, *blocks, static_cast<size_t>(count))), printed(parse_text(written.of(count))));
  }
}

std::optional<Blocks> blocks_of(const std::string& text) {
  return find_blocks(parse_text(text));
}

TEST(Blocks, a_model_with_fewer_is_the_model_that_has_fewer_layers) {
  expect_fewer({}, 6);
}

TEST(Blocks, names_of_each_block_correspond) {
  const OnnxModel model = parse_text(Written().of(3));
  const std::optional<Blocks> blocks = find_blocks(model);
  ASSERT_TRUE(blocks);
  EXPECT_EQ(blocks->period, 4u);
  EXPECT_THAT(
      names_by_block(*model.graph, *blocks),
      IsSupersetOf({ElementsAre("w0", "w1", "w2"), ElementsAre("b0", "b1", "b2"), ElementsAre("g0", "g1", "g2")}));
}

TEST(Blocks, a_first_and_a_last_layer_may_differ) {
  const Written written;
  const auto differs = [](int layer) {
    return layer == 0 || layer == 5
               ? "  m{0} = MatMul (h{0}_, w{0})\n  a{0} = Add (m{0}, b{0})\n  h{1}_ = Tanh (a{0})\n"
               : "";
  };
  const OnnxModel model = parse_text(written.of(6, differs));
  const std::optional<Blocks> blocks = find_blocks(model);
  ASSERT_TRUE(blocks);
  EXPECT_EQ(blocks->count, 4u);
  const OnnxModel fewer = with_blocks(model, *blocks, 2);
  fewer.graph->verify("test");
  EXPECT_EQ(fewer.graph->nodes().size(), 1 + 3 + 2 * 4 + 3 + 1u);
  EXPECT_EQ(fewer.graph->outputs[0]->name, "y");
}

TEST(Blocks, layers_that_differ_in_an_attribute_or_a_constant_are_none) {
  Written written;
  written.layer = "  h{1}_ = LeakyRelu <alpha = 0.{1}> (h{0}_)\n";
  EXPECT_FALSE(blocks_of(written.of(4)));
  written.layer = "  h{1}_ = LeakyRelu <alpha = 0.5> (h{0}_)\n";
  EXPECT_EQ(blocks_of(written.of(4)).value().count, 4u);
  written.declared = "float c{0} = {{0.{0}}}";
  written.layer = "  h{1}_ = Mul (h{0}_, c{0})\n";
  EXPECT_FALSE(blocks_of(written.of(4)));
  written.declared = "float c{0} = {{0.5}}";
  EXPECT_EQ(blocks_of(written.of(4)).value().count, 4u);
}

TEST(Blocks, layers_of_other_widths_are_none) {
  Written written;
  written.declared = "float[8, 1{0}] up{0}, float[1{0}, 8] down{0}";
  written.layer = "  m{0} = MatMul (h{0}_, up{0})\n  h{1}_ = MatMul (m{0}, down{0})\n";
  EXPECT_FALSE(blocks_of(written.of(4)));
}

TEST(Blocks, layers_that_grow_are_none) {
  Written written;
  written.outputs = "float[rows, 4] y";
  written.declared = "float[8] b{0}";
  written.layer = "  a{0} = Add (h{0}_, b{0})\n  h{1}_ = Concat <axis = 0> (a{0}, h{0}_)\n";
  EXPECT_FALSE(blocks_of(written.of(4)));
}

// Each layer reads the results of both before it, so that only pairs of layers form a chain.
TEST(Blocks, a_connection_across_layers_makes_larger_blocks) {
  Written written;
  written.first += "  h1_ = Relu (h0)\n";
  std::string parameters = written.shared;
  for (int i = 1; i < 9; ++i) {
    written.first += fmt::format("  m{0} = MatMul (h{0}_, w{0})\n  h{1}_ = Add (m{0}, h{2}_)\n", i, i + 1, i - 1);
    parameters += fmt::format(", float[8, 8] w{}", i);
  }
  const std::optional<Blocks> blocks =
      blocks_of(fmt::format("m ({}) => ({}) <{}> {{\n{}  y = MatMul (h9_, head)\n}}", written.inputs, written.outputs,
                            parameters, written.first));
  ASSERT_TRUE(blocks);
  EXPECT_EQ(blocks->period, 4u);
  EXPECT_EQ(blocks->count, 4u);
}

TEST(Blocks, a_layer_whose_result_is_used_elsewhere_is_the_last) {
  Written written;
  written.last = "  z = Add (g2, h{}_)\n  y = MatMul (z, head)\n";
  const std::optional<Blocks> blocks = blocks_of(written.of(9));
  ASSERT_TRUE(blocks);
  EXPECT_EQ(blocks->count, 6u);  // after the third
}

TEST(Blocks, parameters_may_be_common_to_all) {
  Written written;
  written.declared = "float[8] b{0}";
  written.shared = "float[8, 4] head, float[8, 8] w";
  written.layer = "  m{0} = MatMul (h{0}_, w)\n  a{0} = Add (m{0}, b{0})\n  h{1}_ = Tanh (a{0})\n";
  expect_fewer(written, 5);
}

TEST(Blocks, parameters_of_some_layers_but_not_all_are_no_parameters_of_blocks) {
  Written written;
  written.shared = "float[8, 4] head, float[8, 8] even, float[8, 8] odd";
  written.declared = "float[8] b{0}";
  const auto alternates = [](int layer) {
    return std::string("  m{0} = MatMul (h{0}_, ") + (layer % 2 ? "odd" : "even") +
           ")\n  a{0} = Add (m{0}, b{0})\n  h{1}_ = Tanh (a{0})\n";
  };
  const std::optional<Blocks> pairs = blocks_of(written.of(8, alternates));
  ASSERT_TRUE(pairs);
  EXPECT_EQ(pairs->period, 6u);
  EXPECT_EQ(pairs->count, 4u);
  const auto halves = [](int layer) {
    return std::string("  m{0} = MatMul (h{0}_, ") + (layer > 4 ? "odd" : "even") +
           ")\n  a{0} = Add (m{0}, b{0})\n  h{1}_ = Tanh (a{0})\n";
  };
  const std::optional<Blocks> first = blocks_of(written.of(8, halves));
  ASSERT_TRUE(first);
  EXPECT_EQ(first->count, 5u);
}

TEST(Blocks, a_parameter_that_other_nodes_use_too_belongs_to_no_block) {
  Written written;
  written.last = "  z = MatMul (h{}_, w0)\n  y = MatMul (z, head)\n";
  const std::optional<Blocks> blocks = blocks_of(written.of(6));
  ASSERT_TRUE(blocks);
  EXPECT_EQ(blocks->count, 5u);
}

TEST(Blocks, of_two_towers_the_larger_one_counts) {
  Written written;
  written.declared = "float[8, 8] w{0}, float[8] b{0}";
  const auto towers = [](int layer) {
    if (layer < 3) return std::string("  m{0} = MatMul (h{0}_, w{0})\n  h{1}_ = Tanh (m{0})\n");
    return std::string("  m{0} = MatMul (h{0}_, w{0})\n  a{0} = Add (m{0}, b{0})\n  h{1}_ = Relu (a{0})\n");
  };
  const std::optional<Blocks> blocks = blocks_of(written.of(8, towers));
  ASSERT_TRUE(blocks);
  EXPECT_EQ(blocks->period, 3u);
  EXPECT_EQ(blocks->count, 5u);
}

TEST(Blocks, inputs_and_outputs_of_each_layer_go_with_it) {
  const auto text = [](int layers) {
    Written written;
    for (int i = 0; i < layers; ++i) {
      written.inputs += fmt::format(", float[batch, 8] past{}", i);
      written.outputs += fmt::format(", float[batch, 8] present{}", i);
    }
    written.layer =
        "  m{0} = MatMul (h{0}_, w{0})\n  present{0} = Add (m{0}, past{0})\n  h{1}_ = Add (present{0}, b{0})\n";
    return written.of(layers);
  };
  const OnnxModel model = parse_text(text(5));
  const std::optional<Blocks> blocks = find_blocks(model);
  ASSERT_TRUE(blocks);
  EXPECT_EQ(blocks->count, 5u);
  EXPECT_EQ(printed(with_blocks(model, *blocks, 2)), printed(parse_text(text(2))));
}

TEST(Blocks, the_last_one_s_output_keeps_its_name) {
  Written written;
  written.outputs = "float[batch, 8] h5_";
  written.last = "";
  written.shared = "float[8, 8] unused";
  const OnnxModel model = parse_text(written.of(5));
  const std::optional<Blocks> blocks = find_blocks(model);
  ASSERT_TRUE(blocks);
  const OnnxModel fewer = with_blocks(model, *blocks, 2);
  fewer.graph->verify("test");
  ASSERT_EQ(fewer.graph->outputs.size(), 1u);
  EXPECT_EQ(fewer.graph->outputs[0]->name, "h5_");
  EXPECT_EQ(fewer.graph->outputs[0]->producer->input(0)->producer->input(0)->producer->op_type, "Neg");
}

TEST(Blocks, what_the_first_one_takes_twice_must_be_what_is_passed_on) {
  Written written;
  // The second layer adds what it takes, the first adds something else.
  const auto other = [](int layer) {
    return layer == 0 ? "  m{0} = MatMul (h{0}_, w{0})\n  a{0} = Add (m{0}, b{0})\n  g{0} = Mul (a{0}, mask)\n"
                        "  h{1}_ = Add (h0, g{0})\n"
                      : "";
  };
  EXPECT_EQ(blocks_of(written.of(5, other)).value().count, 4u);
}

TEST(Blocks, branches_are_alike_if_their_graphs_are) {
  Written written;
  written.inputs += ", bool flag";
  written.declared = "float[8, 8] w{0}";
  written.layer = R"(  h{1}_ = If (flag) <
    then_branch = t{0} () => (float[batch, 8] p{0}) {{ p{0} = MatMul (h{0}_, w{0}) }},
    else_branch = e{0} () => (float[batch, 8] q{0}) {{ q{0} = Neg (h{0}_) }}>
)";
  EXPECT_EQ(blocks_of(written.of(4)).value().count, 4u);
  const auto other = [&](int layer) {
    std::string text = written.layer;
    if (layer == 2) text.replace(text.find("Neg"), 3, "Abs");
    return text;
  };
  EXPECT_EQ(blocks_of(written.of(5, other)).value().count, 2u);
}

// The first layer, in which the exporter computes what is common to all, is not one of them.
TEST(Blocks, models_of_exporters_have_their_layers) {
  const auto count_of = [](const std::filesystem::path& folder) -> size_t {
    const OnnxModel model = import_model(folder / "model.onnx");
    const std::optional<Blocks> blocks = find_blocks(model);
    if (!blocks) return 0;
    const OnnxModel fewer = with_blocks(model, *blocks, 1);
    fewer.graph->verify("test");
    EXPECT_EQ(fewer.graph->nodes().size(), model.graph->nodes().size() - (blocks->count - 1) * blocks->period);
    return blocks->count;
  };
  const std::filesystem::path models = std::filesystem::path(TESSERA_TEST_DATA) / "models";
  EXPECT_EQ(count_of(std::filesystem::path(TESSERA_EXAMPLES) / "tiny"), 5u);  // of 6 layers
  EXPECT_EQ(count_of(models / "vit"), 3u);
  EXPECT_EQ(count_of(models / "mlp"), 0u);
}

}  // namespace
}  // namespace tessera::rewrite
