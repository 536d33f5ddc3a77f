#include "tessera/ir/glob.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

const std::vector<std::string_view> kNames = {"m.transformer.h.0.attn.c_attn.weight",
                                              "m.transformer.h.0.mlp.c_fc.weight",
                                              "m.transformer.h.1.attn.c_attn.weight",
                                              "m.lm_head.weight",
                                              "up",
                                              "down",
                                              "onnx::MatMul_713"};

std::string nearest(std::string_view wanted) {
  return nearest_names(kNames, wanted);
}

TEST(NearestNames, are_found_by_edits) {
  EXPECT_EQ(nearest("upp"), "; did you mean 'up'?");
  EXPECT_EQ(nearest("m.lm_head.wieght"), "; did you mean 'm.lm_head.weight'?");
  EXPECT_EQ(nearest("M.LM_HEAD.WEIGHT"), "; did you mean 'm.lm_head.weight'?") << "case is a slip of the pen";
}

TEST(NearestNames, are_found_by_a_part) {
  EXPECT_EQ(nearest("lm_head"), "; did you mean 'm.lm_head.weight'?");
  EXPECT_EQ(nearest("MatMul_713"), "; did you mean 'onnx::MatMul_713'?");
  EXPECT_EQ(nearest("c_atn.weight"),
            "; did you mean 'm.transformer.h.0.attn.c_attn.weight' or 'm.transformer.h.1.attn.c_attn.weight'?");
}

TEST(NearestNames, are_found_for_wildcards) {
  EXPECT_EQ(nearest("h.*.attn.c_attn.weight"),
            "; did you mean 'm.transformer.h.0.attn.c_attn.weight' or 'm.transformer.h.1.attn.c_attn.weight'?");
  EXPECT_EQ(nearest("*.mlp.cfc.weight"), "; did you mean 'm.transformer.h.0.mlp.c_fc.weight'?");
}

TEST(NearestNames, are_none_where_nothing_is_near) {
  EXPECT_EQ(nearest("encoder.position_bias"), "");
  EXPECT_EQ(nearest(std::string(100000, 'x')), "");
  EXPECT_EQ(nearest_names({}, "x"), "");
}

}  // namespace
}  // namespace tessera
