#include "tessera/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/io/crc32.h"

namespace tessera::checkpoint {
namespace {

using testing::HasSubstr;

Manifest example() {
  Manifest manifest;
  manifest.facts = {
      120, "abc", {{"cursor", int64_t{3840}}, {"loss", 0.1}, {"note", std::string("ü\n")}}, "0123456789abcdef"};
  StoredTensor w{DType::float32, {4, 3}, {}};
  w.pieces = {{"rank-0.bin", 0, 24, 0x89abcdef, {{0, 0}, {2, 3}}}, {"rank-1.bin", 64, 24, 1, {{2, 0}, {2, 3}}}};
  manifest.tensors = {{"w", w}, {"t", {DType::int64, {}, {{"rank-0.bin", 64, 8, 7, {{}, {}}}}}}};
  return manifest;
}

// The text with another checksum line, that of its content.
std::string with_checksum(const std::string& text) {
  const size_t rest = text.find('\n') + 1;
  return fmt::format("{{\"crc32\":\"{:08x}\",\n{}", update_crc32(0, text.data() + rest, text.size() - rest),
                     text.substr(rest));
}

std::string defect_of(const std::string& text) {
  try {
    parse_manifest(text, "FILE");
  } catch (const Defect& defect) {
    EXPECT_THAT(defect.what(), HasSubstr("FILE"));
    return defect.what();
  }
  ADD_FAILURE() << "nothing was thrown for " << text;
  return "";
}

TEST(manifest, is_read_as_it_was_written) {
  const std::string text = print_manifest(example());
  const Manifest read = parse_manifest(text, "FILE");
  EXPECT_EQ(read.facts.step, 120);
  EXPECT_EQ(read.facts.model, "abc");
  EXPECT_EQ(read.facts.run, "0123456789abcdef");
  EXPECT_EQ(read.facts.scalars, example().facts.scalars);
  ASSERT_EQ(read.tensors.size(), 2u);
  const StoredTensor& w = read.tensors.at("w");
  EXPECT_EQ(w.dtype, DType::float32);
  EXPECT_EQ(w.dims, (Dims{4, 3}));
  EXPECT_EQ(w.pieces[1].region, (Region{{2, 0}, {2, 3}}));
  EXPECT_EQ(w.pieces[0].crc32, 0x89abcdefu);
  EXPECT_EQ(print_manifest(read), text);
  EXPECT_EQ(with_checksum(text), text);
}

TEST(manifest, any_cut_and_any_flipped_bit_is_seen) {
  const std::string text = print_manifest(example());
  for (size_t bytes = 0; bytes < text.size(); ++bytes) defect_of(text.substr(0, bytes));
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    EXPECT_NE(defect_of(flipped), "") << "bit " << bit;
  }
}

TEST(manifest, content_that_is_wrong_is_refused_whoever_wrote_it) {
  const std::string text = print_manifest(example());
  const auto changed = [&](const std::string& from, const std::string& to) {
    EXPECT_THAT(text, HasSubstr(from));
    std::string other = text;
    return with_checksum(other.replace(other.find(from), from.size(), to));
  };
  EXPECT_THAT(defect_of(changed("\"version\":1", "\"version\":2")), HasSubstr("version 2"));
  EXPECT_THROW(parse_manifest(changed("\"version\":1", "\"version\":2"), "FILE"), UnknownVersion);
  EXPECT_THAT(defect_of(changed("tessera checkpoint", "other")), HasSubstr("not a table"));
  EXPECT_THAT(defect_of(changed("rank-1.bin", "../../etc/passwd")), HasSubstr("tensor 'w'"));
  EXPECT_THAT(defect_of(changed("float32", "floatier")), HasSubstr("tensor 'w': its type"));
  EXPECT_THAT(defect_of(changed("float32", "int4")), HasSubstr("tensor 'w': its type"));
  EXPECT_THAT(defect_of(changed("\"bytes\":24", "\"bytes\":25")), HasSubstr("tensor 'w'"));
  EXPECT_THAT(defect_of(changed("\"offset\":64,\"bytes\":24", "\"offset\":-64,\"bytes\":24")), HasSubstr("tensor 'w'"));
  EXPECT_THAT(defect_of(changed("\"begin\":[2,0]", "\"begin\":[3,0]")), HasSubstr("reaches past"));
  EXPECT_THAT(defect_of(changed("\"begin\":[2,0]", "\"begin\":[-1,0]")), HasSubstr("reaches past"));
  EXPECT_THAT(defect_of(changed("\"begin\":[2,0]", "\"begin\":[2]")), HasSubstr("another rank"));
  EXPECT_THAT(defect_of(changed("\"shape\":[4,3]", "\"shape\":[4294967296,4294967296]")), HasSubstr("its shape"));
  EXPECT_THAT(defect_of(changed("\"shape\":[4,3]", "\"shape\":[-4,-3]")), HasSubstr("its shape"));
  EXPECT_THAT(defect_of(changed("\"shape\":[4,3]", "\"shape\":[4.0,3]")), HasSubstr("tensor 'w': a number"));
  EXPECT_THAT(defect_of(changed("\"step\":120", "\"step\":\"x\"")), HasSubstr("FILE"));
  EXPECT_THAT(defect_of(changed("\"run\":\"0", "\"run\":\"" + std::string(100, '0'))), HasSubstr("too long"));
  const std::string scalars = R"({"cursor":3840,"loss":0.1,"note":"ü\n"})";
  EXPECT_THAT(defect_of(changed(scalars, "[]")), HasSubstr("not objects"));
  EXPECT_THAT(defect_of(changed("\"cursor\":3840", "\"cursor\":[]")), HasSubstr("FILE"));
}

StoredTensor of_regions(Dims dims, const std::vector<Region>& regions) {
  StoredTensor tensor{DType::uint8, std::move(dims), {}};
  for (const Region& region : regions) tensor.pieces.push_back({"f", 0, 0, 0, region});
  return tensor;
}

TEST(manifest, pieces_hold_each_element_once) {
  EXPECT_FALSE(wrong_cover(of_regions({}, {{{}, {}}})));
  EXPECT_FALSE(wrong_cover(of_regions({0, 3}, {})));
  EXPECT_FALSE(wrong_cover(of_regions({4, 4}, {{{0, 0}, {4, 1}}, {{0, 1}, {2, 3}}, {{2, 1}, {2, 3}}})));
  EXPECT_THAT(wrong_cover(of_regions({}, {})).value(), HasSubstr("0 of its 1"));
  EXPECT_THAT(wrong_cover(of_regions({4}, {{{0}, {3}}})).value(), HasSubstr("3 of its 4"));
  EXPECT_THAT(wrong_cover(of_regions({4}, {{{0}, {3}}, {{2}, {2}}})).value(), HasSubstr("twice"));
  // As many elements as the tensor has, but two overlap and two are missing.
  EXPECT_THAT(wrong_cover(of_regions({4, 2}, {{{0, 0}, {2, 2}}, {{1, 0}, {2, 2}}})).value(), HasSubstr("twice"));
}

TEST(manifest, folders_are_named_by_their_steps) {
  EXPECT_EQ(folder_name(120), "step-000120");
  EXPECT_EQ(folder_name(12'345'678), "step-12345678");
  EXPECT_EQ(step_of("step-000120"), 120);
  EXPECT_EQ(step_of("step-12345678"), 12'345'678);
  for (const char* other : {"step-120", "step-", "step-00012x", "xstep-000120", ".step-000120.partial", "step--00001"})
    EXPECT_EQ(step_of(other), std::nullopt) << other;
}

}  // namespace
}  // namespace tessera::checkpoint
