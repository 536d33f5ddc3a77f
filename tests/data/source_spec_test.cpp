#include "tessera/data/source_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/user_error.h"

namespace tessera::data {
namespace {

using testing::ElementsAre;
using testing_data::expect_user_error;

TEST(source_spec, the_ending_says_the_type) {
  EXPECT_THAT(parse_sources("a.txt"), ElementsAre(SourceSpec{"a.txt", Storage::uint8, 1}));
  EXPECT_THAT(parse_sources("b/c.bin"), ElementsAre(SourceSpec{"b/c.bin", Storage::uint16, 1}));
  EXPECT_THAT(parse_sources("d.npz"), ElementsAre(SourceSpec{"d.npz", Storage::npz, 1}));
  EXPECT_THAT(parse_sources("README"), ElementsAre(SourceSpec{"README", Storage::uint8, 1}));
}

TEST(source_spec, types_and_weights_follow_the_path) {
  EXPECT_THAT(parse_sources("a.txt:0.7,b.bin:uint32:0.3, c.txt:uint16"),
              ElementsAre(SourceSpec{"a.txt", Storage::uint8, 0.7}, SourceSpec{"b.bin", Storage::uint32, 0.3},
                          SourceSpec{"c.txt", Storage::uint16, 1}));
}

TEST(source_spec, a_path_may_hold_any_letter) {
  EXPECT_THAT(parse_sources(R"(a\:0.5\,b\\c.bin:2)"), ElementsAre(SourceSpec{R"(a:0.5,b\c.bin)", Storage::uint16, 2}));
}

TEST(source_spec, defects_are_named) {
  expect_user_error([] { parse_sources(""); }, {"[data]", "without a path"});
  expect_user_error([] { parse_sources("a.txt,,b.txt"); }, {"without a path"});
  expect_user_error([] { parse_sources("a.bin:uint64"); }, {"'uint64'", "uint8, uint16, uint32"});
  expect_user_error([] { parse_sources("a.txt:0"); }, {"weight 0", "not positive"});
  expect_user_error([] { parse_sources("a.txt:-1"); }, {"weight -1", "not positive"});
  expect_user_error([] { parse_sources("a.txt:inf"); }, {"not positive"});
  expect_user_error([] { parse_sources("a.txt:nan"); }, {"not positive"});
  expect_user_error([] { parse_sources("a.txt:0.5:0.5"); }, {"'0.5'"});
  expect_user_error([] { parse_sources("a.bin:0.5:uint32"); }, {"'uint32'"});
  expect_user_error([] { parse_sources("a:b.txt"); }, {"'b.txt'", R"('\:')"});
}

TEST(separator, is_text_or_tokens) {
  EXPECT_EQ(parse_separator(R"(\n\n)"), (Separator{{10, 10}, true}));
  EXPECT_EQ(parse_separator(R"(a\\\t\x7fÿ\0)"), (Separator{{'a', '\\', 9, 127, 0xc3, 0xbf, 0}, true}));
  EXPECT_EQ(parse_separator("token:50256"), (Separator{{50256}, false}));
  EXPECT_EQ(parse_separator("token:1, 2"), (Separator{{1, 2}, false}));
}

TEST(separator, defects_are_named) {
  expect_user_error([] { parse_separator(""); }, {"empty"});
  expect_user_error([] { parse_separator("token:"); }, {"not a token"});
  expect_user_error([] { parse_separator("token:-1"); }, {"not a token"});
  expect_user_error([] { parse_separator("token:1,x"); }, {"'x'"});
  expect_user_error([] { parse_separator(R"(\q)"); }, {R"('\q')"});
  expect_user_error([] { parse_separator("\\"); }, {"needs"});
  expect_user_error([] { parse_separator(R"(\x1)"); }, {"two hexadecimal digits"});
  expect_user_error([] { parse_separator(R"(\xzz)"); }, {"two hexadecimal digits"});
  expect_user_error([] { parse_separator(R"(\x-1)"); }, {"two hexadecimal digits"});
}

}  // namespace
}  // namespace tessera::data
