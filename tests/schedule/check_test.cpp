// Tables that people edit: refused with the cell's name, or still right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "error_of.h"
#include "tessera/pipeline.h"

namespace tessera {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Work = PipelineWork;

std::string error_of_csv(const std::string& csv) {
  return test::error_of([&] { check_pipeline(parse_pipeline(csv, "table.csv")); });
}

TEST(CheckPipeline, accepts_a_table) {
  const PipelineProof proof =
      check_pipeline(parse_pipeline("0F0,0F1,,0I0,0W0,0B1\n,1F0,1B0,1F1,1I1,1W1\n", "table.csv"));
  EXPECT_TRUE(proof.trains);
  EXPECT_EQ(proof.queue, 1);
  EXPECT_EQ(proof.out_of_order, "");
}

TEST(CheckPipeline, accepts_forward_passes_alone) {
  EXPECT_FALSE(check_pipeline(parse_pipeline("0F0,0F1\n1F0,1F1\n", "table.csv")).trains);
}

TEST(CheckPipeline, names_what_is_missing) {
  EXPECT_THAT(error_of_csv("0F0,0F1,0B0,0B1\n1F0,1B0,1B1\n"),
              HasSubstr("stage 1 lacks '1F1'; add that cell to rank 1"));
  EXPECT_THAT(error_of_csv("0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n"), HasSubstr("stage 0 lacks '0B1', or I and W for it"));
  EXPECT_THAT(error_of_csv("0F0,0I0\n1F0,1B0\n"), HasSubstr("stage 0 lacks '0W0'"));
  EXPECT_THAT(error_of_csv("0F0,0W0\n1F0,1B0\n"), HasSubstr("stage 0 lacks '0I0'"));
}

TEST(CheckPipeline, names_what_is_there_twice) {
  EXPECT_THAT(error_of_csv("0F0,0F0,0B0\n1F0,1B0\n"),
              HasSubstr("rank 0, slot 1, '0F0': the same is done in rank 0, slot 0, '0F0'; remove one"));
  EXPECT_THAT(error_of_csv("0F0,0B0,0W0\n1F0,1B0\n"),
              AllOf(HasSubstr("slot 1, '0B0': B computes both gradients"), HasSubstr("slot 2, '0W0' is one too many")));
}

TEST(CheckPipeline, names_cells_on_a_wrong_rank) {
  EXPECT_THAT(error_of_csv("0F0,0B0,0F1\n1F0,1F1,1B0,0B1,1B1\n"),
              HasSubstr("rank 1, slot 3, '0B1': stage 0 is on rank 0; move the cell there"));
}

TEST(CheckPipeline, names_cells_in_a_wrong_order_on_a_rank) {
  EXPECT_THAT(error_of_csv("0F0,0B0\n1B0,1F0\n"),
              HasSubstr("rank 1, slot 0, '1B0' needs rank 1, slot 1, '1F0', which comes later; put it after that"));
  EXPECT_THAT(error_of_csv("0F0,0W0,0I0\n1F0,1B0\n"), HasSubstr("'0W0' needs rank 0, slot 2, '0I0'"));
  EXPECT_THAT(error_of_csv("(0F0;0B0)OVERLAP_F_B\n"), HasSubstr("one of the pair needs the other's result"));
}

TEST(CheckPipeline, names_ranks_that_wait_for_each_other) {
  EXPECT_THAT(
      error_of_csv("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n"),
      AllOf(HasSubstr("rank 0, slot 1, '0B0' waits for rank 1, slot 2, '1B0', which comes after: rank 1, slot 1, "
                      "'1F1' waits for rank 0, slot 2, '0F1'"),
            HasSubstr("move '0F1' before '0B0'")));
}

TEST(CheckPipeline, says_how_many_messages_a_link_must_hold) {
  // Rank 1 takes the second message first.
  EXPECT_EQ(check_pipeline(parse_pipeline("0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1\n", "table.csv")).queue, 2);
  EXPECT_EQ(check_pipeline(parse_pipeline("0F0,0F1,0F2,0F3\n1F3,1F2,1F1,1F0\n", "table.csv")).queue, 4);
}

TEST(CheckPipeline, says_if_sums_have_another_order) {
  EXPECT_EQ(check_pipeline(parse_pipeline("0F0,0F1,0B1,0B0\n", "table.csv")).out_of_order, "rank 0, slot 3, '0B0'");
}

const std::string kLowered0 = "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n";
const std::string kLowered1 = "1UNSHARD,1RECV_F0,1F0,1I0,1SEND_B0,1W0,1RESHARD\n";

TEST(CheckPipeline, reads_tables_with_communication) {
  const PipelineTable table = parse_pipeline(kLowered0 + kLowered1, "table.csv");
  EXPECT_EQ(check_pipeline(table).queue, 1);
  const PipelineTimes times = time_pipeline(table, even_pipeline_costs(table, 1, 1, 1, 0.5));
  EXPECT_DOUBLE_EQ(times.step, 6);  // F, message, F, I, message, B
  EXPECT_EQ(pipeline_csv(table), kLowered0 + kLowered1);
}

TEST(CheckPipeline, names_wrong_communication) {
  const auto error = [](const char* from, const char* to) {
    std::string csv = kLowered0 + kLowered1;
    csv.replace(csv.find(from), std::string(from).size(), to);
    return error_of_csv(csv);
  };
  EXPECT_THAT(error("1RECV_F0,", ""), HasSubstr("stage 1 lacks '1RECV_F0', although other cells send and receive"));
  EXPECT_THAT(error("0SEND_F0,", ""), HasSubstr("stage 0 lacks '0SEND_F0'"));
  EXPECT_THAT(error("1I0,1SEND_B0", "1SEND_B0,1I0"), HasSubstr("'1SEND_B0' needs rank 1, slot 4, '1I0'"));
  EXPECT_THAT(error("1RECV_F0,1F0", "1F0,1RECV_F0"), HasSubstr("'1F0' needs rank 1, slot 2, '1RECV_F0'"));
  EXPECT_THAT(error("1W0,", "1W0,1SEND_F0,"), HasSubstr("'1SEND_F0': there is no stage at the other end"));
  EXPECT_THAT(error("1W0,1RESHARD", "1RESHARD,1W0"), HasSubstr("which dropped the stage's parameters"));
  EXPECT_THAT(error("0B0,0REDUCE_GRAD", "0REDUCE_GRAD,0B0"), HasSubstr("which reduces the stage's gradients"));
  EXPECT_THAT(error_of_csv("0F0,0SEND_F0,1RECV_F0,1F0\n"), HasSubstr("stages 0 and 1 are on one rank"));
}

TEST(ReadPipeline, names_cells_that_it_cannot_read) {
  const auto error = [](const std::string& cell) { return error_of_csv("0F0," + cell + "\n"); };
  EXPECT_THAT(error("0X1"), HasSubstr("table.csv, rank 0, slot 1: '0X1' is not an action"));
  EXPECT_THAT(error("F1"), HasSubstr("is not an action"));
  EXPECT_THAT(error("-1F1"), HasSubstr("is not an action"));
  EXPECT_THAT(error("0F1x"), HasSubstr("is not an action"));
  EXPECT_THAT(error("0F"), HasSubstr("lacks a micro-batch"));
  EXPECT_THAT(error("0UNSHARD3"), HasSubstr("leave the last number out"));
  EXPECT_THAT(error("0BW0"), HasSubstr("of an older PyTorch"));
  EXPECT_THAT(error("(0F1;0B0"), HasSubstr("is not a pair"));
  EXPECT_THAT(error("(0F1)OVERLAP_F_B"), HasSubstr("is not a pair"));
  EXPECT_THAT(error("(0F1;0B0)B"), HasSubstr("is not a pair"));
  EXPECT_THAT(error("(0F1;0SEND_F0)OVERLAP_F_B"), HasSubstr("overlaps communication"));
  EXPECT_THAT(error("99999999999F0"), HasSubstr("too large"));
  EXPECT_THAT(error("0F2000000000"), HasSubstr("too large for a table of 2 cells"));
  EXPECT_THAT(error("2F0"), HasSubstr("too large for a table of 2 cells"));
  EXPECT_THAT(error("0F1,2F0"), HasSubstr("stage 1 has no cells"));
  EXPECT_THAT(error_of_csv(""), HasSubstr("is empty"));
  EXPECT_THAT(error_of_csv(",,\n,\n"), HasSubstr("has no cells"));
}

TEST(ReadPipeline, takes_blanks_quotes_and_other_line_ends) {
  const PipelineTable table = parse_pipeline(" 0F0, \"0B0\" \r\n", "table.csv");
  EXPECT_EQ(pipeline_csv(table), "0F0,0B0\n");
}

// Whether a rank-by-rank run of the table computes each pass once, from operands that are there: what the check proves,
// by trying.
bool runs(const PipelineTable& table) {
  std::set<std::tuple<char, int64_t, int64_t>> done;  // F, I, W
  std::vector<size_t> next(table.ranks.size(), 0);
  const auto compute = [&](const PipelineAction& each, bool commit) {
    const bool last = each.stage + 1 == table.stages;
    const auto has = [&](char work, int64_t stage) { return done.contains({work, stage, each.micro_batch}); };
    if (each.work == Work::forward && each.stage > 0 && !has('F', each.stage - 1)) return false;
    if ((each.work == Work::input_gradient || each.work == Work::backward) &&
        !(has('F', each.stage) && (last || has('I', each.stage + 1))))
      return false;
    if (each.work == Work::weight_gradient && !has('I', each.stage)) return false;
    if (!commit) return true;
    const std::string made = each.work == Work::forward          ? "F"
                             : each.work == Work::backward       ? "IW"
                             : each.work == Work::input_gradient ? "I"
                                                                 : "W";
    for (const char work : made)
      if (!done.insert({work, each.stage, each.micro_batch}).second) return false;
    return true;
  };
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t rank = 0; rank < next.size(); ++rank)
      while (next[rank] < table.ranks[rank].size()) {
        const PipelineCell& cell = table.ranks[rank][next[rank]];
        const std::vector<PipelineAction> actions = cell.idle()         ? std::vector<PipelineAction>{}
                                                    : cell.overlapped() ? std::vector{cell.first, cell.second}
                                                                        : std::vector{cell.first};
        bool ready = true;
        for (const PipelineAction& each : actions) ready &= compute(each, false);
        if (!ready) break;
        for (const PipelineAction& each : actions)
          if (!compute(each, true)) return false;
        ++next[rank];
        progress = true;
      }
  }
  for (size_t rank = 0; rank < next.size(); ++rank) {
    if (next[rank] < table.ranks[rank].size()) return false;
    for (const PipelineCell& cell : table.ranks[rank])
      for (const PipelineAction& each : {cell.first, cell.second})
        if (each.stage >= 0 && table.rank_of[static_cast<size_t>(each.stage)] != static_cast<int64_t>(rank))
          return false;
  }
  return std::ssize(done) == 3 * table.stages * table.micro_batches;
}

