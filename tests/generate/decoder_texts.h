#pragma once

#include <string>

/// Small decoders as texts, over 9 tokens, whose caches hold the keys and values in one of the forms that exporters
/// write.
namespace tessera::test {

/// A decoder of one head. The nodes `mask` make `seen`, [sequence, past + sequence], of the places of `keys` and
/// `queries`.
inline std::string cached_decoder(const std::string& mask) {
  return R"(<ir_version: 10, opset_import: ["" : 24]>
    g (int64[batch, sequence] input_ids, float[batch, 1, past, 4] past)
      => (float[batch, sequence, 9] logits, float[batch, 1, "past + sequence", 4] present) <
      float[9, 4] table, float[4, 9] head, int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64[1] first = {1},
      int64[1] places = {-1}> {
      x = Gather <axis = 0> (table, input_ids)
      heads = Unsqueeze (x, first)
      present = Concat <axis = 2> (past, heads)
      whole = Shape <start = 2, end = 3> (present)
      before = Shape <start = 2, end = 3> (past)
      all = Squeeze (whole)
      held = Squeeze (before)
      keys = Range (zero, all, one)
      own = Range (held, all, one)
      queries = Unsqueeze (own, places)
      )" +
         mask + R"(
      y = Attention (heads, present, present, seen)
      rows = Squeeze (y, first)
      logits = MatMul (rows, head)
    })";
}

inline constexpr const char* kCausalMask = "seen = LessOrEqual (keys, queries)";

/// A decoder whose `positions` are counted along its mask.
inline std::string counted_decoder(const std::string& positions) {
  return R"(<ir_version: 10, opset_import: ["" : 24]>
    g (int64[batch, sequence] input_ids, int64[batch, "past + sequence"] attention_mask, float[batch, 1, past, 4] past)
      => (float[batch, sequence, 9] logits, float[batch, 1, "past + sequence", 4] present) <
      float[9, 4] table, float[32, 4] placed, float[4, 9] head, int64 zero = {0}, int64 one = {1}, int64[1] first = {1},
      int64[1] places = {-1}, int64[1] far = {9223372036854775807}> {
      fresh = Shape <start = 1, end = 2> (input_ids)
      )" +
         positions + R"(
      e = Gather <axis = 0> (table, input_ids)
      p = Gather <axis = 0> (placed, positions)
      x = Add (e, p)
      heads = Unsqueeze (x, first)
      present = Concat <axis = 2> (past, heads)
      whole = Shape <start = 2, end = 3> (present)
      before = Shape <start = 2, end = 3> (past)
      all = Squeeze (whole)
      held = Squeeze (before)
      keys = Range (zero, all, one)
      own = Range (held, all, one)
      queries = Unsqueeze (own, places)
      seen = LessOrEqual (keys, queries)
      y = Attention (heads, present, present, seen)
      rows = Squeeze (y, first)
      logits = MatMul (rows, head)
    })";
}

inline constexpr const char* kCountedFromTheEnd = R"(sums = CumSum (attention_mask, one)
      spots = Sub (sums, one)
      back = Neg (fresh)
      positions = Slice (spots, back, far, first))";
inline constexpr const char* kCountedInAll = R"(counts = ReduceSum <keepdims = 1> (attention_mask, first)
      earlier = Sub (counts, fresh)
      count = Squeeze (fresh)
      index = Range (zero, count, one)
      positions = Add (earlier, index))";

