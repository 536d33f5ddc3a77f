#include "tessera/data/token_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "data/user_error.h"
#include "io/temporary_folder.h"
#include "random/settings.h"

namespace tessera::data {
namespace {

using testing::ElementsAre;
using testing_data::expect_user_error;
using testing_io::put;
using testing_io::TemporaryFolder;
using Tokens = std::vector<int64_t>;

struct Filled {
  Tokens tokens, labels, positions, documents;
  int64_t counted = 0;
};

Filled sample(const TokenSamples& samples, int64_t index, size_t sequence) {
  Filled filled{Tokens(sequence), Tokens(sequence), Tokens(sequence), Tokens(sequence)};
  filled.counted = samples.fill(
      index, {filled.tokens.data(), filled.labels.data(), filled.positions.data(), filled.documents.data()});
  return filled;
}

std::string text_of(const Tokens& tokens) {
  return {tokens.begin(), tokens.end()};
}

template <typename Stored>
std::string bytes_of_tokens(const std::vector<Stored>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(Stored)};
}

class TokenSamplesTest : public testing::Test {
 protected:
  SampleOptions options(const std::string& sources, int64_t sequence) {
    SampleOptions options;
    options.sources = parse_sources(sources);
    for (SourceSpec& source : options.sources) source.path = folder_.path() / source.path;
    options.sequence = sequence;
    options.order = Order::in_order;
    return options;
  }

