#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

/// Training steps in text form whose model projects to queries, keys and values of unequal widths with one weight.
namespace tessera::test {

struct Parameter {
  std::string name, dims;
};
inline const std::vector<Parameter> kParameters = {{"e", "12"}, {"w", "12, 24"}, {"b", "24"}, {"o", "12, 12"}};

/// 4 query heads and 2 key and value heads of 3, from one weight w and its bias b; e scales what it takes, o is behind
/// it. `attend` has the nodes from the heads qh [batch, sequence, 4, 3] and those of keys and values, kr and vr, to
/// ctx, and `attend_back` those from dctx to dqh, dkr and dvr, all of the same extents. `before` has what is done for
/// each parameter $ until square_$ is made, `after` what is done once `squares`, the sum of all of these, is known.
inline std::string step_text(std::string_view attend, std::string_view attend_back, std::string_view before,
                             std::string_view after, std::string_view states, std::string_view constants) {
  std::string results, declared, updates_before, updates_after;
  for (const auto& [name, dims] : kParameters) {
    const auto with_name = [&](std::string_view text) {
      std::string made(text);
      for (size_t at; (at = made.find("$D")) != std::string::npos;) made.replace(at, 2, dims);
      for (size_t at; (at = made.find('$')) != std::string::npos;) made.replace(at, 1, name);
      return made;
    };
    results += with_name(R"(, float[$D] "next.$", float[$D] "next.m$")");
    declared += with_name("float[$D] $, float[$D] m$, ") + with_name(states);
    if (states.find("v$") != std::string_view::npos) results += with_name(R"(, float[$D] "next.v$")");
    updates_before += with_name(before) + with_name("  norm_$ = ReduceSum <keepdims = 0> (square_$)\n");
    updates_after += with_name(after);
  }
  // Statistics of the activations and gradients of the residual stream, whose reductions norms have in a larger model.
  std::string watched = "  watched_0 = Identity (t)\n";
  int count = 0;
  std::vector<std::string> kinds = {"ReduceMax", "ReduceMin", "ReduceSum", "ReduceL1"};
  if (!after.empty()) kinds.insert(kinds.end(), {"ReduceL2", "ReduceSumSquare"});
  for (const std::string& reduction : kinds)
    for (std::string_view of : {"hidden", "dhidden", "hrows", "x", "xrows", "out", "d", "dd", "drows", "y"}) {
      watched += fmt::format("  part_{0} = {1} <keepdims = 0> ({2})\n  watched_{3} = Add (watched_{0}, part_{0})\n",
                             count, reduction, of, count + 1);
      ++count;
    }
  watched += fmt::format("  watched = Identity (watched_{})\n", count);
  return fmt::format(R"(
step (float[batch, sequence, 12] x, float[batch, sequence, 12] y) => (
    float loss, float squares, float watched, float "next.t"{}) <
  {} float t = {{0}}, float one = {{1}}, int64[3] sizes = {{12, 6, 6}}, int64[4] by4 = {{0, 0, 4, 3}},
  int64[5] group = {{0, 0, 2, 1, 3}}, int64[5] twice = {{1, 1, 1, 2, 1}}, int64[5] groups = {{0, 0, 2, 2, 3}},
  int64[1] three = {{3}}, int64[3] wide = {{0, 0, 12}}, int64[3] narrow = {{0, 0, 6}}, int64[2] rows = {{-1, 12}},
  int64[2] all_rows = {{-1, 24}}, int64[2] tokens = {{0, 1}}, int64[1] first = {{0}}{}> {{
  hidden = Mul (x, e)
  product = MatMul (hidden, w)
  qkv = Add (product, b)
  q, k, v = Split <axis = -1> (qkv, sizes)
  qh = Reshape (q, by4)
  kg = Reshape (k, group)
  kx = Expand (kg, twice)
  kr = Reshape (kx, by4)
  vg = Reshape (v, group)
  vx = Expand (vg, twice)
  vr = Reshape (vx, by4){}
  flat = Reshape (ctx, wide)
  out = MatMul (flat, o)
  d = Sub (out, y)
{}  loss = ReduceSum <keepdims = 0> (dd)
  drows = Reshape (d, rows)
  frows = Reshape (flat, rows)
  ft = Transpose <perm = [1, 0]> (frows)
  go = MatMul (ft, drows)
  ot = Transpose <perm = [1, 0]> (o)
  dflat = MatMul (d, ot)
  dctx = Reshape (dflat, by4){}
  dq = Reshape (dqh, wide)
  dkg = Reshape (dkr, groups)
  dks = ReduceSum <keepdims = 0> (dkg, three)
  dk = Reshape (dks, narrow)
  dvg = Reshape (dvr, groups)
  dvs = ReduceSum <keepdims = 0> (dvg, three)
  dv = Reshape (dvs, narrow)
  dqkv = Concat <axis = 2> (dq, dk, dv)
  gb = ReduceSum <keepdims = 0> (dqkv, tokens)
  all = Reshape (dqkv, all_rows)
  hrows = Reshape (hidden, rows)
  ht = Transpose <perm = [1, 0]> (hrows)
  gw = MatMul (ht, all)
  wt = Transpose <perm = [1, 0]> (w)
  dhidden = MatMul (all, wt)
  xrows = Reshape (x, rows)
  dscale = Mul (xrows, dhidden)
  ge = ReduceSum <keepdims = 0> (dscale, first)
{}  squares_we = Add (norm_w, norm_e)
  squares_web = Add (squares_we, norm_b)
  squares = Add (squares_web, norm_o)
{}{}  "next.t" = Add (t, one)
}})",
                     results, declared, constants, attend, after.empty() ? "  dd = Abs (d)\n" : "  dd = Mul (d, d)\n",
                     attend_back, updates_before, watched, updates_after);
}

