#include "tessera/data/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "data/user_error.h"
#include "io/temporary_folder.h"
#include "tessera/io/npz.h"

namespace tessera::data {
namespace {

using testing::ElementsAre;
using testing_data::expect_user_error;
using testing_io::put;
using testing_io::TemporaryFolder;

class BatchesTest : public testing::Test {
 protected:
  BatchesTest() {
    for (int i = 0; i < 500; ++i) text_ += static_cast<char>(i % 251);
    put(folder_ / "a.txt", text_);
  }
  BatchOptions options(const std::string& sources, int64_t batch) {
    BatchOptions options;
    options.samples.sources = parse_sources(sources);
    for (SourceSpec& source : options.samples.sources) source.path = folder_.path() / source.path;
    options.samples.sequence = 8;
    options.samples.seed = 11;
    options.batch = batch;
    return options;
  }

  TemporaryFolder folder_;
  std::string text_;
};

// The tokens of `samples` samples from a cursor on, taken in batches of `batch`.
std::vector<int64_t> tokens_from(Batches& batches, int64_t samples) {
  std::vector<int64_t> all;
  while (static_cast<int64_t>(all.size()) < samples * 8) {
    const Batch batch = batches.next();
    const auto tokens = batch.tensors.at("tokens").as<int64_t>();
    all.insert(all.end(), tokens.begin(), tokens.end());
  }
  return all;
}

TEST_F(BatchesTest, say_their_extents_before_they_are_made) {
  BatchOptions given = options("a.txt", 3);
  given.positions = "position_ids";
  const Batches batches(given);
  const Batch batch = batches.at(0);
  ASSERT_EQ(batches.dims().size(), batch.tensors.size());
  for (const auto& [name, dims] : batches.dims()) EXPECT_EQ(batch.tensors.at(name).dims, dims) << name;
  write_npz(folder_ / "b.npz",
            {{"x", Tensor::zeros(DType::float32, {5, 2, 3})}, {"y", Tensor::zeros(DType::int8, {5})}});
  const Batches arrays(options("b.npz", 1));
  EXPECT_THAT(arrays.dims().at("x"), ElementsAre(2, 3));
  EXPECT_THAT(arrays.dims().at("y"), ElementsAre());
}

TEST_F(BatchesTest, that_memory_does_not_hold_are_refused) {
  BatchOptions given = options("a.txt", 3);
  given.memory_limit = 2 * 2 * 3 * 8 * 8;  // tokens and labels, of two batches
  EXPECT_EQ(Batches(given).next().tensors.size(), 2u);
  --given.memory_limit;
  expect_user_error([&] { Batches batches(given); },
                    {"a batch of 3 samples of 8 tokens needs 768 B, but only 767 B are available"});
  for (const int64_t batch : {int64_t{1} << 40, int64_t{1} << 62}) {
    given = options("a.txt", batch);
    const std::string why = batch < int64_t{1} << 50 ? "are available" : "is larger than any memory";
    expect_user_error([&] { Batches batches(given); }, {std::to_string(batch), why, "give a smaller batch"});
  }
}

TEST_F(BatchesTest, tensors_have_the_names_and_shapes_that_are_asked_for) {
  BatchOptions given = options("a.txt", 3);
  Batch plain = Batches(given).next();
  ASSERT_EQ(plain.tensors.size(), 2u);
  EXPECT_THAT(plain.tensors.at("tokens").dims, ElementsAre(3, 8));
  EXPECT_EQ(plain.tensors.at("labels").dtype, DType::int64);
  EXPECT_EQ(plain.labels, 24);
  given.tokens = "input_ids";
  given.positions = "position_ids";
  given.documents = "segments";
  Batch named = Batches(given).next();
  EXPECT_EQ(named.tensors.size(), 4u);
  EXPECT_TRUE(named.tensors.contains("input_ids") && named.tensors.contains("segments"));
  EXPECT_EQ(named.tensors.at("position_ids").as<int64_t>()[15], 7);
  expect_user_error([&] { Batches(options("a.txt", 0)).next(); }, {"batch is 0"});
  given.documents = "labels";
  expect_user_error([&] { Batches(given).next(); }, {"'labels'"});
}

TEST_F(BatchesTest, samples_do_not_depend_on_batch_restart_or_prefetch) {
  BatchOptions given = options("a.txt", 1);
  Batches one(given);
  const std::vector<int64_t> expected = tokens_from(one, 120);  // two epochs of 62, almost
  for (int64_t batch : {2, 3, 8, 60}) {
    for (bool prefetch : {false, true}) {
      given.batch = batch;
      given.prefetch = prefetch;
      Batches first(given);
      std::vector<int64_t> got = tokens_from(first, 60);
      given.batch = 5;
      Batches rest(given, first.cursor());
      const std::vector<int64_t> more = tokens_from(rest, 60);
      got.insert(got.end(), more.begin(), more.end());
      got.resize(expected.size());
      EXPECT_EQ(got, expected) << "batch " << batch;
    }
  }
}

TEST_F(BatchesTest, any_batch_can_be_had_at_any_time) {
  Batches batches(options("a.txt", 4));
  std::vector<Batch> all;
  for (int i = 0; i < 5; ++i) all.push_back(batches.next());
  EXPECT_EQ(batches.cursor(), 20);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const Batch again = batches.at(4 * t);
      EXPECT_EQ(again.tensors.at("labels").to_int64(), all[static_cast<size_t>(t)].tensors.at("labels").to_int64());
    });
  for (std::thread& thread : threads) thread.join();
  batches.seek(8);
  EXPECT_EQ(batches.next().tensors.at("tokens").to_int64(), all[2].tensors.at("tokens").to_int64());
}