  TemporaryFolder folder_;
};

TEST_F(TokenSamplesTest, labels_are_the_next_tokens) {
  put(folder_ / "a.txt", "abcdefghijk");
  const TokenSamples samples(options("a.txt", 4));
  EXPECT_EQ(samples.pass(), 2);
  Filled first = sample(samples, 0, 4), second = sample(samples, 1, 4);
  EXPECT_EQ(text_of(first.tokens), "abcd");
  EXPECT_EQ(text_of(first.labels), "bcde");
  EXPECT_EQ(text_of(second.tokens), "efgh");
  EXPECT_EQ(text_of(second.labels), "fghi");
  EXPECT_EQ(first.counted, 4);
  EXPECT_THAT(second.positions, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(second.documents, ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(text_of(sample(samples, 2, 4).tokens), "abcd");  // the next epoch
}

TEST_F(TokenSamplesTest, bytes_and_wider_tokens_are_read_unsigned) {
  put(folder_ / "a.txt", "\xff\x80\x01");
  put(folder_ / "b.bin", bytes_of_tokens<uint16_t>({65535, 1, 2}));
  put(folder_ / "c.bin", bytes_of_tokens<uint32_t>({4294967295u, 1, 2}));
  EXPECT_THAT(sample(TokenSamples(options("a.txt", 2)), 0, 2).tokens, ElementsAre(255, 128));
  EXPECT_THAT(sample(TokenSamples(options("b.bin", 2)), 0, 2).tokens, ElementsAre(65535, 1));
  EXPECT_THAT(sample(TokenSamples(options("c.bin:uint32", 2)), 0, 2).tokens, ElementsAre(4294967295, 1));
}

TEST_F(TokenSamplesTest, nothing_is_predicted_across_a_document_end) {
  put(folder_ / "a.txt", "ab\n\ncd\n\n\nefg");
  SampleOptions given = options("a.txt", 6);
  given.separator = parse_separator(R"(\n\n)");
  const TokenSamples samples(given);
  const Filled first = sample(samples, 0, 6);
  EXPECT_EQ(text_of(first.tokens), "ab\n\ncd");
  EXPECT_THAT(first.labels, ElementsAre('b', '\n', '\n', kIgnored, 'd', '\n'));
  EXPECT_THAT(first.positions, ElementsAre(0, 1, 2, 3, 0, 1));
  EXPECT_THAT(first.documents, ElementsAre(0, 0, 0, 0, 1, 1));
  EXPECT_EQ(first.counted, 5);
}

TEST_F(TokenSamplesTest, a_separator_may_lie_across_two_samples) {
  put(folder_ / "a.txt", "abc\n\ndefgh");
  SampleOptions given = options("a.txt", 4);
  given.separator = parse_separator(R"(\n\n)");
  const TokenSamples samples(given);
  EXPECT_THAT(sample(samples, 0, 4).labels, ElementsAre('b', 'c', '\n', '\n'));
  const Filled second = sample(samples, 1, 4);
  EXPECT_THAT(second.labels, ElementsAre(kIgnored, 'e', 'f', 'g'));
  EXPECT_THAT(second.positions, ElementsAre(0, 0, 1, 2));
  EXPECT_THAT(second.documents, ElementsAre(0, 1, 1, 1));
}

TEST_F(TokenSamplesTest, the_held_out_part_is_the_end_of_the_file) {
  put(folder_ / "a.txt", "abcdefghijklmnopqrst");
  SampleOptions given = options("a.txt", 4);
  given.held_out = 0.25;
  const TokenSamples training(given);
  EXPECT_EQ(training.pass(), 3);  // 15 tokens
  EXPECT_EQ(text_of(sample(training, 2, 4).labels), "jklm");
  given.part = Part::held_out;
  const TokenSamples evaluation(given);
  EXPECT_EQ(evaluation.pass(), 1);  // 5 tokens
  EXPECT_EQ(text_of(sample(evaluation, 0, 4).tokens), "pqrs");
  EXPECT_EQ(text_of(sample(evaluation, 0, 4).labels), "qrst");
}

TEST_F(TokenSamplesTest, a_single_pass_takes_the_sources_in_turn) {
  put(folder_ / "a.txt", "abcde");
  put(folder_ / "b.txt", "ABCDEFG");
  SampleOptions given = options("a.txt:0.01,b.txt", 2);
  given.order = Order::once;
  const TokenSamples samples(given);
  ASSERT_EQ(samples.pass(), 5);
  std::string all;
  for (int64_t i = 0; i < samples.pass(); ++i) all += text_of(sample(samples, i, 2).tokens);
  EXPECT_EQ(all, "abcdABCDEF");
}

TEST_F(TokenSamplesTest, every_epoch_is_another_permutation_of_all_samples) {
  std::string text(1001, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i / 10);
  put(folder_ / "a.txt", text);
  SampleOptions given = options("a.txt", 10);
  given.order = Order::shuffled;
  given.seed = 3;
  const TokenSamples samples(given);
  ASSERT_EQ(samples.pass(), 100);
  std::vector<Tokens> epochs(3);
  for (int64_t i = 0; i < 300; ++i) epochs[static_cast<size_t>(i / 100)].push_back(sample(samples, i, 10).tokens[0]);
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  for (Tokens& epoch : epochs) {
    std::sort(epoch.begin(), epoch.end());
    for (size_t i = 0; i < 100; ++i) EXPECT_EQ(epoch[i], static_cast<int64_t>(i));
  }
}

TEST_F(TokenSamplesTest, sources_come_by_weight_and_each_has_its_own_epochs) {
  put(folder_ / "a.txt", "abcdefghi");  // 4 samples
  put(folder_ / "b.txt", "ABC");        // 1 sample
  SampleOptions given = options("a.txt:3,b.txt:1", 2);
  given.order = Order::shuffled;
  const TokenSamples samples(given);
  std::map<std::string, int> met;
  for (int64_t i = 0; i < 16; ++i) ++met[text_of(sample(samples, i, 2).tokens)];
  EXPECT_EQ(met, (std::map<std::string, int>{{"ab", 3}, {"cd", 3}, {"ef", 3}, {"gh", 3}, {"AB", 4}}));
}

// A reference that reads the whole file and cuts it by documents first.
TEST_F(TokenSamplesTest, documents_agree_with_a_reading_of_the_whole_file) {
  const uint64_t seed = random::number_from("TESSERA_TEST_SEED", random::kFirstSeed);
  SCOPED_TRACE(testing::Message() << "TESSERA_TEST_SEED=" << seed);
  std::mt19937_64 generator(seed);
  for (int trial = 0; trial < 200; ++trial) {
    const size_t sequence = 1 + generator() % 9;
    std::string text(sequence + 1 + generator() % 60, 'a'), separator(1 + generator() % 3, 'a');
    for (char& letter : text) letter = static_cast<char>('a' + generator() % 2);
    for (char& letter : separator) letter = static_cast<char>('a' + generator() % 2);
    SCOPED_TRACE(testing::Message() << text << ", separator " << separator << ", sequence " << sequence);
    put(folder_ / "a.txt", text);
    SampleOptions given = options("a.txt", static_cast<int64_t>(sequence));
    given.separator = parse_separator(separator);
    std::vector<int64_t> document_of(text.size());
    for (size_t t = 1; t < text.size(); ++t)
      document_of[t] = document_of[t - 1] + (std::string_view(text).substr(0, t).ends_with(separator) ? 1 : 0);
    const TokenSamples samples(given);
    for (int64_t s = 0; s < samples.pass(); ++s) {
      const Filled filled = sample(samples, s, sequence);
      const size_t begin = static_cast<size_t>(s) * sequence;
      int64_t counted = 0, position = 0;
      for (size_t i = 0; i < sequence; ++i) {
        const size_t t = begin + i;
        const bool last = document_of[t + 1] != document_of[t];
        position = i > 0 && document_of[t] == document_of[t - 1] ? position + 1 : 0;
        counted += last ? 0 : 1;
        ASSERT_EQ(filled.tokens[i], text[t]);
        ASSERT_EQ(filled.labels[i], last ? kIgnored : text[t + 1]);
        ASSERT_EQ(filled.documents[i], document_of[t] - document_of[begin]);
        ASSERT_EQ(filled.positions[i], position);
      }
      ASSERT_EQ(filled.counted, counted);
    }
  }
}

TEST_F(TokenSamplesTest, defects_are_named) {
  put(folder_ / "short.txt", "abcd");
  put(folder_ / "empty.txt", "");
  put(folder_ / "odd.bin", "abcde");
  put(folder_ / "big.bin", bytes_of_tokens<uint16_t>({1, 2, 3, 300, 5}));
  const auto open = [&](const std::string& sources, int64_t sequence, double held_out = 0) {
    return [&, sources, sequence, held_out] {
      SampleOptions given = options(sources, sequence);
      given.held_out = held_out;
      given.vocabulary = 256;
      TokenSamples samples(given);
      sample(samples, 0, static_cast<size_t>(sequence));
    };
  };
  EXPECT_NO_THROW(open("short.txt", 3)());
  expect_user_error(open("short.txt", 4), {"short.txt", "4 tokens", "sequence of 4", "longer file"});
  expect_user_error(open("short.txt", 3, 0.5), {"2 tokens of training data"});
  expect_user_error(open("short.txt", 1, 1), {"fraction 1"});
  expect_user_error(open("empty.txt", 1), {"empty.txt", "is empty"});
  expect_user_error(open("odd.bin", 1), {"odd.bin", "5 bytes", "uint16"});
  expect_user_error(open("odd.bin:uint32", 1), {"5 bytes", "uint32"});
  expect_user_error(open("missing.txt", 1), {"missing.txt", "No such file"});
  expect_user_error(open("big.bin", 4), {"big.bin", "token 300", "position 3", "256", "0 to 255"});
  expect_user_error(
      [&] {
        SampleOptions given = options("big.bin", 4);
        given.separator = parse_separator("x");
        TokenSamples samples(given);
      },
      {"big.bin", "token:ID"});
  expect_user_error(
      [&] {
        SampleOptions given = options("short.txt", 2);
        given.separator = parse_separator("token:256");
        given.vocabulary = 256;
        TokenSamples samples(given);
      },
      {"token 256", "0 to 255"});
  expect_user_error(open("short.txt", 0), {"sequence is 0"});
  expect_user_error([&] { TokenSamples samples(SampleOptions{.sequence = 1}); }, {"`data`"});
}

}  // namespace
}  // namespace tessera::data