struct Mutator {
  std::mt19937 random;

  size_t below(size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random); }

  // Swaps, drops, duplicates or retargets a cell.
  void mutate(PipelineTable& table) {
    std::vector<PipelineCell>& cells = table.ranks[below(table.ranks.size())];
    const size_t at = below(cells.size()), other = below(cells.size());
    switch (below(4)) {
      case 0:
        std::swap(cells[at], cells[other]);
        break;
      case 1:
        cells.erase(cells.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      case 2:
        cells.insert(cells.begin() + static_cast<std::ptrdiff_t>(other), PipelineCell(cells[at]));
        break;
      default: {
        PipelineAction& action = cells[at].overlapped() && below(2) == 1 ? cells[at].second : cells[at].first;
        if (below(2) == 0)
          action.micro_batch = static_cast<int64_t>(below(static_cast<size_t>(table.micro_batches)));
        else
          action.stage = static_cast<int64_t>(below(static_cast<size_t>(table.stages)));
      }
    }
  }
};

TEST(CheckPipeline, refuses_mutants_that_do_not_run_and_no_others) {
  Mutator mutator{std::mt19937(20261129)};
  int refused = 0, accepted = 0;
  for (const char* name :
       {"gpipe", "1f1b", "interleaved:2", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "dualpipe-v"}) {
    const PipelineTable table = make_pipeline(name, {3, 6});
    for (int each = 0; each < 400; ++each) {
      PipelineTable mutant = table;
      mutator.mutate(mutant);
      SCOPED_TRACE(name + std::string("\n") + pipeline_csv(mutant));
      const std::string error = test::error_of([&] { check_pipeline(mutant); });
      const bool right = runs(mutant);
      ASSERT_EQ(error == "no error", right) << error;
      if (!right) {
        EXPECT_THAT(error, testing::ContainsRegex("'[0-9]+[FBIW][0-9]+'|OVERLAP_F_B'"));
      }
      ++(right ? accepted : refused);
    }
  }
  EXPECT_GT(refused, 2000);
  EXPECT_GT(accepted, 100);
}

// Linear: 64 ranks and 512 micro-batches, 98,304 cells.
TEST(CheckPipeline, proves_large_tables) {
  const PipelineTable table = make_pipeline("zb-h1", {64, 512});
  EXPECT_EQ(check_pipeline(table).queue, 1);
}

}  // namespace
}  // namespace tessera
