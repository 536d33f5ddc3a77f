#include "property/cases.h"

namespace tessera::property {
namespace {

using Operands = std::vector<Value*>;

// Queries, keys and values in the 4-D form, with symbols b and s.
Operands qkv(Builder& b, std::string_view q, std::string_view k, std::string_view v) {
  b.bind("b", 2).bind("s", 4);
  return {b.input(q, Fill::reals), b.input(k, Fill::reals), b.input(v, Fill::reals)};
}

void add_attentions(CaseList& list) {
  Attribute causal{"is_causal", int64_t{1}};
  auto add = [&](std::string_view what, const CaseList::Make& operands, std::vector<Attribute> attributes = {},
                 size_t results = 1) {
    list.add("Attention", what, operands, std::move(attributes), kAttention, results);
  };
  auto heads = [](Builder& b) { return qkv(b, "2 4 3 8", "2 4 5 8", "2 4 5 6"); };
  auto grouped = [](Builder& b) { return qkv(b, "2 6 3 4", "2 2 5 4", "2 2 5 4"); };
  auto self = [](Builder& b) { return qkv(b, "b 4 s 4", "b 2 s 4", "b 2 s 4"); };
  add("heads", heads);
  add("grouped heads", grouped);
  add("one key head", [](Builder& b) { return qkv(b, "2 6 3 4", "2 1 5 4", "2 1 5 4"); });
  add("symbolic, causal", self, {causal});
  add("scaled and capped", heads, {{"scale", 0.3f}, {"softcap", 2.0f}});
  auto masked = [&](std::string_view what, std::string_view mask, DType dtype, std::vector<Attribute> attributes) {
    add(
        what,
        [&](Builder& b) {
          Operands operands = grouped(b);
          operands.push_back(b.input(mask, dtype == DType::boolean ? Fill::integers : Fill::reals, dtype));
          return operands;
        },
        std::move(attributes));
  };
  masked("a mask for all", "3 5", DType::float32, {});
  masked("a mask for each head", "2 6 3 5", DType::float32, {});
  masked("a boolean mask for each batch", "2 1 1 5", DType::boolean, {});
  masked("a mask of fewer keys", "1 4", DType::float32, {causal});
  masked("a causal boolean mask", "1 6 3 5", DType::boolean, {causal});
  auto cached = [&](Builder& b) {
    Operands operands = grouped(b);
    operands.resize(4);
    operands.push_back(b.input("2 2 3 4", Fill::reals));
    operands.push_back(b.input("2 2 3 4", Fill::reals));
    return operands;
  };
  add("with a cache", cached, {causal}, 3);
  // The result's softmax has a share for each head's sink.
  const auto sunk = [](const CaseList::Make& make, std::string_view heads) {
    return [=](Builder& b) {
      Operands operands = make(b);
      operands.resize(8);
      operands.push_back(b.input(heads, Fill::reals));
      return operands;
    };
  };
  add("with sinks", sunk(heads, "4"));
  add("with sinks, symbolic, causal", sunk(self, "4"), {causal, {"softcap", 2.0f}});
  add("with sinks and a cache", sunk(cached, "6"), {causal}, 3);
  add("with lengths", [&](Builder& b) {
    Operands operands = grouped(b);
    operands.resize(6);
    operands.push_back(b.indices("2", 1, 6));
    return operands;
  });
  add("with lengths, causal",
      [&](Builder& b) {
        Operands operands = grouped(b);
        operands.resize(6);
        operands.push_back(b.indices("2", 3, 6));
        return operands;
      },
      {causal});
  add("with its keys and values", grouped, {}, 3);
  add("a window", self, {{"left_window_size", int64_t{1}}, {"right_window_size", int64_t{1}}});
  add("a causal window", grouped, {causal, {"left_window_size", int64_t{1}}});
  // Keys lie with their queries: ranks fetch those around theirs.
  const auto along = [](std::string_view q, std::string_view kv) {
    return [=](Builder& b) { return qkv(b.bind("s", 7), q, kv, kv); };
  };
  const auto window = [](int64_t left, int64_t right) {
    return std::vector<Attribute>{{"left_window_size", left}, {"right_window_size", right}};
  };
  const Attribute left{"left_window_size", int64_t{2}};
  add("a window of many positions", along("1 2 11 4", "1 2 11 4"), window(2, 1));
  add("a window of one position", along("1 2 5 4", "1 2 5 4"), window(0, 0));
  add("a window wider than the sequence", along("1 2 6 4", "1 1 6 4"), window(9, 7));
  add("a causal window of many positions", along("1 4 9 4", "1 2 9 4"), {causal, left});
  add("a causal window, symbolic", along("2 2 s 4", "2 2 s 4"), {causal, left});
  add("a causal window, of two tiles", along("1 2 140 4", "1 2 140 4"), {causal, {"left_window_size", int64_t{65}}});
  add("a causal window and a mask",
      [](Builder& b) {
        Operands operands = qkv(b, "2 2 7 4", "2 2 7 4", "2 2 7 4");
        operands.push_back(b.input("2 1 7 7", Fill::reals));
        return operands;
      },
      {causal, left});
  add(
      "a window and a mask of one row",
      [](Builder& b) {
        Operands operands = qkv(b, "1 2 7 4", "1 2 7 4", "1 2 7 4");
        operands.push_back(b.input("1 7", Fill::integers, DType::boolean));
        return operands;
      },
      window(3, 1));
  add("more queries and keys than tiles have", [](Builder& b) { return qkv(b, "1 2 70 8", "1 2 131 8", "1 2 131 8"); },
      {causal});
  // So many queries that keys come to them.
  add("self", along("1 4 13 4", "1 2 13 4"));
  add("self, causal", along("2 3 11 4", "2 3 11 4"), {causal, {"softcap", 2.0f}});
  add("more queries than keys", along("1 2 17 4", "1 1 6 4"), {causal});
  const auto with = [&](std::string_view keys, size_t operand, std::string_view mask, DType dtype) {
    return [=](Builder& b) {
      Operands operands = qkv(b.bind("s", 9), "2 4 9 4", keys, keys);
      operands.resize(operand + 1);
      operands[operand] = operand == 6 ? b.indices(mask, 0, 10)
                                       : b.input(mask, dtype == DType::boolean ? Fill::integers : Fill::reals, dtype);
      return operands;
    };
  };
  add("self with a mask", with("2 2 9 4", 3, "2 4 9 9", DType::float32), {causal});
  add("self with a boolean mask", with("2 1 9 4", 3, "2 1 1 9", DType::boolean));
  add("self with lengths", with("2 4 9 4", 6, "2", DType::int64));
  add("self with lengths, causal", with("2 2 9 4", 6, "2", DType::int64), {causal});
  // So few queries that keys stay where they are.
  add("one query", [](Builder& b) { return qkv(b, "2 6 1 4", "2 2 37 4", "2 2 37 4"); });
  add("the last query", [](Builder& b) { return qkv(b, "1 4 2 4", "1 4 150 4", "1 4 150 3"); },
      {causal, {"softcap", 2.0f}});
  add("one query, masked", [](Builder& b) {
    Operands operands = qkv(b, "2 6 1 4", "2 2 37 4", "2 2 37 4");
    operands.push_back(b.input("2 1 1 37", Fill::integers, DType::boolean));
    return operands;
  });
  add(
      "one query, a mask that is added",
      [](Builder& b) {
        Operands operands = qkv(b, "2 6 1 4", "2 2 37 4", "2 2 37 4");
        operands.push_back(b.input("6 1 37", Fill::reals));
        return operands;
      },
      {}, 3);
  add("one query, with lengths",
      [](Builder& b) {
        Operands operands = qkv(b, "2 6 1 4", "2 2 37 4", "2 2 37 4");
        operands.resize(6);
        operands.push_back(b.indices("2", 1, 38));
        return operands;
      },
      {causal, {"left_window_size", int64_t{9}}});
  add("heads in threes", [](Builder& b) { return qkv(b, "1 6 3 4", "1 3 5 4", "1 3 5 4"); }, {causal});
  auto narrow = [&](std::string_view what, DType dtype) {
    list.add(
        "Attention", what,
        [dtype](Builder& b) {
          return Operands{b.input("2 6 2 4", Fill::integers, dtype), b.input("2 2 21 4", Fill::integers, dtype),
                          b.input("2 2 21 4", Fill::integers, dtype)};
        },
        {{"scale", 0.05f}}, kBFloat16);
  };
  list.add(
      "Attention", "self, bfloat16",
      [](Builder& b) {
        return Operands{b.input("1 4 9 4", Fill::integers, DType::bfloat16),
                        b.input("1 2 9 4", Fill::integers, DType::bfloat16),
                        b.input("1 2 9 4", Fill::integers, DType::bfloat16)};
      },
      {{"scale", 0.05f}, causal}, kBFloat16);
  narrow("bfloat16", DType::bfloat16);
  narrow("float16", DType::float16);
  auto packed = [](Builder& b) { return qkv(b, "2 3 24", "2 5 8", "2 5 8"); };
  Attribute q_heads{"q_num_heads", int64_t{6}}, kv_heads{"kv_num_heads", int64_t{2}};
  add("packed", packed, {q_heads, kv_heads});
  add("packed, causal", packed, {q_heads, kv_heads, causal});
  add("packed, a causal window", [](Builder& b) { return qkv(b, "2 7 24", "2 7 8", "2 7 8"); },
      {q_heads, kv_heads, causal, left});
}

// Parts of attentions: their queries, keys and heads begin at a place of their own.
void add_attention_shards(CaseList& list) {
  const Attribute causal{"is_causal", int64_t{1}};
  auto add = [&](std::string_view what, std::vector<int64_t> place, const CaseList::Make& make,
                 std::vector<Attribute> attributes, size_t results) {
    list.add(
        "AttentionShard", what,
        [&](Builder& b) {
          Operands operands = make(b);
          operands.resize(7);
          operands.push_back(b.ints(place));
          return operands;
        },
        std::move(attributes), kAttention, results, "tessera");
  };
  auto grouped = [](Builder& b) { return qkv(b, "2 6 3 4", "2 2 5 4", "2 2 5 4"); };
  add("later queries", {2, 5, 0, 0, 3}, grouped, {causal}, 1);
  add("some heads", {0, 3, 0, 1, 4}, grouped, {{"softcap", 2.0f}}, 1);
  add("later keys", {3, 8, 4, 0, 3}, grouped, {causal}, 5);
  add("keys that no query sees", {0, 3, 7, 0, 3}, grouped, {causal}, 5);
  add(
      "a window and a mask", {4, 8, 3, 2, 4},
      [&](Builder& b) {
        Operands operands = grouped(b);
        operands.push_back(b.input("3 5", Fill::integers, DType::boolean));
        return operands;
      },
      {{"left_window_size", int64_t{2}}}, 5);
  add(
      "a mask that is added, lengths", {0, 4, 1, 0, 3},
      [&](Builder& b) {
        Operands operands = grouped(b);
        operands.push_back(b.input("6 3 5", Fill::reals));
        operands.resize(6);
        operands.push_back(b.indices("2", 2, 6));
        return operands;
      },
      {causal, {"scale", 0.3f}}, 5);
  add(
      "a cache", {1, 5, 0, 1, 4},
      [&](Builder& b) {
        Operands operands = grouped(b);
        operands.resize(4);
        operands.push_back(b.input("2 2 3 4", Fill::reals));
        operands.push_back(b.input("2 2 3 4", Fill::reals));
        return operands;
      },
      {causal}, 3);
  add(
      "packed", {1, 5, 0, 0, 3}, [](Builder& b) { return qkv(b, "2 3 24", "2 5 8", "2 5 8"); },
      {causal, {"q_num_heads", int64_t{6}}, {"kv_num_heads", int64_t{2}}}, 1);
}

void add_attention_gradients(CaseList& list) {
  struct Form {
    std::string_view what, query, key, value, result, mask;
    DType dtype;
    std::vector<Attribute> attributes;
  };
  const Attribute causal{"is_causal", int64_t{1}};
  const Attribute left{"left_window_size", int64_t{1}}, right{"right_window_size", int64_t{0}};
  const DType none = DType::undefined;
  for (const Form& form : std::vector<Form>{
           {"heads", "2 4 3 8", "2 4 5 8", "2 4 5 6", "2 4 3 6", "", none, {{"scale", 0.3f}}},
           {"grouped heads", "2 6 3 4", "2 2 5 4", "2 2 5 4", "2 6 3 4", "", none, {}},
           {"one key head", "2 6 3 4", "2 1 5 4", "2 1 5 4", "2 6 3 4", "", none, {}},
           {"symbolic, causal", "b 4 s 4", "b 2 s 4", "b 2 s 4", "b 4 s 4", "", none, {causal}},
           {"more queries than tiles have", "1 2 70 8", "1 2 131 8", "1 2 131 8", "1 2 70 8", "", none, {causal}},
           {"a window", "2 4 5 4", "2 2 5 4", "2 2 5 4", "2 4 5 4", "", none, {left, right}},
           {"a mask for all", "2 6 3 4", "2 2 5 4", "2 2 5 4", "2 6 3 4", "3 5", DType::float32, {}},
           {"a mask for each head", "2 6 3 4", "2 2 5 4", "2 2 5 4", "2 6 3 4", "2 6 3 5", DType::float32, {}},
           {"a mask of fewer keys", "2 6 3 4", "2 2 5 4", "2 2 5 4", "2 6 3 4", "1 4", DType::float32, {}},
           {"a boolean mask", "2 6 3 4", "2 2 5 4", "2 2 5 4", "2 6 3 4", "1 6 3 5", DType::boolean, {causal}}})
    list.add(
        "AttentionGradient", form.what,
        [&](Builder& b) {
          Operands operands = qkv(b, form.query, form.key, form.value);
          operands.push_back(
              form.mask.empty()
                  ? nullptr
                  : b.input(form.mask, form.dtype == DType::boolean ? Fill::integers : Fill::reals, form.dtype));
          for (int i = 0; i < 2; ++i) operands.push_back(b.input(form.result, Fill::reals));
          return operands;
        },
        form.attributes, kAttention, 3, "tessera");
}

void add_rotaries(CaseList& list) {
  auto add = [&](std::string_view what, std::string_view data, std::string_view cache, const char* positions,
                 std::vector<Attribute> attributes) {
    list.add(
        "RotaryEmbedding", what,
        [=](Builder& b) -> Operands {
          b.bind("b", 2).bind("s", 4);
          Operands operands{b.input(data, Fill::reals), b.weight(cache, Fill::unit), b.weight(cache, Fill::unit)};
          if (positions) operands.push_back(b.indices(positions, 0, 8));
          return operands;
        },
        std::move(attributes));
  };
  Attribute heads{"num_heads", int64_t{3}};
  add("by position", "2 6 4 4", "8 2", "2 4", {});
  add("symbolic", "b 3 s 4", "8 2", "b s", {});
  add("caches as they are", "2 6 4 4", "2 4 2", nullptr, {});
  add("interleaved, in part", "2 3 4 6", "8 2", "2 4",
      {{"interleaved", int64_t{1}}, {"rotary_embedding_dim", int64_t{4}}});
  add("packed", "2 4 12", "8 2", "2 4", {heads});
  add("packed, many heads", "2 3 24", "2 3 2", nullptr, {{"num_heads", int64_t{6}}});
}

}  // namespace

std::vector<Subject> attention_cases() {
  CaseList list;
  add_attentions(list);
  add_attention_shards(list);
  add_attention_gradients(list);
  add_rotaries(list);
  return list.take();
}

}  // namespace tessera::property
