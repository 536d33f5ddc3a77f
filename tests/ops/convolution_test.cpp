#include <gmock/gmock.h>

#include "ops/one_node.h"

namespace tessera::ops {
namespace {

using testing::HasSubstr;
using Ints = std::vector<int64_t>;

TEST(Conv, SumsOverInputChannels) {
  OneNode node("Conv");
  node.operand("n 3 224 224").parameter({64, 3, 7, 7}).set("strides", Ints{2, 2}).set("pads", Ints{3, 3, 3, 3});
  EXPECT_EQ(node.type(), "float32 [n, 64, 112, 112]");
  EXPECT_EQ(node.rule(), "n c x0 x1, m c 1 1 -> n m x0 x1 | c: sum, x0: halo, x1: halo");
  EXPECT_EQ(node.partials(), "sum{0} sum{1}");
  EXPECT_EQ(node.flops(), std::to_string(int64_t{2} * 64 * 112 * 112 * 3 * 49) + "*n");
}

// Padding is read as zeros, and zero times infinity is NaN.
TEST(Conv, NeedsPaddedImagesWholeIfWeightsMayBeInfinite) {
  OneNode node("Conv");
  node.operand("n 3 8 8").operand("4 3 3 3").set("pads", Ints{1, 0, 1, 0});
  EXPECT_EQ(node.rule(), "n c 1 x1, m c 1 1 -> n m 1 x1 | c: sum, x1: halo");
}

TEST(Conv, WithABiasNeedsInputChannelsWhole) {
  OneNode node("Conv");
  node.operand("n 8 x").operand("16 8 3").operand("16");
  EXPECT_EQ(node.type(), "float32 [n, 16, x - 2]");
  EXPECT_EQ(node.rule(), "n c x0, m c 1, m -> n m x0 | c: sum, x0: halo");
  EXPECT_EQ(node.partials(), "sum{0,2} sum{1,2}");
}

TEST(Conv, PointwisePassesSpatialDimensions) {
  OneNode node("Conv");
  node.operand("n 8 y x").operand("16 8 1 1");
  EXPECT_EQ(node.rule(), "n c x0 x1, m c 1 1 -> n m x0 x1 | c: sum");
  OneNode strided("Conv");
  strided.operand("n 8 y x").operand("16 8 1 1").set("strides", Ints{2, 1});
  EXPECT_EQ(strided.rule(), "n c x0 x1, m c 1 1 -> n m x0 x1 | c: sum, x0: halo");
}

TEST(Conv, GroupsPassInBothChannels) {
  OneNode grouped("Conv");
  grouped.operand("n 8 x").operand("16 2 3").operand("16").set("group", int64_t{4});
  EXPECT_EQ(grouped.rule(), "n (g c) x0, (g m) c 1, (g m) -> n (g m) x0 | c: sum, x0: halo");
  OneNode depthwise("Conv");
  depthwise.operand("n 8 x").operand("8 1 3").set("group", int64_t{8});
  EXPECT_EQ(depthwise.rule(), "n g x0, g 1 1 -> n g x0 | x0: halo");
  EXPECT_EQ(depthwise.flops(), "48*n*x - 96*n");
}

TEST(Conv, ARanksGroupsAreItsOwn) {
  OneNode node("Conv");
  node.operand("n 8 9").operand("8 1 3").set("group", int64_t{8});
  EXPECT_EQ(node.localized("g", 4), "Conv(A, B) -> float32 [n, 2, 7]\n");
  EXPECT_EQ(std::get<int64_t>(node.last_attributes.at(0).value), 2);
  // Ranks that differ in their groups have their number as an operand.
  EXPECT_EQ(node.localized("g", 3),
            "Conv(A, B, _, [floordiv(-@x + 10, 3)]) -> float32 [n, floordiv(-@x + 10, 3), 7]\n");
  EXPECT_TRUE(node.last_attributes.empty());
}

TEST(Conv, ARanksGroupsSayItsChannels) {
  OneNode conv("Conv", "tessera");
  conv.operand("n 6 9").operand("4 3 3").operand("4").ints({2}, true);
  EXPECT_EQ(conv.type(), "float32 [n, 4, 7]");
  EXPECT_EQ(conv.flops(), "504*n");
  for (int64_t groups : {2, 3}) {
    OneNode transposed("ConvTranspose", "tessera");
    transposed.operand("n 6 9").operand("6 2 3").absent().ints({groups}, true);
    EXPECT_EQ(transposed.type(), fmt::format("float32 [n, {}, 11]", 2 * groups));
    EXPECT_EQ(transposed.flops(), "648*n");
  }
  OneNode wrong("Conv", "tessera");
  wrong.operand("n 6 9").operand("4 3 3").absent().ints({3}, true);
  EXPECT_THAT(wrong.error(), HasSubstr("the data's channels (6) and those of all groups (9) must be equal"));
}

TEST(Conv, PadsAutomatically) {
  OneNode same("Conv");
  same.operand("n 3 x").operand("8 3 3").set("auto_pad", std::string("SAME_UPPER")).set("strides", Ints{2});
  EXPECT_EQ(same.type(), "float32 [n, 8, floordiv(x + 1, 2)]");
  OneNode valid("Conv");
  valid.operand("n 3 10").operand("8 3 3").set("auto_pad", std::string("VALID")).set("dilations", Ints{2});
  EXPECT_EQ(valid.type(), "float32 [n, 8, 6]");
}

TEST(Conv, SaysWhatDoesNotFit) {
  OneNode channels("Conv");
  channels.operand("n 4 x").operand("8 3 3");
  EXPECT_THAT(channels.error(), HasSubstr("the data's channels in a group (4)"));
  OneNode groups("Conv");
  groups.operand("n 4 x").operand("8 1 3").set("group", int64_t{3});
  EXPECT_THAT(groups.error(), HasSubstr("do not divide into 3 groups"));
  OneNode window("Conv");
  window.operand("n 4 2").operand("8 4 3");
  EXPECT_THAT(window.error(), HasSubstr("does not fit"));
  OneNode strides("Conv");
  strides.operand("n 4 9 9").operand("8 4 3 3").set("strides", Ints{2});
  EXPECT_THAT(strides.error(), HasSubstr("'strides' has 1 value, 2 are needed"));
  OneNode pad("Conv");
  pad.operand("n 4 9").operand("8 4 3").set("auto_pad", std::string("SAME"));
  EXPECT_THAT(pad.error(), HasSubstr("auto_pad is 'SAME'"));
}

TEST(ConvTranspose, Widens) {
  OneNode node("ConvTranspose");
  node.operand("n 8 x")
      .parameter({8, 4, 3})
      .set("strides", Ints{2})
      .set("pads", Ints{1, 1})
      .set("output_padding", Ints{1});
  EXPECT_EQ(node.type(), "float32 [n, 4, 2*x]");
  EXPECT_EQ(node.rule(), "n c x0, c m 1 -> n m x0 | c: sum, x0: halo");
  EXPECT_EQ(node.flops(), std::to_string(2 * 8 * 4 * 3) + "*n*x");

  OneNode grouped("ConvTranspose");
  grouped.operand("n 8 x").operand("8 4 3").operand("8").set("group", int64_t{2}).set("output_shape", Ints{17});
  EXPECT_EQ(grouped.type(), "float32 [n, 8, 17]");
  EXPECT_EQ(grouped.rule(), "n (g c) 1, (g c) m 1, (g m) -> n (g m) 1 | c: sum");
}

TEST(Pool, PassesBatchAndChannels) {
  OneNode maximum("MaxPool");
  maximum.operand("n 64 112 112")
      .set("kernel_shape", Ints{3, 3})
      .set("strides", Ints{2, 2})
      .set("pads", Ints{1, 1, 1, 1});
  EXPECT_EQ(maximum.type(), "float32 [n, 64, 56, 56]");
  EXPECT_EQ(maximum.rule(), "n c x0 x1 -> n c x0 x1 | x0: halo, x1: halo");
  EXPECT_EQ(maximum.partials(), "") << "it drops NaN";
  OneNode average("AveragePool");
  average.operand("n c x").set("kernel_shape", Ints{2}).set("strides", Ints{2});
  EXPECT_EQ(average.type(), "float32 [n, c, floordiv(x, 2)]");
  EXPECT_EQ(average.partials(), "sum{0}");
}

TEST(Pool, RoundsUpButNeverStartsInThePadding) {
  OneNode up("MaxPool");
  up.operand("1 1 6").set("kernel_shape", Ints{3}).set("strides", Ints{2}).set("ceil_mode", int64_t{1});
  EXPECT_EQ(up.type(), "float32 [1, 1, 3]");
  // Rounded up, three windows would start at 0, 3 and 6, of elements 0 … 4 and one of padding on each side.
  OneNode inside("MaxPool");
  inside.operand("1 1 5")
      .set("kernel_shape", Ints{2})
      .set("strides", Ints{3})
      .set("pads", Ints{1, 1})
      .set("ceil_mode", int64_t{1});
  EXPECT_EQ(inside.type(), "float32 [1, 1, 2]");
}

TEST(Pool, IndicesCountTheWholeOperand) {
  OneNode node("MaxPool");
  node.operand("n c x").set("kernel_shape", Ints{2}).results(2);
  EXPECT_EQ(node.type(1), "int64 [n, c, x - 1]");
  EXPECT_EQ(node.rule(), "n c x0 -> n c x0, n c x0 | n: index, c: index, x0: halo");
  EXPECT_EQ(node.partials(), "");
}

TEST(Pool, OfEverything) {
  OneNode node("GlobalAveragePool");
  node.operand("n c y x");
  EXPECT_EQ(node.type(), "float32 [n, c, 1, 1]");
  EXPECT_EQ(node.rule(), "n c x0 x1 -> n c 1 1 | x0: sum, x1: sum");
  EXPECT_EQ(node.partials(), "sum{0}");
}

TEST(Pool, MaximaOfEverythingCombine) {
  OneNode node("GlobalMaxPool");
  node.operand("n c y x");
  EXPECT_EQ(node.rule(), "n c x0 x1 -> n c 1 1 | x0: max, x1: max");
  EXPECT_EQ(node.partials(), "") << "it drops NaN";
}

TEST(Pool, ARanksPaddingIsItsOwn) {
  OneNode node("AveragePool", "tessera");
  node.operand("n c 5").ints({1, 0}).set("kernel_shape", Ints{3});
  EXPECT_EQ(node.type(), "float32 [n, c, 4]");
  OneNode wrong("AveragePool", "tessera");
  wrong.operand("n c 5").ints({1}).set("kernel_shape", Ints{3});
  EXPECT_THAT(wrong.error(), HasSubstr("pads has 1 element for 1 spatial dimension"));
}

Interval read(const Window& window, int64_t begin, int64_t end) {
  return window.reads(begin, end, 100);
}

// Windows of 3 elements, 2 apart, after one element of padding.
TEST(Window, SaysWhatResultsRead) {
  const Window window{2, 1, -1, 1};
  EXPECT_EQ(read(window, 0, 2).begin, Expr(-1));
  EXPECT_EQ(read(window, 0, 2).end, Expr(4));
  EXPECT_EQ(read(window, 3, 3).count(), Expr(0)) << "no results read nothing";
  const Expr s = Expr::symbol("s");
  EXPECT_EQ(window.reads(0, s, s).count().evaluate({{"s", 5}}), 11);
}

// Padding of 3 elements in front of 5, and of 4 behind.
TEST(Window, ReadsElementsForThoseBeyond) {
  const auto read_of = [](Window::Beyond beyond, int64_t begin, int64_t end) {
    Window window{1, 1, -3, -3};
    window.beyond = beyond;
    const Interval read = window.reads(begin, end, 5);
    return std::pair(*read.begin.constant(), *read.end.constant());
  };
  using Ends = std::pair<int64_t, int64_t>;
  constexpr auto nearest = Window::Beyond::nearest, mirrored = Window::Beyond::mirrored;
  EXPECT_EQ(read_of(nearest, 0, 2), Ends(0, 1));
  EXPECT_EQ(read_of(nearest, 2, 5), Ends(0, 2));
  EXPECT_EQ(read_of(nearest, 9, 12), Ends(4, 5));
  EXPECT_EQ(read_of(mirrored, 2, 5), Ends(0, 2));
  EXPECT_EQ(read_of(mirrored, 0, 4), Ends(0, 4));
  EXPECT_EQ(read_of(mirrored, 8, 12), Ends(0, 5));
  EXPECT_EQ(read_of(mirrored, 7, 9), Ends(3, 5));
  for (const auto beyond : {nearest, mirrored}) {
    const auto [begin, end] = read_of(beyond, 4, 4);
    EXPECT_EQ(begin, end) << "no results read nothing";
  }
}

TEST(Window, MayRunBackwards) {
  const Window every_second_from_the_end{-2, 1, 9, 9};
  EXPECT_EQ(read(every_second_from_the_end, 1, 3).begin, Expr(5));
  EXPECT_EQ(read(every_second_from_the_end, 1, 3).end, Expr(8));
}

// A transposed convolution with stride 2, windows of 3 and padding 1: element i reaches results 2i - 1 … 2i + 1.
TEST(Window, OfSumsOverOverlappingWindows) {
  const Window window{1, 2, 0, 1};
  for (int64_t j = 0; j < 6; ++j) {
    const Interval elements = read(window, j, j + 1);
    EXPECT_EQ(elements.begin, Expr(j / 2));
    EXPECT_EQ(elements.end, Expr((j + 1) / 2 + 1));
  }
}

}  // namespace
}  // namespace tessera::ops
