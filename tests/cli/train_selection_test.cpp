// What `tessera train` says of what trains.
#include "cli/command_line.h"

namespace tessera {
namespace {

class TrainSelection : public CommandLine {
 protected:
  const std::string train_ = "train " + std::string(TESSERA_TEST_DATA) + "/models/training/gpt/model.onnx --data " +
                             std::string(TESSERA_TEST_DATA) + "/models/training/gpt/data.npz --steps 1 ";
  std::string said(const std::string& words) {
    const Ran ran = tessera(train_ + words);
    EXPECT_EQ(ran.code, 0) << ran.err;
    return ran.out;
  }
  nlohmann::json selection(const std::string& words) {
    return nlohmann::json::parse(said(words + " --json")).at("selection");
  }
};

TEST_F(TrainSelection, is_shown_before_the_first_step_and_in_a_dry_run) {
  for (const std::string words : {"--freeze '*.bias' ", "--freeze '*.bias' --dry-run "}) {
    const std::string text = said(words);
    EXPECT_THAT(text, HasSubstr("trains"));
    EXPECT_THAT(text, HasSubstr("does not train:"));
    EXPECT_THAT(text, HasSubstr("--freeze '*.bias'"));
    EXPECT_LT(text.find("does not train:"), text.find("parameters train;"));
  }
  EXPECT_EQ(said("--quiet"), "");
}

TEST_F(TrainSelection, lists_every_tensor_if_asked) {
  const nlohmann::json whole = selection("--dry-run");
  const std::string text = said("--dry-run --verbose");
  size_t lines = 0;
  for (size_t at = text.find(" yes"); at != std::string::npos; at = text.find(" yes", at + 1)) ++lines;
  size_t trained = 0;
  for (const auto& tensor : whole.at("tensors")) trained += tensor.at("trains").get<bool>();
  EXPECT_GT(trained, 20u);
  EXPECT_EQ(lines, trained);
}

TEST_F(TrainSelection, is_in_the_answer_for_programs_of_a_run_and_a_dry_run) {
  for (const std::string words : {"--freeze '*.bias'", "--freeze '*.bias' --dry-run"}) {
    const nlohmann::json selected = selection(words);
    ASSERT_EQ(selected.at("patterns").size(), 1u);
    const nlohmann::json& pattern = selected.at("patterns")[0];
    EXPECT_EQ(pattern.at("option"), "--freeze");
    EXPECT_GT(pattern.at("names").size(), 10u);
    for (const auto& tensor : selected.at("tensors")) {
      const bool is_bias = tensor.at("name").get<std::string>().ends_with(".bias");
      EXPECT_EQ(tensor.at("trains").get<bool>(), !is_bias) << tensor;
      EXPECT_EQ(tensor.value("why", ""), is_bias ? "--freeze '*.bias'" : "") << tensor;
    }
  }
}

TEST_F(TrainSelection, refuses_ties_that_are_none) {
  EXPECT_THAT(mistake(train_ + "--tie no"), HasSubstr("COPY=SOURCE"));
}

}  // namespace
}  // namespace tessera
