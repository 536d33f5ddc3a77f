// What commands say on standard error while they take their time.
#include <algorithm>
#include <sstream>

#include "cli/command_line.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::IsSupersetOf;

class ProgressLines : public CommandLine {
 protected:
  // The phases that a command names if none is too short for that.
  std::vector<std::string> phases(const std::string& words) {
    const Ran ran = test::run_command("TESSERA_PROGRESS_AFTER=0 " + std::string(TESSERA_BINARY) + " " + words, folder_);
    EXPECT_EQ(ran.code, 0) << words << "\n" << ran.err;
    out_ = ran.out;
    const std::string mark = " …";
    std::vector<std::string> found;
    std::istringstream lines(ran.err);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_TRUE(line.ends_with(mark)) << line;
      found.push_back(line.substr(0, line.size() - std::min(line.size(), mark.size())));
    }
    return found;
  }

  std::string out_;
};

TEST_F(ProgressLines, name_each_phase_of_a_command) {
  const std::string reading = "reading " + model_, mesh = " --mesh tp=2";
  EXPECT_THAT(phases("run " + model_ + mesh + " --outputs y.npz"),
              IsSupersetOf({reading, std::string("compiling"), std::string("loading weights"), std::string("running"),
                            std::string("writing")}));
  EXPECT_THAT(phases("bench --iterations 1 " + model_ + mesh),
              IsSupersetOf({reading, std::string("compiling"), std::string("loading weights"),
                            std::string("measuring the machine"), std::string("running")}));
  EXPECT_THAT(phases("verify " + model_ + mesh),
              IsSupersetOf({reading, std::string("compiling"), std::string("running on the mesh"),
                            std::string("running on one device"), std::string("comparing")}));
  EXPECT_THAT(phases("shard -o out " + model_ + mesh),
              IsSupersetOf({reading, std::string("compiling"), std::string("writing")}));
  EXPECT_THAT(phases("check out"), ElementsAre("reading out", "checking"));
}

TEST_F(ProgressLines, name_each_phase_of_generation) {
  const std::string model = std::string(TESSERA_TEST_DATA) + "/models/llama-cache/model.onnx";
  EXPECT_THAT(phases("generate " + model + " --ids 5,7,42,3 --max-new 3"),
              ElementsAre("reading " + model, "compiling", "loading weights", "running the prompt",
                          "measuring memory bandwidth"));
  EXPECT_THAT(phases("generate " + model + " --ids 5,7 --ids 3 --max-new 3"), IsSupersetOf({"generating"}));
}

TEST_F(ProgressLines, name_each_phase_of_training) {
  const std::string folder = std::string(TESSERA_TEST_DATA) + "/models/training/gpt";
  const std::string words = "train " + folder + "/model.onnx --data " + folder + "/data.npz --steps 2 --eval-data " +
                            folder + "/data.npz --eval-steps 1 --checkpoints ck --save-final w.npz";
  EXPECT_THAT(
      phases(words),
      IsSupersetOf({"reading " + folder + "/model.onnx", std::string("reading data"), std::string("differentiating"),
                    std::string("compiling"), std::string("loading weights"), std::string("first step"),
                    std::string("evaluating"), std::string("saving a checkpoint"), std::string("writing w.npz")}));
}

// Answers, --json above all, are the same beside them; --quiet silences them, and short phases are not named.
TEST_F(ProgressLines, stay_out_of_answers) {
  const std::string model = std::string(TESSERA_TEST_DATA) + "/models/llama-cache/model.onnx";
  const std::string words = "generate " + model + " --ids 5,7,42,3 --max-new 3 ";
  phases(words + "--json");
  EXPECT_TRUE(json::parse(out_, nullptr, false).is_object()) << out_;
  EXPECT_THAT(phases(words + "--quiet"), ElementsAre());
  EXPECT_EQ(out_, "96 100 100\n");
  const Ran patient =
      test::run_command("TESSERA_PROGRESS_AFTER=1000 " + std::string(TESSERA_BINARY) + " " + words, folder_);
  EXPECT_EQ(patient.err, "");
}

}  // namespace
}  // namespace tessera
