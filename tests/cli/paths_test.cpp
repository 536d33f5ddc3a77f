// Outputs that are inputs, or each other: refused by every command for every two of its options, before anything is
// touched. And files that become shorter while they are read.
#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "cli/command_line.h"
#include "cli/started.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::IsEmpty;

/// An option that names paths, as --help shows it.
struct PathOption {
  std::string name, kind;  ///< "--metrics", "OUTPUT"; a positional one is "model"
};

class Paths : public CommandLine {
 protected:
  std::string at(const std::string& name) const { return (folder_ / name.c_str()).string(); }

  /// The options of a command with their descriptions, as --help prints them.
  std::vector<std::string> help_of(const std::string& command) {
    std::istringstream help(tessera(command + " --help").out);
    std::vector<std::string> entries;
    const std::regex begins("^  (-|[a-z]+ [A-Z]).*");
    for (std::string line; std::getline(help, line);) {
      if (std::regex_match(line, begins))
        entries.push_back(line);
      else if (!entries.empty())
        entries.back() += " " + line;
    }
    return entries;
  }

  std::vector<PathOption> path_options(const std::string& command) {
    std::vector<PathOption> options;
    const std::regex shape("^  (?:-[a-z], )?((?:--)?[a-z-]+) (INPUT|OUTPUT|FOLDER)\\b");
    for (const std::string& entry : help_of(command))
      if (std::smatch found; std::regex_search(entry, found, shape)) options.push_back({found[1], found[2]});
    if (command == "train") options.push_back({"--lr", "INPUT"});
    return options;
  }

  // The words that give an option the path.
  static std::string given(const PathOption& option, const std::string& path) {
    if (!option.name.starts_with("--")) return " " + path;
    const std::map<std::string, std::string> before = {{"--beside", "MPI="}, {"--lr", "@"}};
    const auto found = before.find(option.name);
    return " " + option.name + " " + (found == before.end() ? "" : found->second) + path;
  }

  // What the command needs beside.
  static std::string others(const std::string& command, const PathOption& a, const PathOption& b) {
    std::string words;
    const auto has = [&](const char* name) { return a.name == name || b.name == name; };
    if (command == "bench comm") words += " --mesh dp=2";
    if (!has("model") && !has("program") && !has("schedule") && command != "bench comm") words += " other.onnx";
    if (command == "explain") words += " tensor";
    if ((command == "annotate" || command == "infer") && !has("--output")) words += " -o another.onnx";
    return words;
  }
};

// The table of what is compared comes from --help; whatever speaks of files there must be in it.
TEST_F(Paths, are_all_known_to_be_some) {
  const std::set<std::string> others = {"--configuration", "--steps", "--held-out", "tensor"};
  for (const std::string& command : kCommands)
    for (const std::string& entry : help_of(command)) {
      std::smatch found;
      ASSERT_TRUE(std::regex_search(entry, found, std::regex("^  (?:-[a-z], )?([a-z-]+)"))) << entry;
      if (std::regex_search(entry, std::regex("\\b(INPUT|OUTPUT|FOLDER)\\b"))) continue;
      if (others.contains(found[1])) continue;
      EXPECT_FALSE(std::regex_search(entry, std::regex("\\b(file|folder)\\b"))) << command << ": " << entry;
    }
}

TEST_F(Paths, of_two_options_must_not_be_one_if_either_is_written) {
  testing_io::put(at("one.npz"), "precious");
  fs::create_symlink("one.npz", at("soft.npz"));
  fs::create_hard_link(at("one.npz"), at("hard.npz"));
  fs::create_directory(at("sub"));
  const std::vector<std::string> names = {"./one.npz", "sub/../one.npz", "soft.npz", "hard.npz"};
  size_t pairs = 0;
  for (const std::string& command : kCommands) {
    const std::vector<PathOption> options = path_options(command);
    for (size_t i = 0; i < options.size(); ++i)
      for (size_t j = i + 1; j < options.size(); ++j) {
        const PathOption &a = options[i], &b = options[j];
        if (a.kind == "INPUT" && b.kind == "INPUT") continue;
        const bool both_are_added_to = command == "train" && a.kind == "FOLDER" && b.kind == "FOLDER";
        if (both_are_added_to) continue;
        const std::string& other = names[pairs++ % names.size()];
        const std::string words = command + given(a, "one.npz") + given(b, other) + others(command, a, b);
        EXPECT_THAT(mistake(words), AllOf(HasSubstr("[paths] "), HasSubstr(a.name + " '"), HasSubstr(b.name + " '"),
                                          HasSubstr(" would overwrite ")))
            << words;
      }
  }
  EXPECT_GT(pairs, 100u);
  EXPECT_EQ(contents(at("one.npz")), "precious");
}

TEST_F(Paths, that_do_not_exist_yet_are_compared_too) {
  fs::create_symlink("later.npz", at("link.npz"));
  const std::string words = "train " + model_ + " --data x.npz ";
  for (const std::string pair :
       {"--metrics new.npz --save-final ./new.npz", "--metrics later.npz --save-final link.npz",
        "--profile out/new --emit out/../out/new", "--save-final new.onnx --profile new.onnx.data"})
    EXPECT_THAT(mistake(words + pair), HasSubstr(" would overwrite ")) << pair;
  EXPECT_FALSE(fs::exists(at("later.npz")));
}

TEST_F(Paths, in_folders_must_not_be_lost_with_them) {
  fs::create_directories(at("program/inputs"));
  testing_io::put(at("program/model.onnx"), contents(model_));
  EXPECT_THAT(mistake("shard program/model.onnx --mesh tp=2 -o program"),
              HasSubstr("--output 'program' would replace the folder of model 'program/model.onnx'"));
  EXPECT_THAT(mistake("run " + model_ + " --inputs program/inputs --outputs program/inputs/y.npz"),
              HasSubstr("--outputs 'program/inputs/y.npz' would go into --inputs 'program/inputs'"));
}

