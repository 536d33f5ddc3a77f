// Two operators and more: layouts meet between them, partial sums go through some and not through others, and parts are
// refined across all. Every sharding of one value, and random shardings of several on 2-D meshes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "property/trial.h"
#include "sample.h"

namespace tessera::property {
namespace {

using Ints = std::vector<int64_t>;

Subject linear_bias_relu() {
  Builder b("MatMul, Add, Relu");
  Value* product = b.node("MatMul", {b.input("4 6"), b.weight("6 8")});
  return b.output(b.node("Relu", {b.node("Add", {product, b.weight("8")})})).done();
}

Subject two_layers() {
  Builder b("MatMul, Relu, MatMul and a residual");
  Value* x = b.bind("b", 3).input("b 6");
  Value* hidden = b.node("Relu", {b.node("MatMul", {x, b.weight("6 12")})});
  Value* product = b.node("MatMul", {hidden, b.weight("12 6", Fill::small)});
  return b.output(b.node("Add", {b.node("Add", {product, b.weight("6")}), x})).done();
}

Subject partial_sums() {
  Builder b("two products added, reduced");
  Value* x = b.input("4 6");
  Value* sum = b.node("Add", {b.node("MatMul", {x, b.weight("6 5")}), b.node("MatMul", {x, b.weight("6 5")})});
  Value* turned = b.node("Transpose", {sum});
  b.output(b.node("Neg", {turned}));
  return b.output(b.node("ReduceMax", {turned, b.ints({0})})).done();
}

Subject gated() {
  Builder b("Split, Mul, Concat");
  Node* halves = b.node_of(2, "Split", {b.input("4 12")}, {{"axis", int64_t{1}}, {"num_outputs", int64_t{2}}});
  Value* product = b.node("Mul", {halves->outputs[0], halves->outputs[1]});
  return b.output(b.node("Concat", {product, halves->outputs[0]}, {{"axis", int64_t{1}}})).done();
}

Subject uneven_pieces() {
  Builder b("Split in unequal pieces, Concat in another order");
  Node* pieces = b.node_of(3, "Split", {b.input("3 9"), b.ints({6, 2, 1})}, {{"axis", int64_t{-1}}});
  Value *q = pieces->outputs[0], *k = pieces->outputs[1], *v = pieces->outputs[2];
  return b.output(b.node("Concat", {v, q, k}, {{"axis", int64_t{1}}})).done();
}

Subject heads() {
  Builder b("Reshape, Transpose, Reshape");
  Value* apart = b.node("Reshape", {b.bind("b", 2).input("b 4 12"), b.ints({0, 0, 3, 4})});
  Value* turned = b.node("Transpose", {apart}, {{"perm", Ints{0, 2, 1, 3}}});
  return b.output(b.node("Reshape", {turned, b.ints({-1, 4, 4})})).done();
}

Subject flattened() {
  Builder b("Reshape across, Add, Reshape");
  Value* flat = b.node("Reshape", {b.input("4 6"), b.ints({3, 8})});
  Value* sum = b.node("Add", {flat, b.weight("8")});
  return b.output(b.node("Reshape", {sum, b.ints({2, 12})})).done();
}

Subject embedding() {
  Builder b("Gather, Add, LayerNormalization");
  Value* tokens = b.bind("b", 2).bind("s", 4).indices("b s", -11, 11);
  Value* words = b.node("Gather", {b.weight("11 6", Fill::reals), tokens});
  Value* sum = b.node("Add", {words, b.weight("4 6", Fill::reals)});
  Value* scale = b.weight("6", Fill::reals);
  return b.output(b.node("LayerNormalization", {sum, scale, b.weight("6", Fill::reals)})).done(kNormalized);
}

Subject masked_scores() {
  Builder b("Trilu, Where, Softmax, MatMul");
  Value* causal = b.node("Cast", {b.node("Trilu", {b.weight("5 5", Fill::positive)}, {{"upper", int64_t{0}}})},
                         {{"to", static_cast<int64_t>(DType::boolean)}});
  Value* scores = b.node("Where", {causal, b.input("2 5 5", Fill::reals), b.number(-1e9)});
  Value* weights = b.node("Softmax", {scores}, {{"axis", int64_t{-1}}});
  return b.output(b.node("MatMul", {weights, b.input("2 5 6", Fill::reals)})).done(kChain);
}

// [b, s, hidden] → [b, heads, s, width]
Value* split_heads(Builder& b, Value* hidden, int64_t heads, int64_t width) {
  Value* apart = b.node("Reshape", {hidden, b.ints({0, 0, heads, width})});
  return b.node("Transpose", {apart}, {{"perm", Ints{0, 2, 1, 3}}});
}

Subject attention_layer(int64_t heads, int64_t kv_heads) {
  constexpr int64_t kWidth = 2;
  Builder b(fmt::format("projections, Attention of {} and {} heads, projection", heads, kv_heads));
  Value* x = b.bind("b", 2).bind("s", 3).input("b s 6", Fill::unit);
  auto projection = [&](int64_t count) {
    Value* hidden = b.node("MatMul", {x, b.weight(fmt::format("6 {}", count * kWidth), Fill::unit)});
    return split_heads(b, hidden, count, kWidth);
  };
  Value *q = projection(heads), *k = projection(kv_heads), *v = projection(kv_heads);
  Value* attended = b.node("Attention", {q, k, v}, {{"is_causal", int64_t{1}}});
  Value* turned = b.node("Transpose", {attended}, {{"perm", Ints{0, 2, 1, 3}}});
  Value* joined = b.node("Reshape", {turned, b.ints({0, 0, heads * kWidth})});
  Value* product = b.node("MatMul", {joined, b.weight(fmt::format("{} 6", heads * kWidth), Fill::unit)});
  return b.output(b.node("Add", {product, x})).done(kChain);
}

Subject fused_projection() {
  Builder b("a fused projection, Split, heads, RotaryEmbedding, MatMul");
  Value* fused = b.node("MatMul", {b.input("2 3 6", Fill::unit), b.weight("6 24", Fill::unit)});
  Node* qkv = b.node_of(3, "Split", {fused, b.ints({8, 8, 8})}, {{"axis", int64_t{2}}});
  Value* cosines = b.weight("3 2", Fill::unit);
  Value* sines = b.weight("3 2", Fill::unit);
  Value* positions = b.indices("2 3", 0, 3);
  auto rotated = [&](size_t piece) {
    return b.node("RotaryEmbedding", {split_heads(b, qkv->outputs[piece], 2, 4), cosines, sines, positions});
  };
  Value* q = rotated(0);
  Value* k = b.node("Transpose", {rotated(1)}, {{"perm", Ints{0, 1, 3, 2}}});
  Value* scores = b.node("Softmax", {b.node("MatMul", {q, k})}, {{"axis", int64_t{-1}}});
  return b.output(b.node("MatMul", {scores, split_heads(b, qkv->outputs[2], 2, 4)})).done(kChain);
}

Subject image_classes() {
  Builder b("Conv, BatchNormalization, Relu, GlobalAveragePool, Flatten, Gemm");
  Value* image = b.bind("n", 2).input("n 3 4 4", Fill::unit);
  Value* convolved =
      b.node("Conv", {image, b.weight("6 3 3 3", Fill::unit), b.weight("6", Fill::unit)}, {{"pads", Ints{1, 1, 1, 1}}});
  Value* scaled = b.node("BatchNormalization", {convolved, b.weight("6", Fill::unit), b.weight("6", Fill::unit),
                                                b.weight("6", Fill::unit), b.weight("6", Fill::above_one)});
  Value* pooled = b.node("GlobalAveragePool", {b.node("Relu", {scaled})});
  Value* flat = b.node("Flatten", {pooled});
  return b.output(b.node("Gemm", {flat, b.weight("6 5", Fill::unit), b.weight("5", Fill::unit)})).done(kChain);
}

struct Chain {
  Subject (*subject)();
};
void PrintTo(const Chain& chain, std::ostream* out) {
  *out << chain.subject().name;
}

class Chains : public testing::TestWithParam<Chain> {};

TEST_P(Chains, GiveTheSameOnEveryMesh) {
  Subject subject = GetParam().subject();
  SCOPED_TRACE(subject.name);
  Trials trials(subject);
  trials.run_single(test::sample(1, 100));
  trials.run_random(test::sample(60, 1000));
  RecordProperty("right", trials.right());
  RecordProperty("refused", trials.refused());
  EXPECT_GT(trials.right(), 0);
}

// What operands and the result say of a channel's parts differs, but the groups are a part of its own for both.
TEST(Chains, GroupsAreSplitBesideChannelsInOtherParts) {
  const Mesh mesh = Mesh::parse("x=6");
  Builder b("GroupNormalization");
  Value *scale = b.weight("12"), *bias = b.input("12");
  Value* y = b.node("GroupNormalization", {b.input("1 12 3 6"), scale, bias}, {{"num_groups", int64_t{2}}});
  const Subject subject = b.output(y).done(kChain);
  Trials trials(subject);
  for (const char* channels : {"4{x:(3)2}·3", "2{x:(3)2}·6", "12", "6·2{x:(3)2}"})
    trials.run(mesh,
               {{scale, parse_sharding("[6·2{x}]", scale->shape(), mesh, "scale"), "test"},
                {y, parse_sharding(fmt::format("[-, {}, 3{{x:(1)3}}, -]", channels), y->shape(), mesh, "y"), "test"}});
  EXPECT_GT(trials.right(), 3);
}

// Partial sums of 16 bits are float32, also through a Cast to the type that the whole sum has.
TEST(Chains, WideSumsGoThroughCasts) {
  const Mesh mesh = Mesh::parse("x=3");
  for (const DType type : {DType::float16, DType::bfloat16})
    for (const DType to : {type, DType::float32}) {
      Builder b("MatMul, Cast, Neg");
      Value* product = b.node("MatMul", {b.input("4 7", Fill::small, type), b.weight("7 6", Fill::small, type)});
      Value* cast = b.node("Cast", {product}, {{"to", static_cast<int64_t>(to)}});
      const Subject subject = b.output(b.node("Neg", {cast})).done();
      Trials trials(subject);
      trials.run(mesh, {{product, parse_sharding("[-, -] partial(sum:x)", product->shape(), mesh, "sum"), "test"}});
      EXPECT_GT(trials.right(), 0);
    }
}

Subject equal_heads() {
  return attention_layer(6, 6);
}
Subject grouped_heads() {
  return attention_layer(6, 2);
}
Subject one_key_head() {
  return attention_layer(4, 1);
}

INSTANTIATE_TEST_SUITE_P(Property, Chains,
                         testing::Values(Chain{linear_bias_relu}, Chain{two_layers}, Chain{partial_sums}, Chain{gated},
                                         Chain{uneven_pieces}, Chain{heads}, Chain{flattened}, Chain{embedding},
                                         Chain{masked_scores}, Chain{equal_heads}, Chain{grouped_heads},
                                         Chain{one_key_head}, Chain{fused_projection}, Chain{image_classes}));

}  // namespace
}  // namespace tessera::property
