#include "tessera/checkpoint/checkpoint.h"

#include <thread>

#include "checkpoint/fixture.h"
#include "tessera/io/crc32.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_io::contents;
using testing_io::put;
using testing_io::TemporaryFolder;

TEST(checkpoint, is_read_as_it_was_saved) {
  TemporaryFolder folder;
  const Outcome outcome = save_step(folder.path(), 120);
  EXPECT_TRUE(outcome.saved);
  EXPECT_EQ(outcome.problem, "");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-000120"));
  EXPECT_THAT(names_in(folder / "step-000120"), ElementsAre("checkpoint.json", "rank-0.bin", "rank-1.bin"));
  const Checkpoint checkpoint = Checkpoint::open(folder / "step-000120");
  expect_step(checkpoint, 120);
  EXPECT_THAT(checkpoint.tensors(), ElementsAre(kT, kW));
  EXPECT_THAT(checkpoint.read("w", {{1, 1}, {2, 2}}).as<float>(),
              ElementsAre(w_of(120)[4], w_of(120)[5], w_of(120)[7], w_of(120)[8]));
  EXPECT_EQ(checkpoint.read("w", {{1, 1}, {0, 2}}).bytes, 0u);
}

TEST(checkpoint, pieces_are_aligned) {
  TemporaryFolder folder;
  save_step(folder.path(), 1);
  EXPECT_EQ(contents(folder / "step-000001" / "rank-0.bin").size(), 64u + 64 + 8);  // the run, 24 bytes of w, then t
}

TEST(checkpoint, older_ones_whose_runs_have_no_identity_are_read) {
  TemporaryFolder folder;
  save_step(folder.path(), 1, 0, "");
  EXPECT_EQ(contents(folder / "step-000001" / "rank-0.bin").size(), 64u + 8);
  const Checkpoint checkpoint = Checkpoint::open(folder / "step-000001");
  expect_step(checkpoint, 1);
  EXPECT_EQ(checkpoint.facts().run, "");
  save_step(folder.path(), 2);
  EXPECT_EQ(Checkpoint::open(folder / "step-000002").facts().run, kRun);
}

TEST(checkpoint, a_folder_without_checkpoints_has_no_latest) {
  TemporaryFolder folder;
  std::vector<std::string> passed_over;
  EXPECT_FALSE(Checkpoint::latest(folder.path(), passed_over));
  EXPECT_FALSE(Checkpoint::latest(folder / "missing", passed_over));
  put(folder / "step-000001", "a file");
  fs::create_directory(folder / "step-1");
  EXPECT_FALSE(Checkpoint::latest(folder.path(), passed_over));
  EXPECT_THAT(passed_over, IsEmpty());
}