// Only its own files are a program's.
TEST_F(Paths, beside_a_programs_files_are_free) {
  ASSERT_EQ(tessera("shard " + model_ + " --mesh tp=2 --shapes batch=4 -o program").code, 0);
  npz("x.npz", "x", test::ramp({4, 8}));
  for (int time = 0; time < 2; ++time) {
    const Ran ran = tessera("run program --inputs x.npz --outputs program/y.npz --quiet");
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_EQ(tessera("annotate " + model_ + " --mesh tp=2 -o program/next.onnx --quiet").code, 0);
  }
  for (const std::string own : {"manifest.json", "rank_0.onnx", "weights/0.bin"}) {
    const std::string before = contents(at("program/" + own));
    EXPECT_THAT(mistake("run program --outputs program/" + own), HasSubstr(" would overwrite model ")) << own;
    EXPECT_EQ(contents(at("program/" + own)), before);
  }
}

TEST_F(Paths, of_a_configuration_are_compared) {
  testing_io::put(at("config.json"), R"({"data": "x.npz", "metrics": "./x.npz"})");
  testing_io::put(at("x.npz"), "precious");
  EXPECT_THAT(mistake("train " + model_ + " --config config.json"),
              HasSubstr("--metrics './x.npz' would overwrite --data 'x.npz'"));
  EXPECT_THAT(mistake("train " + model_ + " --data 'a.txt:0.5,x.npz:uint8:0.5' --metrics x.npz"),
              HasSubstr("--metrics 'x.npz' would overwrite --data 'x.npz'"));
  EXPECT_EQ(contents(at("x.npz")), "precious");
}

TEST_F(Paths, of_one_run_may_share_a_folder) {
  fs::create_directory(at("run"));
  const std::string mlp = std::string(TESSERA_TEST_DATA) + "/models/training/mlp/";
  const Ran ran = tessera("train " + mlp + "model.onnx --data " + mlp +
                          "data.npz --loss mse --labels target --steps 1 --checkpoints run --tensorboard run " +
                          "--metrics run/m.jsonl --save-final run/final.npz");
  EXPECT_EQ(ran.code, 0) << ran.err;
}

// The model alone names the file of its tensors.
TEST_F(Paths, of_a_models_tensors_are_inputs) {
  OnnxModel model = parse_text(kPair);
  for (Value* state : model.graph->values_of(ValueKind::state)) state->data = test::ramp(state->data.dims);
  ExportOptions options;
  options.external_threshold = 0;
  options.external_file = "tensors.npz";
  export_model(model, at("outside.onnx"), options);
  const std::string tensors = contents(at("tensors.npz"));
  npz("data.npz", "x", test::ramp({2, 4, 8}));
  for (const char* command :
       {"run outside.onnx --shapes batch=4 --outputs ", "run outside.onnx --shapes batch=4 --save-states ",
        "bench outside.onnx --shapes batch=4 --profile ", "annotate outside.onnx --mesh tp=2 -o ",
        "generate outside.onnx --ids 1 --outputs ", "train outside.onnx --loss mean --data data.npz --metrics ",
        "train outside.onnx --loss mean --data data.npz --save-final "}) {
    EXPECT_THAT(mistake(std::string(command) + "tensors.npz --quiet"),
                HasSubstr("tensors.npz is read by this command; name another path"))
        << command;
    EXPECT_EQ(contents(at("tensors.npz")), tensors);
  }
  EXPECT_THAT(mistake("train outside.onnx --loss mean --dry-run --shapes batch=4 --quiet --memory-plan tensors.npz"),
              HasSubstr("tensors.npz is read by this command; name another path"));
  EXPECT_EQ(contents(at("tensors.npz")), tensors);
}

// An ONNX file's tensors go beside it.
TEST_F(Paths, of_an_outputs_tensors_must_not_be_inputs) {
  OnnxModel model = parse_text(kPair);
  for (Value* state : model.graph->values_of(ValueKind::state)) state->data = test::ramp(state->data.dims);
  ExportOptions options;
  options.external_threshold = 0;
  options.external_file = "out.onnx.data";
  export_model(model, at("outside.onnx"), options);
  const std::string tensors = contents(at("out.onnx.data"));
  npz("data.npz", "x", test::ramp({2, 4, 8}));
  for (const char* command : {"annotate outside.onnx --mesh tp=2 -o out.onnx",
                              "train outside.onnx --loss mean --data data.npz --emit out.onnx",
                              "train outside.onnx --loss mean --data data.npz --save-final out.onnx"}) {
    EXPECT_THAT(mistake(std::string(command) + " --quiet"),
                HasSubstr("out.onnx.data is read by this command; name another path than out.onnx"))
        << command;
    EXPECT_EQ(contents(at("out.onnx.data")), tensors);
  }
}

// A page that is gone is a SIGBUS otherwise.
TEST_F(Paths, that_become_shorter_while_they_are_read_are_named) {
  const std::string gpt = std::string(TESSERA_TEST_DATA) + "/models/training/gpt/model.onnx";
  std::ofstream(at("text.txt")) << std::string(400'000, 'a');
  const pid_t child = test::start(
      folder_, {"/bin/sh", "-c",
                "exec " + std::string(TESSERA_BINARY) + " train " + gpt +
                    " --data text.txt --sequence 16 --batch 4 --steps 1000000 --threads 1 --metrics m >out 2>err"});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (contents(at("m")).empty() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  fs::resize_file(at("text.txt"), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
  EXPECT_THAT(contents(at("err")), HasSubstr("'text.txt' has become shorter while it was read"));
}

}  // namespace
}  // namespace tessera
