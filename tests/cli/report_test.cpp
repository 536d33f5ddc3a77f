// Pages of what other commands print.
#include "cli/command_line.h"
#include "tessera/files.h"

namespace tessera {
namespace {

using testing::Not;

class ReportCommand : public CommandLine {
 protected:
  std::string path(const char* name) { return (folder_ / name).string(); }
  // What a command prints, as a file.
  std::string printed(const char* name, const std::string& words) {
    const Ran ran = tessera(words + " --json");
    EXPECT_EQ(ran.code, 0) << words << "\n" << ran.err;
    write_file(path(name), ran.out);
    return path(name);
  }
  std::string page(const std::string& inputs) {
    const Ran ran = tessera("report " + inputs + " -o " + path("page.html"));
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("page.html"));
    return contents(path("page.html"));
  }
};

TEST_F(ReportCommand, ShowsASimulationWithItsDetails) {
  const std::string details =
      printed("s.json", "simulate " + model_ +
                            " --train --loss mse --mesh dp=4,tp=2 --cluster h100-sxm --shapes batch=64 --details");
  const std::string html = page(details);
  EXPECT_THAT(html, AllOf(HasSubstr("<h3>predicted for H100-SXM</h3>"), HasSubstr("At its peak, in operation"),
                          HasSubstr("<b>up</b>"), HasSubstr("all_reduce"), HasSubstr("class=\"dim split\"")));
  EXPECT_THAT(html, AllOf(HasSubstr("No input compares plans"), Not(HasSubstr("No input has"))));
  const json answer = json::parse(contents(details));
  EXPECT_EQ(answer["memory"]["operations"].size(), answer["memory"]["states"].size());
  EXPECT_FALSE(answer["predicted"]["collectives"].empty());
}

TEST_F(ReportCommand, ShowsRunsAsMeasured) {
  for (const std::string& command : {"bench " + model_ + " --mesh tp=2 --iterations 4 --shapes batch=8",
                                     "run " + model_ + " --mesh tp=2 --shapes batch=8"}) {
    const std::string html = page(printed("run.json", command + " --details"));
    EXPECT_THAT(html, AllOf(HasSubstr("<h3>measured</h3>"), HasSubstr("<span>rank 1</span>"),
                            HasSubstr("At its peak, in operation"), HasSubstr("class=\"dim split\"")));
  }
}

TEST_F(ReportCommand, ShowsADryRunAndAPlan) {
  const std::string dry = printed("dry.json", "shard " + model_ + " --mesh tp=2 --dry-run --details");
  const std::string plan = printed("plan.json", "plan " + model_ + " --devices 2 --cluster h100-sxm --shapes batch=64");
  const std::string html = page(dry + " " + plan);
  EXPECT_THAT(html, AllOf(HasSubstr("No input has the times of single operators. tessera simulate"),
                          HasSubstr("with --json and --details"), HasSubstr("Plans for 2 devices of H100-SXM")));
}

TEST_F(ReportCommand, TakesTraces) {
  const std::string command = "simulate " + model_ + " --cluster h100-sxm --trace " + path("trace.json");
  tessera(command + " --mesh tp=2");
  EXPECT_THAT(page(path("trace.json")), AllOf(HasSubstr("<span>rank 0</span>"), HasSubstr("<span>rank 1</span>")));
  tessera(command + " --mesh dp=512,tp=8 --shapes batch=4096");
  EXPECT_THAT(page(path("trace.json")), HasSubstr("<span>512 like rank 0</span>"));
}

TEST_F(ReportCommand, RefusesWhatItCannotReadOrWrite) {
  const std::string answer = printed("s.json", "simulate " + model_ + " --mesh tp=2 --cluster h100-sxm");
  write_file(path("cut.json"), contents(answer).substr(0, 200));
  EXPECT_THAT(mistake("report " + path("cut.json") + " -o " + path("page.html")),
              AllOf(HasSubstr("cut.json is not JSON"), HasSubstr("line ")));
  write_file(path("other.json"), R"({"name": "web"})");
  EXPECT_THAT(mistake("report " + answer + " " + path("other.json") + " -o " + path("page.html")),
              AllOf(HasSubstr("other.json is JSON, but neither"), HasSubstr("--json")));
  EXPECT_THAT(mistake("report " + answer + " -o " + answer), HasSubstr("would overwrite"));
  EXPECT_THAT(mistake("report " + answer + " -o " + path("none/page.html")), HasSubstr("none"));
  EXPECT_THAT(mistake("report " + path("absent.json") + " -o " + path("page.html")), HasSubstr("absent.json"));
  EXPECT_FALSE(std::filesystem::exists(path("page.html")));
  EXPECT_EQ(contents(answer).front(), '{');
  EXPECT_THAT(mistake("simulate " + model_ + " --mesh tp=2 --cluster h100-sxm --details"),
              HasSubstr("give --json, too"));
}

}  // namespace
}  // namespace tessera
