#include "tessera/api/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "small_model.h"
#include "tessera/api/impl.h"

namespace tessera::api {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

struct Rank {
  Program program;
  std::string version = "1";
};

/// What each rank throws when they compare.
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

Program pair_on(const char* mesh, const char* preset = "megatron", float last = 0) {
  test::TemporaryFolder folder;
  OnnxModel model = parse_text(test::kPair);
  for (Value* state : model.graph->values_of(ValueKind::state)) {
    state->data = test::ramp(state->data.dims);
    reinterpret_cast<float*>(state->data.mutable_data())[state->data.count() - 1] += last;
  }
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
              Each(HasSubstr("the mesh of rank 1 is not that of rank 0; give all ranks the same --mesh")));
  EXPECT_THAT(compare({{usual}, {pair_on("tp=4", "dp:tp")}}), Each(HasSubstr("the program of rank 1")));
  EXPECT_THAT(compare({{usual}, {pair_on("tp=4", "megatron", 0.5F)}}),
              Each(HasSubstr("the data of the weights of rank 1")));
}

}  // namespace
}  // namespace tessera::api
