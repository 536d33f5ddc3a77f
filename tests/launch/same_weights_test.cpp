#include "tessera/launch/same_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "api/small_model.h"
#include "tessera/api/impl.h"

namespace tessera::launch {
namespace {

using testing::Each;
using testing::HasSubstr;

/// One weight of 12 MiB, which is three blocks, and small ones.
constexpr std::string_view kWide = R"(
wide (float[batch, 8] x) => (float[batch, 8] y) <float[8, 393216] up, float[8] bias, float[393216, 8] down> {
  hidden = MatMul (x, up)
  biased = MatMul (hidden, down)
  y = Add (biased, bias)
})";

/// Two weights in one, in whose parts it is held.
constexpr std::string_view kDivided = R"(
divided (float[batch, 256] x) => (float[batch, 256] y) <float[256, 512] both> {
  all = MatMul (x, both)
  a, b = Split <axis = 1, num_outputs = 2> (all)
  y = Mul (a, b)
})";

/// The program of a model in which one element of a weight is greater by 1.
std::shared_ptr<const runtime::RankPrograms> program_of(const char* mesh, std::string_view weight = "",
                                                        int64_t element = 0, std::string_view text = kWide,
                                                        DType dtype = DType::float32) {
  test::TemporaryFolder folder;
  OnnxModel model = parse_text(text);
  for (Value* state : model.graph->values_of(ValueKind::state)) {
    state->data = Tensor::zeros(state->dtype(), state->data.dims);
    if (state->name == weight) reinterpret_cast<float*>(state->data.mutable_data())[element] += 1;
  }
  export_model(model, folder / "model.onnx");
  Plan plan{.presets = "dp+megatron"};
  plan.dtype = dtype;
  return compile(Model::load(folder / "model.onnx"), Mesh::parse(mesh), plan).impl().programs;
}

using Programs = std::vector<std::shared_ptr<const runtime::RankPrograms>>;  // by rank

/// The errors of each rank when they compare these copies.
std::vector<std::string> compare(const Programs& programs, const std::vector<uint64_t>& copies, uint64_t all) {
  const auto world = comm::make_local_world(static_cast<int>(programs.size()));
  const std::vector<int> ranks = world->local_ranks();
  std::vector<std::string> errors(programs.size());
  std::vector<std::thread> threads;
  for (int rank : ranks)
    threads.emplace_back([&, rank] {
      try {
        SameWeights(programs[rank], rank, copies, all).compare(*world->join(rank, ranks));
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::user);
        errors[rank] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

constexpr int64_t kElements = 8 * 393216;

TEST(SameWeights, finds_copies_alike) {
  const auto program = program_of("dp=2,tp=2"), copy = program_of("dp=2,tp=2");
  for (const uint64_t all : {SameWeights::kAll, uint64_t{0}}) {
    EXPECT_THAT(compare({program, program, copy, copy}, {7, 7, 9, 9}, all), Each(""));
    EXPECT_THAT(compare({program, copy, copy, copy}, {7, 9, 9, 9}, all), Each(""));
    EXPECT_THAT(compare({program, copy, program, copy}, {1, 2, 3, 4}, all), Each(""));
  }
}

// For any place of the element, any rank that holds it, and any sharing of copies.
TEST(SameWeights, finds_every_element_that_differs) {
  const auto program = program_of("dp=2,tp=2");
  for (const int64_t element : {int64_t{0}, kElements / 2 - 1, kElements / 2, 2 * kElements / 3, kElements - 1})
    for (const char* weight : {"up", "down"}) {
      SCOPED_TRACE(testing::Message() << weight << " " << element);
      const auto other = program_of("dp=2,tp=2", weight, element);
      const std::string words = std::string(" is not that of rank 0: '") + weight + "' differs";
      EXPECT_THAT(compare({program, program, other, other}, {7, 7, 9, 9}, SameWeights::kAll),
                  Each(HasSubstr("the data of the weights of ranks 2,3" + words)));
      EXPECT_THAT(compare({program, other, program, program}, {1, 2, 3, 4}, SameWeights::kAll),
                  Each(HasSubstr("the data of the weights of rank 1" + words)));
    }
}

TEST(SameWeights, finds_elements_of_what_parts_are_made_of) {
  const auto program_with = [](std::string_view weight, int64_t element) {
    return program_of("dp=2,tp=2", weight, element, kDivided, DType::bfloat16);
  };
  const auto program = program_with("", 0);
  EXPECT_THAT(compare({program, program, program_with("", 0), program}, {7, 7, 9, 7}, SameWeights::kAll), Each(""));
  for (const int64_t element : {0, 255, 256, 256 * 512 - 1}) {
    SCOPED_TRACE(element);
    const auto other = program_with("both", element);
    for (const uint64_t all : {SameWeights::kAll, uint64_t{0}})
      EXPECT_THAT(compare({program, program, other, other}, {7, 7, 9, 9}, all),
                  Each(HasSubstr("the data of the weights of ranks 2,3 is not that of rank 0")));
  }
}

// Ranks do not read a block of large weights only to compare it, if nobody else reads it.
TEST(SameWeights, of_much_compares_what_ranks_of_several_copies_read) {
  const auto program = program_of("dp=2,tp=2");
  // tp=0 has the first half of "down" and tp=1 the second; both hold the block in the middle.
  for (const int64_t element : {int64_t{5}, kElements - 1}) {
    SCOPED_TRACE(element);
    const auto other = program_of("dp=2,tp=2", "down", element);
    EXPECT_THAT(compare({program, program, other, other}, {7, 7, 9, 9}, 0),
                Each(HasSubstr("of ranks 2,3 is not that of rank 0: 'down'")))
        << "dp=0 and dp=1 both read it";
  }
  const auto other = program_of("dp=2,tp=2", "down", kElements - 1);
  EXPECT_THAT(compare({program, other, program, other}, {7, 9, 7, 9}, 0), Each("")) << "tp=1 alone reads it";
  const auto trained = program_of("dp=2,tp=2", "down", kElements / 3 * 2);  // where the last block begins
  EXPECT_THAT(compare({program, trained, program, trained}, {7, 9, 7, 9}, 0),
              Each(HasSubstr("of ranks 1,3 is not that of rank 0: 'down'")))
      << "the first bytes of each block are compared by all";
}

}  // namespace
}  // namespace tessera::launch
