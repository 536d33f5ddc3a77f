#include <algorithm>

#include "tessera/ops/examples/examples.h"

namespace tessera::ops {
namespace {

using namespace example;
using Operands = std::vector<ExampleOperand>;

// Queries, keys and values.
Operands qkv(const std::string& q, const std::string& k, const std::string& v) {
  return {input(q, reals), input(k, reals), input(v, reals)};
}
Operands qkv(const std::string& q, const std::string& kv) {
  return qkv(q, kv, kv);
}
Operands heads() {
  return qkv("2 4 3 8", "2 4 5 8", "2 4 5 6");
}
Operands grouped() {
  return qkv("2 6 3 4", "2 2 5 4");
}
Operands symbolic() {
  return qkv("b=2 4 s=4 4", "b=2 2 s=4 4");
}
Operands one_query() {
  return qkv("2 6 1 4", "2 2 37 4");
}
Operands packed() {
  return qkv("2 3 24", "2 5 8");
}
Operands of_dtype(const std::string& q, const std::string& kv, DType dtype) {
  return {input(q, integers, dtype), input(kv, integers, dtype), input(kv, integers, dtype)};
}

// Other operands: a mask is the fourth, a cache the fifth and sixth, lengths the seventh, sinks the ninth.
Operands with(Operands operands, size_t index, ExampleOperand operand) {
  operands.resize(std::max(operands.size(), index + 1));
  operands[index] = std::move(operand);
  return operands;
}
Operands masked(Operands operands, const std::string& mask) {
  return with(std::move(operands), 3, input(mask, reals));
}
Operands masked_by_booleans(Operands operands, const std::string& mask) {
  return with(std::move(operands), 3, input(mask, integers, DType::boolean));
}
Operands cached(Operands operands) {
  return with(with(std::move(operands), 4, input("2 2 3 4", reals)), 5, input("2 2 3 4", reals));
}
Operands of_lengths(Operands operands, int64_t low, int64_t high) {
  return with(std::move(operands), 6, indices("2", low, high));
}
Operands sunk(Operands operands, const std::string& sinks) {
  return with(std::move(operands), 8, input(sinks, reals));
}

const Attribute kCausal{"is_causal", int64_t{1}}, kSoftcap{"softcap", 2.0F};

Attribute left(int64_t size) {
  return {"left_window_size", size};
}
Attribute right(int64_t size) {
  return {"right_window_size", size};
}
std::vector<Attribute> packed_heads(std::vector<Attribute> more = {}) {
  more.insert(more.begin(), {{"q_num_heads", int64_t{6}}, {"kv_num_heads", int64_t{2}}});
  return more;
}

std::vector<Example> of_operands() {
  return {
      {"heads", heads()},
      {"grouped heads", grouped()},
      {"one key head", qkv("2 6 3 4", "2 1 5 4")},
      {"symbolic, causal", symbolic(), {kCausal}},
      {"scaled and capped", heads(), {{"scale", 0.3F}, kSoftcap}},
      {"a mask for all", masked(grouped(), "3 5")},
      {"a mask for each head", masked(grouped(), "2 6 3 5")},
      {"a boolean mask for each batch", masked_by_booleans(grouped(), "2 1 1 5")},
      {"a mask of fewer keys", masked(grouped(), "1 4"), {kCausal}},
      {"a causal boolean mask", masked_by_booleans(grouped(), "1 6 3 5"), {kCausal}},
      {.what = "with a cache", .operands = cached(grouped()), .attributes = {kCausal}, .results = 3},
      // The result's softmax has a share for each head's sink.
      {"with sinks", sunk(heads(), "4")},
      {"with sinks, symbolic, causal", sunk(symbolic(), "4"), {kCausal, kSoftcap}},
      {.what = "with sinks and a cache",
       .operands = sunk(cached(grouped()), "6"),
       .attributes = {kCausal},
       .results = 3},
      {"with lengths", of_lengths(grouped(), 1, 6)},
      {"with lengths, causal", of_lengths(grouped(), 3, 6), {kCausal}},
      {.what = "with its keys and values", .operands = grouped(), .results = 3},
  };
}

std::vector<Example> of_windows() {
  return {
      {"a window", symbolic(), {left(1), right(1)}},
      {"a causal window", grouped(), {kCausal, left(1)}},
      // Keys have the positions of their queries: ranks fetch those around theirs.
      {"a window of many positions", qkv("1 2 11 4", "1 2 11 4"), {left(2), right(1)}},
      {"a window of one position", qkv("1 2 5 4", "1 2 5 4"), {left(0), right(0)}},
      {"a window wider than the sequence", qkv("1 2 6 4", "1 1 6 4"), {left(9), right(7)}},
      {"a causal window of many positions", qkv("1 4 9 4", "1 2 9 4"), {kCausal, left(2)}},
      {"a causal window, symbolic", qkv("2 2 s=4 4", "2 2 s=4 4"), {kCausal, left(2)}},
      {"a causal window, of two tiles", qkv("1 2 140 4", "1 2 140 4"), {kCausal, left(65)}},
      {"a causal window and a mask", masked(qkv("2 2 7 4", "2 2 7 4"), "2 1 7 7"), {kCausal, left(2)}},
      {"a window and a mask of one row", masked_by_booleans(qkv("1 2 7 4", "1 2 7 4"), "1 7"), {left(3), right(1)}},
  };
}

std::vector<Example> of_many_and_few_queries() {
  return {
      {"more queries and keys than tiles have", qkv("1 2 70 8", "1 2 131 8"), {kCausal}},
      // So many queries that keys come to them.
      {"self", qkv("1 4 13 4", "1 2 13 4")},
      {"self, causal", qkv("2 3 11 4", "2 3 11 4"), {kCausal, kSoftcap}},
      {"more queries than keys", qkv("1 2 17 4", "1 1 6 4"), {kCausal}},
      {"self with a mask", masked(qkv("2 4 9 4", "2 2 9 4"), "2 4 9 9"), {kCausal}},
      {"self with a boolean mask", masked_by_booleans(qkv("2 4 9 4", "2 1 9 4"), "2 1 1 9")},
      {"self with lengths", of_lengths(qkv("2 4 9 4", "2 4 9 4"), 0, 10)},
      {"self with lengths, causal", of_lengths(qkv("2 4 9 4", "2 2 9 4"), 0, 10), {kCausal}},
      // So few queries that keys stay where they are.
      {"one query", one_query()},
      {"the last query", qkv("1 4 2 4", "1 4 150 4", "1 4 150 3"), {kCausal, kSoftcap}},
      {"one query, masked", masked_by_booleans(one_query(), "2 1 1 37")},
      {.what = "one query, a mask that is added", .operands = masked(one_query(), "6 1 37"), .results = 3},
      {"one query, with lengths", of_lengths(one_query(), 1, 38), {kCausal, left(9)}},
      {"heads in threes", qkv("1 6 3 4", "1 3 5 4"), {kCausal}},
  };
}

std::vector<Example> of_16_bits() {
  const Attribute scale{"scale", 0.05F};
  return {
      {"self, bfloat16", of_dtype("1 4 9 4", "1 2 9 4", DType::bfloat16), {scale, kCausal}},
      {"bfloat16", of_dtype("2 6 2 4", "2 2 21 4", DType::bfloat16), {scale}},
      {"float16", of_dtype("2 6 2 4", "2 2 21 4", DType::float16), {scale}},
  };
}

std::vector<Example> of_packed_heads() {
  return {
      {"packed", packed(), packed_heads()},
      {"packed, causal", packed(), packed_heads({kCausal})},
      {"packed, a causal window", qkv("2 7 24", "2 7 8"), packed_heads({kCausal, left(2)})},
  };
}

void append(std::vector<Example>& all, std::vector<Example> more, Rounding rounding = attention) {
  for (Example& example : more) {
    example.rounding = rounding;
    all.push_back(std::move(example));
  }
}

}  // namespace

std::vector<Example> attention_examples(std::string_view) {
  std::vector<Example> all;
  append(all, of_operands());
  append(all, of_windows());
  append(all, of_many_and_few_queries());
  append(all, of_16_bits(), bfloat16);
  append(all, of_packed_heads());
  return all;
}

// Parts of attentions: their queries, keys and heads begin at a place of their own.
std::vector<Example> attention_shard_examples(std::string_view) {
  const auto at = [](std::vector<int64_t> place, Operands operands) {
    return with(std::move(operands), 7, ints(place));
  };
  std::vector<Example> all = {
      {.what = "later queries", .operands = at({2, 5, 0, 0, 3}, grouped()), .attributes = {kCausal}},
      {.what = "some heads", .operands = at({0, 3, 0, 1, 4}, grouped()), .attributes = {kSoftcap}},
      {.what = "later keys", .operands = at({3, 8, 4, 0, 3}, grouped()), .attributes = {kCausal}, .results = 5},
      {.what = "keys that no query sees",
       .operands = at({0, 3, 7, 0, 3}, grouped()),
       .attributes = {kCausal},
       .results = 5},
      {.what = "a window and a mask",
       .operands = at({4, 8, 3, 2, 4}, masked_by_booleans(grouped(), "3 5")),
       .attributes = {left(2)},
       .results = 5},
      {.what = "a mask that is added, lengths",
       .operands = at({0, 4, 1, 0, 3}, of_lengths(masked(grouped(), "6 3 5"), 2, 6)),
       .attributes = {kCausal, {"scale", 0.3F}},
       .results = 5},
      {.what = "a cache", .operands = at({1, 5, 0, 1, 4}, cached(grouped())), .attributes = {kCausal}, .results = 3},
      {.what = "packed",
       .operands = at({1, 5, 0, 0, 3}, packed()),
       .attributes = {kCausal, {"q_num_heads", int64_t{6}}, {"kv_num_heads", int64_t{2}}}},
  };
  for (Example& example : all) example.rounding = attention;
  return all;
}

std::vector<Example> attention_gradient_examples(std::string_view) {
  const auto of = [](Operands operands, const std::string& result) {
    return with(with(std::move(operands), 4, input(result, reals)), 5, input(result, reals));
  };
  std::vector<Example> all = {
      {"heads", of(heads(), "2 4 3 6"), {{"scale", 0.3F}}},
      {"grouped heads", of(grouped(), "2 6 3 4")},
      {"one key head", of(qkv("2 6 3 4", "2 1 5 4"), "2 6 3 4")},
      {"symbolic, causal", of(symbolic(), "b=2 4 s=4 4"), {kCausal}},
      {"more queries than tiles have", of(qkv("1 2 70 8", "1 2 131 8"), "1 2 70 8"), {kCausal}},
      {"a window", of(qkv("2 4 5 4", "2 2 5 4"), "2 4 5 4"), {left(1), right(0)}},
      {"a mask for all", of(masked(grouped(), "3 5"), "2 6 3 4")},
      {"a mask for each head", of(masked(grouped(), "2 6 3 5"), "2 6 3 4")},
      {"a mask of fewer keys", of(masked(grouped(), "1 4"), "2 6 3 4")},
      {"a boolean mask", of(masked_by_booleans(grouped(), "1 6 3 5"), "2 6 3 4"), {kCausal}},
  };
  for (Example& example : all) {
    example.rounding = attention;
    example.results = 3;
  }
  return all;
}

std::vector<Example> rotary_examples(std::string_view) {
  const auto of = [](const std::string& data, const std::string& cache, Operands positions = {}) {
    Operands operands = {input(data, reals), weight(cache, unit), weight(cache, unit)};
    operands.insert(operands.end(), positions.begin(), positions.end());
    return operands;
  };
  const auto heads = [](int64_t count) { return Attribute{"num_heads", count}; };
  const ExampleOperand positions = indices("2 4", 0, 8);
  return {
      {"by position", of("2 6 4 4", "8 2", {positions})},
      {"symbolic", of("b=2 3 s=4 4", "8 2", {indices("b=2 s=4", 0, 8)})},
      {"caches as they are", of("2 6 4 4", "2 4 2")},
      {"interleaved, in part",
       of("2 3 4 6", "8 2", {positions}),
       {{"interleaved", int64_t{1}}, {"rotary_embedding_dim", int64_t{4}}}},
      {"packed", of("2 4 12", "8 2", {positions}), {heads(3)}},
      {"packed, many heads", of("2 3 24", "2 3 2"), {heads(6)}},
  };
}

}  // namespace tessera::ops