/// A decoder whose cache keeps the last `kept` tokens, and whose queries see `window` tokens, their own included. Its
/// nodes `more` come behind those that embed tokens as `x`, and give `embedded`.
inline std::string windowed_decoder(int kept, int window, const std::string& more = "embedded = Identity (x)") {
  return R"(<ir_version: 10, opset_import: ["" : 24]>
    g (int64[batch, sequence] input_ids, float[batch, 1, past, 4] past)
      => (float[batch, sequence, 9] logits, float[batch, 1, kept, 4] present) <
      float[9, 4] table, float[32, 4] placed, float[4, 9] head, int64 zero = {0}, int64 one = {1}, int64[1] first = {1},
      int64[1] places = {-1}, int64[1] second = {2}, int64[1] far = {9223372036854775807}, int64[1] last = {-)" +
         std::to_string(kept) + "}, int64 window = {" + std::to_string(window) + R"(}> {
      before = Shape <start = 2, end = 3> (past)
      fresh = Shape <start = 1, end = 2> (input_ids)
      held = Squeeze (before)
      count = Squeeze (fresh)
      all = Add (held, count)
      keys = Range (zero, all, one)
      own = Range (held, all, one)
      x = Gather <axis = 0> (table, input_ids)
      )" +
         more + R"(
      heads = Unsqueeze (embedded, first)
      joined = Concat <axis = 2> (past, heads)
      present = Slice (joined, last, far, second)
      queries = Unsqueeze (own, places)
      late = LessOrEqual (keys, queries)
      back = Sub (queries, window)
      near = Greater (keys, back)
      seen = And (late, near)
      y = Attention (heads, joined, joined, seen)
      rows = Squeeze (y, first)
      logits = MatMul (rows, head)
    })";
}

/// A decoder as ONNX Runtime's builder of models writes it: heads that share keys, of which each text's number comes
/// from its mask.
inline std::string grouped_decoder(const std::string& attributes = "do_rotary = 1") {
  return R"(<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
    g (int64[batch_size, sequence_length] input_ids, int64[batch_size, total_sequence_length] attention_mask,
       float[batch_size, 2, past_sequence_length, 16] past_key_0,
       float[batch_size, 2, past_sequence_length, 16] past_value_0)
      => (float[batch_size, sequence_length, 9] logits,
          float[batch_size, 2, total_sequence_length, 16] present_key_0,
          float[batch_size, 2, total_sequence_length, 16] present_value_0) <
      float[9, 24] table, float[24, 64] wq, float[24, 32] wk, float[24, 32] wv, float[64, 9] head,
      float[32, 8] cosines, float[32, 8] sines, int64[1] one = {1}, int64 second = {1}> {
      counts = ReduceSum (attention_mask, one)
      last = Sub (counts, one)
      lengths = Cast <to = 6> (last)
      extents = Shape (attention_mask)
      all = Gather (extents, second)
      total = Cast <to = 6> (all)
      x = Gather (table, input_ids)
      q = MatMul (x, wq)
      k = MatMul (x, wk)
      v = MatMul (x, wv)
      y, present_key_0, present_value_0 = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2, )" +
         attributes + R"(> (q, k, v, past_key_0, past_value_0, lengths, total, cosines, sines)
      logits = MatMul (y, head)
    })";
}

/// A decoder with one branch for the first run, and one for those that continue a cache, as Optimum merges them.
inline std::string branched_decoder() {
  return R"(<ir_version: 10, opset_import: ["" : 24]>
    g (int64[batch, sequence] input_ids, float[batch, 1, past, 4] past_0, bool[1] use_cache_branch)
      => (float[batch, sequence, 9] logits, float[batch, 1, total, 4] present_0) <
      float[9, 4] table, float[4, 9] head, int64 zero = {0}, int64 one = {1}, int64[1] first = {1},
      int64[1] places = {-1}> {
      logits, present_0 = If (use_cache_branch) <
        then_branch = continued () => (logits_1, present_1) {
          x_1 = Gather <axis = 0> (table, input_ids)
          heads_1 = Unsqueeze (x_1, first)
          present_1 = Concat <axis = 2> (past_0, heads_1)
          whole = Shape <start = 2, end = 3> (present_1)
          before = Shape <start = 2, end = 3> (past_0)
          all = Squeeze (whole)
          held = Squeeze (before)
          keys = Range (zero, all, one)
          own = Range (held, all, one)
          queries = Unsqueeze (own, places)
          seen = LessOrEqual (keys, queries)
          y_1 = Attention (heads_1, present_1, present_1, seen)
          rows_1 = Squeeze (y_1, first)
          logits_1 = MatMul (rows_1, head)
        },
        else_branch = begun () => (logits_2, present_2) {
          x_2 = Gather <axis = 0> (table, input_ids)
          present_2 = Unsqueeze (x_2, first)
          y_2 = Attention <is_causal = 1> (present_2, present_2, present_2)
          rows_2 = Squeeze (y_2, first)
          logits_2 = MatMul (rows_2, head)
        }>
    })";
}

}  // namespace tessera::test