/// Whole numbers in, whole numbers out: heads are added, and momentum and parameters move by signs.
inline std::string exact_step() {
  return step_text(R"(
  qk = Add (qh, kr)
  ctx = Add (qk, vr))",
                   R"(
  dqh = Identity (dctx)
  dkr = Identity (dctx)
  dvr = Identity (dctx))",
                   R"(
  sign_$ = Sign (g$)
  "next.m$" = Add (m$, sign_$)
  move_$ = Sign ("next.m$")
  "next.$" = Sub ($, move_$)
  square_$ = Mul ("next.m$", "next.m$")
)",
                   "", "", "");
}

/// Attention, AdamW, and gradients that their norm over all parameters scales.
inline std::string attention_step() {
  return step_text(R"(
  qt = Transpose <perm = [0, 2, 1, 3]> (qh)
  ktt = Transpose <perm = [0, 2, 3, 1]> (kr)
  vt = Transpose <perm = [0, 2, 1, 3]> (vr)
  scores = MatMul (qt, ktt)
  scaled = Mul (scores, factor)
  p = Softmax <axis = -1> (scaled)
  heads = MatMul (p, vt)
  ctx = Transpose <perm = [0, 2, 1, 3]> (heads))",
                   R"(
  dheads = Transpose <perm = [0, 2, 1, 3]> (dctx)
  vtt = Transpose <perm = [0, 1, 3, 2]> (vt)
  dp = MatMul (dheads, vtt)
  pt = Transpose <perm = [0, 1, 3, 2]> (p)
  dvt = MatMul (pt, dheads)
  dvr = Transpose <perm = [0, 2, 1, 3]> (dvt)
  dpp = Mul (dp, p)
  mean = ReduceSum <keepdims = 1> (dpp, three)
  centred = Sub (dp, mean)
  dscaled = Mul (centred, p)
  ds = Mul (dscaled, factor)
  kt = Transpose <perm = [0, 2, 1, 3]> (kr)
  dqt = MatMul (ds, kt)
  dqh = Transpose <perm = [0, 2, 1, 3]> (dqt)
  dst = Transpose <perm = [0, 1, 3, 2]> (ds)
  dkt = MatMul (dst, qt)
  dkr = Transpose <perm = [0, 2, 1, 3]> (dkt))",
                   R"(
  square_$ = Mul (g$, g$)
)",
                   R"(
  root_of_squares_$ = Sqrt (squares)
  scale_$ = Max (root_of_squares_$, one)
  scaled_$ = Div (g$, scale_$)
  old_m_$ = Mul (m$, beta1)
  new_m_$ = Mul (scaled_$, rest1)
  "next.m$" = Add (old_m_$, new_m_$)
  old_v_$ = Mul (v$, beta2)
  scaled_square_$ = Mul (scaled_$, scaled_$)
  new_v_$ = Mul (scaled_square_$, rest2)
  "next.v$" = Add (old_v_$, new_v_$)
  root_$ = Sqrt ("next.v$")
  below_$ = Add (root_$, epsilon)
  change_$ = Div ("next.m$", below_$)
  change_all_$ = Mul (change_$, rate)
  kept_$ = Mul ($, decay)
  "next.$" = Sub (kept_$, change_all_$)
)",
                   "float[$D] v$, ",
                   R"(, float beta1 = {0.9}, float rest1 = {0.1}, float beta2 = {0.99}, float rest2 = {0.01},
  float epsilon = {0.001}, float rate = {0.01}, float decay = {0.999}, float factor = {0.5})");
}

}  // namespace tessera::test
