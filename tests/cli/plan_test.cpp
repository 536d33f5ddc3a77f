// Plans that are searched, as a person asks for them.
#include "cli/command_line.h"
#include "plan/deep_model.h"

namespace tessera {
namespace {

class PlanCommand : public CommandLine {
 protected:
  std::string path(const char* name) { return (folder_ / name).string(); }
};

TEST_F(PlanCommand, WritesAPlanThatOtherCommandsTake) {
  const std::string plan = path("plan.json"), shapes = " --shapes batch=64";
  const json found = parsed("plan " + model_ + " --devices 4 --cluster h100-sxm -o " + plan + shapes);
  EXPECT_EQ(found["left"], 0);
  EXPECT_LE(found["best"].size(), 5U);
  EXPECT_EQ(json::parse(contents(plan)), found["plan"]);
  EXPECT_FALSE(found["annotations"].empty());
  const json same = parsed("simulate " + model_ + " --cluster h100-sxm --plan " + plan);
  EXPECT_DOUBLE_EQ(same["predicted"]["step_ms"], found["best"][0]["step_ms"]);
  EXPECT_EQ(same["peak_bytes"], found["best"][0]["peak_bytes"]);
  EXPECT_EQ(tessera("verify " + model_ + " --plan " + plan).code, 0);
}

TEST_F(PlanCommand, PlansATrainingStep) {
  const std::string plan = path("plan.json");
  const std::string step = " --train --loss mse --cluster a100-80gb ";
  const json found =
      parsed("plan " + model_ + step + "--devices 2 --shapes batch=4 --recompute none --micro-batches 2 -o " + plan);
  EXPECT_EQ(found["plan"]["micro_batches"], 2);
  const json same = parsed("simulate " + model_ + step + "--plan " + plan);
  EXPECT_DOUBLE_EQ(same["predicted"]["step_ms"], found["best"][0]["step_ms"]);
}

TEST_F(PlanCommand, PrintsWhatDecidedAndWhatWasNotSearched) {
  const Ran ran = tessera("plan " + model_ + " --devices 16 --cluster a100-80gb --search-time 2");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out,
              AllOf(HasSubstr("plan for 16 devices of"), HasSubstr("2 against 1: "),
                    HasSubstr("no order of the best plan's operators beats"),
                    HasSubstr("annotations of parameters tried"), HasSubstr("not searched: "), HasSubstr("pipelines")));
  EXPECT_THAT(ran.out, testing::Not(HasSubstr("times as long")))
      << "products of two samples say nothing of a step of kernels' fixed costs";
}

TEST_F(PlanCommand, SmallProgramsStandForModelsOfManyLayers) {
  std::ofstream(path("deep.onnxtxt")) << test::deep_model(12, 1024, 4096);
  const std::string step = " --train --cluster h100-sxm --dtype bf16 ";
  const Ran found = tessera("plan " + path("deep.onnxtxt") + step +
                            "--devices 8 --shapes batch=32,s=512 --micro-batches 1 "
                            "--recompute none --bucket-bytes 0 --search-time 100 -o " +
                            path("plan.json"));
  EXPECT_THAT(found.out, AllOf(HasSubstr(" is extrapolated from 4 of 12 blocks\n"),
                               testing::Not(HasSubstr("\n1 is extrapolated"))));
  const json same = parsed("simulate " + path("deep.onnxtxt") + step + "--plan " + path("plan.json"));
  const std::string before = "bucket-bytes=0; ";
  const double ms = std::stod(found.out.substr(found.out.find(before) + before.size()));
  EXPECT_NEAR(ms, same["predicted"]["step_ms"], 0.02 * ms);
}

TEST_F(PlanCommand, TheIntensityOverSlowLinksIsPrinted) {
  const std::string step = " --train --loss mse --cluster h100-sxm --shapes batch=64 ";
  EXPECT_THAT(tessera("simulate " + model_ + step + "--mesh dp=16").out,
              AllOf(HasSubstr("over 'infiniband', between slices of 8 devices"),
                    HasSubstr("the least batch that hides them is")));
  const json found = parsed("simulate " + model_ + step + "--mesh dp=16");
  EXPECT_EQ(found["slow_level"]["slice"], 8);
  EXPECT_EQ(found["slow_level"]["hidden"], false);
}

TEST_F(PlanCommand, MistakesNameThePlaceAndTheFix) {
  const std::string plan = "plan " + model_ + " --cluster h100-sxm ";
  EXPECT_THAT(mistake(plan), HasSubstr("--devices 64"));
  EXPECT_THAT(mistake("plan " + model_ + " --devices 2"), HasSubstr("no machine is named"));
  EXPECT_THAT(mistake(plan + "--devices 2 --memory-limit 1K"),
              AllOf(HasSubstr("no plan for 2 devices fits into the 1.0 KiB"), HasSubstr("smallest peak found")));
  EXPECT_THAT(mistake(plan + "--devices 2 --mesh x=2"), HasSubstr("give --preset, too"));
  EXPECT_THAT(mistake(plan + "--devices 2 --objective speed"), HasSubstr("objective"));
}

}  // namespace
}  // namespace tessera
