#include "tessera/launch/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "api/small_model.h"
#include "tessera/api/impl.h"

namespace tessera::launch {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

struct Rank {
  Program program;
  std::string version = "1";
};

/// The errors of each rank when they compare.
std::vector<std::string> compare(const std::vector<Rank>& ranks) {
  const auto world = comm::make_local_world(static_cast<int>(ranks.size()));
  const std::vector<int> all = world->local_ranks();
  std::vector<std::string> errors(ranks.size());
  std::vector<std::thread> threads;
  for (int rank : all)
    threads.emplace_back([&, rank] {
      try {
        shake_hands(*world->join(rank, all), *ranks[rank].program.impl().programs, ranks[rank].version);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::user);
        errors[rank] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

Program pair_on(const char* mesh, const char* preset = "megatron") {
  test::TemporaryFolder folder;
  OnnxModel model = parse_text(test::kPair);
  for (Value* state : model.graph->values_of(ValueKind::state)) state->data = test::ramp(state->data.dims);
  const std::filesystem::path path = folder / "model.onnx";
  export_model(model, path);
  Plan plan;
  plan.presets = preset;
  return compile(Model::load(path), Mesh::parse(mesh), plan);
}

TEST(Handshake, finds_likes_alike) {
  EXPECT_THAT(compare({{pair_on("tp=2")}, {pair_on("tp=2")}}), Each(""));
}

TEST(Handshake, names_the_ranks_and_what_differs) {
  const Program usual = pair_on("tp=4");
  EXPECT_THAT(compare({{usual}, {usual}, {usual, "2"}, {usual, "3"}}),
              Each(AllOf(HasSubstr("the version of tessera of ranks 2,3 is not that of rank 0"),
                         HasSubstr("install one version"))));
  EXPECT_THAT(compare({{usual}, {pair_on("dp=2,tp=2", "megatron:tp")}}),
              Each(HasSubstr("the mesh of rank 1 is not that of rank 0; give all ranks the same `mesh`")));
  EXPECT_THAT(compare({{usual}, {pair_on("tp=4", "dp:tp")}}), Each(HasSubstr("the program of rank 1")));
}

// The program's text elides long tensors.
TEST(Handshake, compares_constants_whole) {
  const auto with_last_row = [](int64_t row) {
    test::TemporaryFolder folder;
    std::string rows = "0";
    for (int i = 1; i < 19; ++i) rows += ", " + std::to_string(i % 5);
    const std::string text = "g (float[5, 4] x) => (float[20, 4] y) <int64[20] rows = {" + rows + ", " +
                             std::to_string(row) + "}> { y = Gather (x, rows) }";
    export_model(parse_text(text), folder / "model.onnx");
    return compile(Model::load(folder / "model.onnx"), Mesh::parse("tp=2"), Plan{.presets = "dp:tp"});
  };
  EXPECT_THAT(compare({{with_last_row(2)}, {with_last_row(2)}}), Each(""));
  EXPECT_THAT(compare({{with_last_row(2)}, {with_last_row(3)}}),
              Each(HasSubstr("the constants or the weights' types of rank 1")));
}

// Ranks that map the same file have the same bytes; a copy may have others.
TEST(Handshake, tells_copies_of_the_weights) {
  test::TemporaryFolder folder;
  const std::filesystem::path model = test::write_model(folder, test::kPair), copy = folder / "copy.onnx";
  std::filesystem::copy_file(model, copy);
  std::filesystem::create_symlink(model, folder / "link.onnx");
  const auto load = [](const std::filesystem::path& path) {
    return compile(Model::load(path), Mesh::parse("tp=2"), Plan{.presets = "megatron"});
  };
  const auto copies = [&](const Program& first, const Program& second) {
    const auto world = comm::make_local_world(2);
    std::vector<uint64_t> found;
    std::thread other([&] { shake_hands(*world->join(1, std::vector{0, 1}), *second.impl().programs, "1"); });
    found = shake_hands(*world->join(0, std::vector{0, 1}), *first.impl().programs, "1");
    other.join();
    return found;
  };
  const std::vector<uint64_t> same = copies(load(model), load(folder / "link.onnx"));
  EXPECT_EQ(same[0], same[1]);
  const std::vector<uint64_t> two = copies(load(model), load(copy));
  EXPECT_NE(two[0], two[1]);
}

}  // namespace
}  // namespace tessera::launch
