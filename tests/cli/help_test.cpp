// --help, as a terminal of 100 columns shows it.
#include <sstream>

#include "cli/command_line.h"

namespace tessera {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Not;
using testing::SizeIs;

class Help : public CommandLine {
 protected:
  std::vector<std::string> lines_of(const std::string& command) {
    std::istringstream help(tessera(command + " --help").out);
    std::vector<std::string> lines;
    for (std::string line; std::getline(help, line);) lines.push_back(line);
    return lines;
  }

  /// "Mesh and layout", …
  std::vector<std::string> headings_of(const std::string& command) {
    std::vector<std::string> headings;
    for (const std::string& line : lines_of(command))
      if (line.ends_with(':') && line[0] != ' ') headings.push_back(line.substr(0, line.size() - 1));
    return headings;
  }

  /// The options under a heading: "--mesh", …
  std::vector<std::string> options_under(const std::string& heading, const std::string& command) {
    std::vector<std::string> options;
    bool is_under = false;
    for (const std::string& line : lines_of(command)) {
      if (line.empty() || line[0] != ' ') is_under = line == heading + ":";
      if (!is_under || !line.starts_with("  -")) continue;
      const size_t name = line.find("--");
      options.push_back(line.substr(name, line.find(' ', name) - name));
    }
    return options;
  }
};

TEST_F(Help, groups_options_by_subject) {
  EXPECT_THAT(headings_of("run"), ElementsAre("Most used options", "Model and inputs", "Mesh and layout", "Measurement",
                                              "Ranks", "Memory", "Output and logs"));
  EXPECT_THAT(headings_of("train"),
              ElementsAre("Most used options", "Model and inputs", "Mesh and layout", "Training", "Training data",
                          "Evaluation", "Checkpoints", "Measurement", "Ranks", "Memory", "Output and logs"));
  EXPECT_THAT(options_under("Evaluation", "train"),
              ElementsAre("--eval-data", "--held-out", "--eval-every", "--eval-steps"));
}

TEST_F(Help, begins_with_the_options_that_people_use_first) {
  EXPECT_THAT(options_under("Most used options", "run"),
              ElementsAre("--mesh", "--preset", "--annotate", "--shapes", "--inputs", "--outputs", "--fetch", "--dtype",
                          "--threads", "--memory-limit"));
  for (const std::string command : {"run", "generate", "train", "shard", "verify", "bench"})
    EXPECT_THAT(options_under("Most used options", command), SizeIs(10)) << command;
}

TEST_F(Help, shows_every_option_under_a_heading) {
  for (const std::string& command : kCommands) {
    const std::string help = tessera(command + " --help").out;
    EXPECT_THAT(help, Not(HasSubstr("\nOptions:"))) << command;
    EXPECT_THAT(options_under("Output and logs", command), testing::IsSupersetOf({"--json", "--quiet", "--help"}));
  }
}

TEST_F(Help, fits_a_terminal_of_100_columns) {
  for (const std::string& command : kCommands)
    EXPECT_THAT(lines_of(command),
                Each(testing::ResultOf([](const std::string& line) { return line.size(); }, testing::Le(100))))
        << command;
}

TEST_F(Help, says_what_an_option_takes) {
  const std::string help = tessera("run --help").out;
  EXPECT_THAT(help, AllOf(HasSubstr("  --mesh AXES "), HasSubstr("  --ring-attention auto|always|never\n"),
                          HasSubstr("  --timeout SECONDS "), HasSubstr("[default: 60]")));
  EXPECT_THAT(mistake("run " + model_ + " --ring-attention maybe"),
              HasSubstr("--ring-attention: 'maybe' must be one of auto, always, never"));
}

}  // namespace
}  // namespace tessera