TEST_F(BatchesTest, a_single_pass_counts_every_label_once) {
  BatchOptions given = options("a.txt", 8);
  given.samples.order = Order::once;
  Batches batches(given);
  ASSERT_EQ(batches.count(), 8);  // 62 samples
  int64_t labels = 0;
  std::string seen;
  Batch last;
  for (int i = 0; i < 8; ++i) {
    last = batches.next();
    labels += last.labels;
    for (int64_t token : last.tensors.at("tokens").as<int64_t>()) seen += static_cast<char>(token);
  }
  EXPECT_EQ(labels, 62 * 8);
  EXPECT_EQ(seen.substr(0, 62 * 8), text_.substr(0, 62 * 8));
  EXPECT_EQ(last.next, 62);
  const std::vector<int64_t> padded = last.tensors.at("labels").to_int64();
  for (size_t i = 6 * 8; i < padded.size(); ++i) EXPECT_EQ(padded[i], kIgnored);
  expect_user_error([&] { batches.next(); }, {"past the end", "62 samples"});
}

TEST_F(BatchesTest, an_error_of_the_thread_is_thrown_where_its_batch_is_due) {
  put(folder_ / "b.txt", std::string(16, 'a') + "z" + std::string(16, 'a'));
  BatchOptions given = options("b.txt", 1);
  given.samples.order = Order::in_order;
  given.samples.vocabulary = 'b';
  Batches batches(given);
  batches.next();
  for (int again = 0; again < 2; ++again) {
    expect_user_error([&] { batches.next(); }, {"b.txt", "token 122", "position 16", "98"});
    EXPECT_EQ(batches.cursor(), 1);
  }
}

TEST_F(BatchesTest, steps_of_an_npz_file_come_in_order) {
  write_npz(folder_ / "s.npz", {{"x", Tensor::of<float>(DType::float32, {3, 2}, {0, 1, 2, 3, 4, 5})},
                                {"rate", Tensor::of<float>(DType::float32, {3}, {.1f, .2f, .3f})}});
  Batches batches(options("s.npz", 7), 1);
  EXPECT_EQ(batches.count(), 3);
  const Batch batch = batches.next();
  EXPECT_THAT(batch.tensors.at("x").dims, ElementsAre(2));
  EXPECT_THAT(batch.tensors.at("x").as<float>(), ElementsAre(2, 3));
  EXPECT_THAT(batch.tensors.at("rate").dims, ElementsAre());
  EXPECT_THAT(batch.tensors.at("rate").as<float>(), ElementsAre(.2f));
  EXPECT_EQ(batches.cursor(), 2);
  EXPECT_THAT(batches.next().tensors.at("x").as<float>(), ElementsAre(4, 5));
  expect_user_error([&] { batches.next(); }, {"s.npz", "3 steps", "step 3"});
}

TEST_F(BatchesTest, defects_of_npz_files_are_named) {
  const Tensor two = Tensor::zeros(DType::float32, {2, 3}), three = Tensor::zeros(DType::float32, {3});
  write_npz(folder_ / "uneven.npz", {{"x", two}, {"y", three}});
  write_npz(folder_ / "scalar.npz", {{"x", two}, {"y", Tensor::zeros(DType::float32, {})}});
  write_npz(folder_ / "none.npz", {{"x", Tensor::zeros(DType::float32, {0, 3})}});
  write_npz(folder_ / "good.npz", {{"x", two}});
  put(folder_ / "cut.npz", "PK");
  const auto open = [&](const std::string& sources) { return [&, sources] { Batches batches(options(sources, 1)); }; };
  expect_user_error(open("uneven.npz"), {"'x' has 2 steps", "'y' has 3"});
  expect_user_error(open("scalar.npz"), {"'y' is a scalar"});
  expect_user_error(open("none.npz"), {"no steps"});
  expect_user_error(open("cut.npz"), {"cut.npz"});
  expect_user_error(open("missing.npz"), {"missing.npz"});
  expect_user_error(open("good.npz,a.txt"), {"good.npz", "alone"});
  BatchOptions separated = options("good.npz", 1);
  separated.samples.separator = parse_separator("x");
  expect_user_error([&] { Batches batches(separated); }, {"good.npz", "separator"});
}

}  // namespace
}  // namespace tessera::data