TEST(checkpoint, the_latest_good_one_is_found) {
  TemporaryFolder folder;
  for (int64_t step : {999'999, 1'000'000, 20}) save_step(folder.path(), step);
  std::vector<std::string> passed_over;
  expect_step(*Checkpoint::latest(folder.path(), passed_over), 1'000'000);
  EXPECT_THAT(passed_over, IsEmpty());
  fs::resize_file(folder / "step-1000000" / "rank-1.bin", 23);
  expect_step(*Checkpoint::latest(folder.path(), passed_over), 999'999);
  EXPECT_THAT(passed_over, ElementsAre(HasSubstr("rank-1.bin")));
}

TEST(checkpoint, what_is_cut_or_damaged_is_told_with_the_one_to_take) {
  TemporaryFolder folder;
  save_step(folder.path(), 1);
  save_step(folder.path(), 2);
  const fs::path bad = folder / "step-000002";
  const auto refuse = [&](std::initializer_list<std::string> parts) {
    expect_user_error([&] { Checkpoint::open(bad); }, parts);
    expect_user_error([&] { Checkpoint::open(bad.string() + "/"); }, {"step-000001' is good"});
    std::vector<std::string> passed_over;
    expect_step(*Checkpoint::latest(folder.path(), passed_over), 1);
    EXPECT_EQ(passed_over.size(), 1u);
  };
  for (const char* file : {"rank-0.bin", "rank-1.bin", "checkpoint.json"}) {
    SCOPED_TRACE(file);
    const std::string good = contents(bad / file);
    for (size_t bytes = 0; bytes < good.size(); ++bytes) {
      if (good.size() > 100 && bytes % 7 != 0 && bytes < good.size() - 3) continue;  // the JSON, sparsely
      put(bad / file, good.substr(0, bytes));
      refuse({file, "step-000001' is good"});
    }
    fs::remove(bad / file);
    refuse({file, "No such file"});
    put(bad / file, good);
  }
  const std::string w = contents(bad / "rank-1.bin"), both = contents(bad / "rank-0.bin");
  for (size_t bit = 0; bit < 8 * w.size(); ++bit) {
    std::string flipped = w;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    put(bad / "rank-1.bin", flipped);
    const bool in_header = bit < 8 * rank_header(kRun).size();
    refuse({"rank-1.bin", in_header ? "another run" : "'w'", "damaged", "step-000001' is good"});
  }
  put(bad / "rank-1.bin", w);
  std::string flipped = both;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  put(bad / "rank-0.bin", flipped);
  refuse({"rank-0.bin", "'t'", "bytes 128 to 136"});
  put(bad / "rank-0.bin", both);
  expect_step(Checkpoint::open(bad), 2);
}

TEST(checkpoint, lazily_only_what_is_read_is_compared) {
  TemporaryFolder folder;
  save_step(folder.path(), 1);
  const fs::path file = folder / "step-000001" / "rank-1.bin";
  std::string bytes = contents(file);
  bytes[64 + 5] = static_cast<char>(bytes[64 + 5] ^ 4);
  put(file, bytes);
  const Checkpoint checkpoint = Checkpoint::open(folder / "step-000001", Verify::lazily);
  EXPECT_THAT(checkpoint.read("w", {{0, 0}, {2, 3}}).as<float>()[5], w_of(1)[5]);
  for (int again = 0; again < 2; ++again)
    expect_user_error([&] { checkpoint.read("w", {{1, 0}, {2, 3}}); }, {"rank-1.bin", "'w'", "damaged"});
  expect_user_error([&] { Checkpoint::open(folder / "step-000001"); }, {"no other checkpoint"});
  std::vector<std::string> passed_over;
  expect_user_error([&] { Checkpoint::latest(folder.path(), passed_over); }, {"none of its 1", "rank-1.bin"});
}

TEST(checkpoint, several_threads_may_read) {
  TemporaryFolder folder;
  save_step(folder.path(), 1);
  const Checkpoint checkpoint = Checkpoint::open(folder / "step-000001", Verify::lazily);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) threads.emplace_back([&] { expect_step(checkpoint, 1); });
  for (std::thread& thread : threads) thread.join();
}

TEST(checkpoint, a_later_version_is_not_passed_over) {
  TemporaryFolder folder;
  save_step(folder.path(), 1);
  save_step(folder.path(), 2);
  const fs::path table = folder / "step-000002" / "checkpoint.json";
  std::string text = contents(table);
  const std::string version = "\"version\":1";
  text.replace(text.find(version), version.size(), "\"version\":9");
  const size_t rest = text.find('\n') + 1;
  put(table, fmt::format("{{\"crc32\":\"{:08x}\",\n{}", update_crc32(0, text.data() + rest, text.size() - rest),
                         text.substr(rest)));
  std::vector<std::string> passed_over;
  expect_user_error([&] { Checkpoint::latest(folder.path(), passed_over); }, {"version 9", "reads version 1"});
}

TEST(checkpoint, another_model_is_told_by_its_first_tensor) {
  TemporaryFolder folder;
  save_step(folder.path(), 1);
  const Checkpoint checkpoint = Checkpoint::open(folder / "step-000001");
  const auto require = [&](std::vector<TensorType> tensors, const std::string& model = "model") {
    return [&checkpoint, tensors, model] { checkpoint.require_model(model, tensors); };
  };
  EXPECT_NO_THROW(require({kW, kT})());
  const TensorType wider{"w", DType::float32, {4, 5}}, half{"w", DType::float16, {4, 3}}, more{"v", DType::int8, {2}};
  expect_user_error(require({kT, wider}), {"'w' is float32 [4, 3] there, but float32 [4, 5]"});
  expect_user_error(require({kT, half}), {"'w' is float32 [4, 3] there, but float16 [4, 3]"});
  expect_user_error(require({kT, more, wider}), {"it has no 'v', int8 [2] in this one"});
  expect_user_error(require({kW}), {"it has 't', which this one lacks"});
  expect_user_error(require({kW, kT}, "other"), {"fingerprint model, this one's is other"});
}

TEST(checkpoint, fingerprints_tell_models_apart) {
  const std::vector<TensorType> one = {kW, kT}, order = {kT, kW};
  EXPECT_EQ(fingerprint_of(one), fingerprint_of(order));
  EXPECT_EQ(fingerprint_of(one).size(), 16u);
  for (const TensorType& other : {TensorType{"w", DType::float32, {3, 4}}, TensorType{"w", DType::float16, {4, 3}},
                                  TensorType{"w", DType::float32, {4, 3, 1}}, TensorType{"x", DType::float32, {4, 3}}})
    EXPECT_NE(fingerprint_of(std::vector{other, kT}), fingerprint_of(one));
}

}  // namespace
}  // namespace tessera::checkpoint
