// Schedules of pipelines, as a person asks for them.
#include "cli/command_line.h"

namespace tessera {
namespace {

class ScheduleCommand : public CommandLine {
 protected:
  std::string at(const char* name) const { return (folder_ / name).string(); }
};

TEST_F(ScheduleCommand, PrintsATableItsIdleTimeAndWhatItHolds) {
  const std::string out = tessera("schedule zb-h1 --ranks 3 --micro-batches 4").out;
  EXPECT_THAT(out, AllOf(HasSubstr("zb-h1: 3 ranks, 3 stages, 4 micro-batches\n"),
                         HasSubstr("rank 0 F0 F1 F2 .  .  I0 W0 F3 I1 W1 I2 W2 I3 W3\n"), HasSubstr("warm-up"),
                         HasSubstr("step 14.0, bubble 14.3 %"), HasSubstr("one message queued")));
  const json found = parsed("schedule zb-h1 --ranks 3 --micro-batches 4 --times 2,2,1,0.5");
  EXPECT_EQ(found["stages"], 3);
  EXPECT_EQ(found["ranks"][0]["activations"], 3.0);
  EXPECT_EQ(found["queue"], 1);
  EXPECT_EQ(found["ranks"].size(), 3u);
  EXPECT_GT(found["ranks"][0]["idle"]["warm_up"], 0);
}

TEST_F(ScheduleCommand, WritesTablesReadsThemAndDrawsThem) {
  tessera("schedule interleaved:2 --ranks 2 --micro-batches 4 -o " + at("table.csv"));
  EXPECT_THAT(contents(at("table.csv")), testing::StartsWith("0F0,0F1,2F0,2F1,"));
  const json read = parsed("schedule " + at("table.csv"));
  EXPECT_EQ(read["bubble"], parsed("schedule interleaved:2 --ranks 2 --micro-batches 4")["bubble"]);
  EXPECT_EQ(tessera("schedule " + at("table.csv") + " -o " + at("table.svg")).code, 0);
  EXPECT_THAT(contents(at("table.svg")), testing::StartsWith("<svg "));
}

TEST_F(ScheduleCommand, RefusesAnEditedTableWithTheCellsName) {
  testing_io::put(at("table.csv"), "0F0,0B0\n1B0,1F0\n");
  EXPECT_THAT(mistake("schedule " + at("table.csv")),
              HasSubstr("[pipeline] rank 1, slot 0, '1B0' needs rank 1, slot 1, '1F0'"));
}

TEST_F(ScheduleCommand, FindsTheFastestInALimit) {
  const json narrow = parsed("schedule auto --ranks 4 --micro-batches 12 --memory 2.5");
  const json wide = parsed("schedule auto --ranks 4 --micro-batches 12 --memory 8");
  EXPECT_LT(wide["bubble"], narrow["bubble"]);
  for (const json& rank : narrow["ranks"]) EXPECT_LE(rank["activations"], 2.5);
}

TEST_F(ScheduleCommand, RefusesWhatItCannotDo) {
  EXPECT_THAT(mistake("schedule 1f1b --ranks 4"), HasSubstr("'1f1b' needs --micro-batches"));
  EXPECT_THAT(mistake("schedule 1f2b --ranks 4 --micro-batches 8"), HasSubstr("'1f2b' is no schedule, and cannot"));
  EXPECT_THAT(mistake("schedule 1f1b --ranks 4 --micro-batches 8 --times 1,2"), HasSubstr("three or four numbers"));
  EXPECT_THAT(mistake("schedule 1f1b --ranks 4 --micro-batches 8 --times 1,2,x"), HasSubstr("'x' is no number"));
  EXPECT_THAT(mistake("schedule 1f1b --ranks 4 --micro-batches 8 --memory 3"), HasSubstr("use the schedule auto"));
  EXPECT_THAT(mistake("schedule 1f1b --ranks 4 --micro-batches 8 -o x.png"), HasSubstr("a .csv or an .svg"));
  testing_io::put(at("table.csv"), "0F0,0B0\n1F0,1B0\n");
  EXPECT_THAT(mistake("schedule " + at("table.csv") + " --ranks 3"), HasSubstr("has 2; leave the option out"));
}

}  // namespace
}  // namespace tessera
