// The schedules that make_pipeline knows: all sizes, their tables, what they hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "error_of.h"
#include "tessera/pipeline.h"

namespace tessera {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kNames = {"gpipe", "1f1b", "interleaved:1", "interleaved:2", "interleaved:3", "zb-h1",
                                         "zb-h2", "zb-v", "v-half",        "v-min",         "dualpipe-v"};

TEST(Schedules, pass_the_check_at_every_size) {
  for (const std::string& name : kNames)
    for (int64_t ranks = 1; ranks <= 6; ++ranks)
      for (int64_t micro_batches = 1; micro_batches <= 14; ++micro_batches) {
        if (name == "dualpipe-v" && micro_batches < 2 * ranks) continue;
        SCOPED_TRACE(name + " " + std::to_string(ranks) + " " + std::to_string(micro_batches));
        const PipelineTable table = make_pipeline(name, {ranks, micro_batches});
        const PipelineProof proof = check_pipeline(table);
        EXPECT_TRUE(proof.trains);
        EXPECT_EQ(proof.out_of_order, "");
        EXPECT_LE(proof.queue, !name.starts_with("interleaved") || micro_batches % ranks == 0 ? 1 : 3);
        EXPECT_EQ(std::ssize(table.ranks), ranks);
        EXPECT_EQ(table.micro_batches, micro_batches);
        EXPECT_EQ(parse_pipeline(pipeline_csv(table), "table.csv"), table);
      }
}

double held(const PipelineTable& table) {
  double most = 0;
  for (const PipelineRankTime& each : time_pipeline(table, even_pipeline_costs(table, 1, 1, 1, 0)).ranks)
    most = std::max(most, each.activations);
  return most;
}

TEST(Schedules, hold_what_their_papers_say) {
  for (const int64_t ranks : {2, 4, 8, 16}) {
    const PipelineSizes sizes{ranks, 3 * ranks};
    const auto p = static_cast<double>(ranks);
    EXPECT_EQ(held(make_pipeline("gpipe", sizes)), 3 * p);
    EXPECT_EQ(held(make_pipeline("1f1b", sizes)), p);
    EXPECT_EQ(held(make_pipeline("zb-h1", sizes)), p);
    EXPECT_LE(held(make_pipeline("zb-h2", sizes)), 2 * p);
    EXPECT_LE(held(make_pipeline("zb-v", sizes)), p);
    EXPECT_LE(held(make_pipeline("v-half", sizes)), 0.55 * p);
    EXPECT_LE(held(make_pipeline("v-min", sizes)), p / 3 + 1);
    EXPECT_LE(held(make_pipeline("dualpipe-v", sizes)), p + 1);
  }
}

// With equal passes.
TEST(Schedules, have_the_bubbles_of_closed_forms) {
  const auto idle = [](const char* name, int64_t ranks, int64_t micro_batches) {
    const PipelineTable table = make_pipeline(name, {ranks, micro_batches});
    const PipelineTimes times = time_pipeline(table, even_pipeline_costs(table, 1, 1, 1, 0));
    return times.bubble * times.step;
  };
  EXPECT_NEAR(idle("gpipe", 4, 8), 3 * 3, 1e-9);            // (p - 1)(F + B + W)
  EXPECT_NEAR(idle("1f1b", 4, 8), 3 * 3, 1e-9);             // the same
  EXPECT_NEAR(idle("interleaved:2", 4, 8), 4.5, 1e-9);      // a half of it
  EXPECT_NEAR(idle("zb-h1", 4, 8), 3, 1e-9);                // (p - 1)(F + B - W)
  const PipelineTable h2 = make_pipeline("zb-h2", {4, 8});  // (p - 1)(F + B - 2W)
  EXPECT_NEAR(time_pipeline(h2, even_pipeline_costs(h2, 1, 1, 1, 0)).bubble, 0, 1e-9);
  const PipelineTable v = make_pipeline("zb-v", {4, 8});
  EXPECT_NEAR(time_pipeline(v, even_pipeline_costs(v, 1, 1, 1, 0)).bubble, 0, 1e-9);
}

// docs/pipelines.md prints tables, and compares what they cost.
TEST(Schedules, are_as_documented) {
  std::ostringstream text;
  text << std::ifstream(TESSERA_TEST_DATA "/../docs/pipelines.md").rdbuf();
  const std::string page = text.str();
  for (const char* name :
       {"gpipe", "1f1b", "interleaved:2", "interleaved:4", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "dualpipe-v"}) {
    const PipelineTable table = make_pipeline(name, {4, 8});
    const PipelineTimes times = time_pipeline(table, even_pipeline_costs(table, 1, 1, 1, 0));
    EXPECT_THAT(page, HasSubstr(fmt::format("| `{}` | {:.1f} % | {:.4g} |\n", name, std::max(0.0, 100 * times.bubble),
                                            held(table))));
  }
  for (const PipelineTable& table :
       {make_pipeline("1f1b", {4, 6}), make_pipeline("zb-h1", {4, 6}), make_pipeline("zb-v", {2, 4})}) {
    std::istringstream lines(pipeline_text(table, 120));
    for (std::string line; std::getline(lines, line);) EXPECT_THAT(page, HasSubstr("\n    " + line + "\n"));
  }
}

TEST(Schedules, take_micro_batches_that_the_ranks_do_not_divide) {
  const PipelineTable table = make_pipeline("interleaved:2", {4, 11});
  EXPECT_EQ(check_pipeline(table).queue, 3);
  EXPECT_EQ(table.stages, 8);
}

TEST(Schedules, refuse_sizes_that_they_cannot_have) {
  const auto error = [](const char* name, const PipelineSizes& sizes) {
    return test::error_of([&] { make_pipeline(name, sizes); });
  };
  EXPECT_THAT(error("dualpipe-v", {4, 7}), HasSubstr("at least 8 micro-batches, not 7"));
  EXPECT_THAT(error("1f1b:2", {4, 8}), HasSubstr("takes no number"));
  EXPECT_THAT(error("interleaved:x", {4, 8}), HasSubstr("between 1 and 1024"));
  EXPECT_THAT(error("zb-v", {4, 8, 12}), HasSubstr("has 8 stages on 4 ranks, not 12"));
  EXPECT_THAT(error("interleaved", {4, 8, 10}), HasSubstr("a multiple of the ranks"));
  EXPECT_THAT(error("1f2b", {4, 8}), AllOf(HasSubstr("is no schedule"), HasSubstr("interleaved:V, zb-h1")));
  EXPECT_THAT(error("1f1b", {0, 8}), HasSubstr("0 ranks"));
  EXPECT_THAT(error("interleaved:1024", {1 << 20, 1 << 20}), HasSubstr("give fewer"));
}

// The order that PyTorch's test of ScheduleDualPipeV expects of rank 3 of 4 (its first and last cells).
TEST(Schedules, dualpipe_v_is_the_one_of_others) {
  const std::string csv = pipeline_csv(make_pipeline("dualpipe-v", {4, 10}));
  EXPECT_THAT(csv, HasSubstr("0F6,7F0,7I0,7W0,7F1,7I1,7W1,7F2,7I2,7W2,7F3,(0F7;7B3)OVERLAP_F_B,(7F4;0B0)OVERLAP_F_B"));
  EXPECT_THAT(csv, HasSubstr("7B9,0I6,0W6,0I7,0W7,0I8,0W8,0I9,0W9\n"));
  EXPECT_THAT(csv, HasSubstr("\n3F0,4F0,3F1,4F1,3F2,4F2,3F3,4F3,3F4,4B0,(4F4;3B0)OVERLAP_F_B,"));
  EXPECT_THAT(csv, HasSubstr("4B7,3B7,4I8,3I8,4I9,3I9,4W8,3W8,4W9,3W9\n"));
}

}  // namespace
}  // namespace tessera
