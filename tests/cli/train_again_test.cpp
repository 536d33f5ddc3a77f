// A training command that is given again: after it has ended, after it was killed wherever it was, while another one
// writes to the same folder, and where its states could not be saved.
#include <fcntl.h>

#include <cstring>
#include <fstream>
#include <set>

#include "cli/command_line.h"
#include "sample.h"
#include "tessera/base/descriptor.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::IsEmpty;

class TrainAgain : public CommandLine {
 protected:
  const std::string mlp_ = std::string(TESSERA_TEST_DATA) + "/models/training/mlp/";
  static constexpr int kSteps = 4;
  const std::string unbounded_ = "train " + mlp_ + "model.onnx --data " + mlp_ +
                                 "data.npz --loss mse --labels target " + "--threads 1 --eval-data " + mlp_ +
                                 "data.npz --eval-steps 1 --save-every 1 --keep 2 ";
  const std::string words_ = unbounded_ + "--steps " + std::to_string(kSteps) + " ";

  std::string at(const std::string& name) { return (folder_ / name.c_str()).string(); }

  /// All that a run leaves goes to a folder of its own.
  std::string command(const std::string& out) const {
    return words_ + "--resume --checkpoints " + out + "/run --save-final " + out + "/final.npz --metrics " + out +
           "/m.jsonl ";
  }

  std::set<std::string> left_in(const std::string& out) {
    std::set<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(at(out)))
      names.insert(fs::relative(entry.path(), at(out)).string());
    return names;
  }

  /// The figures of each step without its times.
  std::vector<json> metrics(const std::string& out) {
    std::ifstream file(at(out + "/m.jsonl"));
    std::vector<json> lines;  // none if there is no such file
    for (std::string line; std::getline(file, line);) {
      json object = json::parse(line);
      object.erase("tokens_per_s");
      object.erase("mfu");
      lines.push_back(object);
    }
    return lines;
  }

  void expect_same_results(const std::string& out, const std::string& expected) {
    EXPECT_EQ(contents(at(out + "/final.npz")), contents(at(expected + "/final.npz")));
    EXPECT_EQ(metrics(out), metrics(expected));
    EXPECT_EQ(left_in(out), left_in(expected));
  }

  void run_whole(const std::string& out) {
    fs::create_directory(at(out));
    const Ran ran = tessera(command(out));
    ASSERT_EQ(ran.code, 0) << ran.err;
    ASSERT_EQ(metrics(out).size(), static_cast<size_t>(kSteps));
  }
};

TEST_F(TrainAgain, writes_what_a_finished_run_owes) {
  run_whole("whole");
  const double evaluation = parsed(words_ + "--mesh dp=2").at("evaluations").at(0).at("loss");
  for (const std::string mesh : {"", "--mesh dp=2 ", "--mesh dp=2 --spawn 2 "}) {
    SCOPED_TRACE(mesh);
    fs::remove_all(at("again"));
    fs::copy(at("whole"), at("again"), fs::copy_options::recursive);
    fs::remove(at("again/final.npz"));
    const json answer = parsed(command("again") + mesh);
    expect_same_results("again", "whole");
    EXPECT_THAT(answer.at("losses"), IsEmpty());
    EXPECT_EQ(answer.at("resumed_at"), kSteps);
    ASSERT_EQ(answer.at("evaluations").size(), 1u);
    EXPECT_EQ(answer.at("evaluations")[0].at("step"), kSteps);
    EXPECT_NEAR(answer.at("evaluations")[0].at("loss").get<double>(), evaluation, 1e-5 * evaluation);
  }
  EXPECT_THAT(mistake(unbounded_ + "--quiet --resume --steps 2 --checkpoints " + at("whole/run")),
              HasSubstr("has made more than the 2 steps of this run; give a larger --steps"));
}

// An evaluation in the midst is owed, too.
TEST_F(TrainAgain, evaluates_where_the_killed_run_did_not) {
  ASSERT_EQ(tessera(words_ + "--checkpoints run").code, 0);
  fs::remove_all(at("run/step-000004"));
  const json answer = parsed(words_ + "--eval-every 3 --resume --checkpoints run");
  ASSERT_EQ(answer.at("evaluations").size(), 2u);
  EXPECT_EQ(answer.at("evaluations")[0].at("step"), 3);
  EXPECT_EQ(answer.at("evaluations")[1].at("step"), 4);
}

#ifdef TESSERA_KILLED_AT
// Killed at one of its writes to files and folders, whichever. Then the same command is given again.
TEST_F(TrainAgain, ends_as_if_it_had_never_been_killed) {
  // A run that notes metrics first measures the machine, for a second.
  for (const auto& [metrics, stride] :
       {std::pair("", test::sample(13, 3)), std::pair("--metrics m.jsonl", test::sample(37, 11))}) {
    SCOPED_TRACE(metrics);
    const auto command_in = [&, options = std::string(metrics)](const std::string& out) {
      return "(cd " + out + " && exec env LD_PRELOAD=" TESSERA_KILLED_AT " " + TESSERA_BINARY + " " + words_ +
             "--resume --checkpoints run --save-final final.npz " + options + ")";
    };
    fs::remove_all(at("whole"));
    fs::create_directory(at("whole"));
    const Ran whole = test::run_command(command_in("whole"), folder_);
    ASSERT_EQ(whole.code, 0) << whole.err;
    int kills = 0;
    for (int call = 1;; call += stride) {
      SCOPED_TRACE(call);
      fs::remove_all(at("killed"));
      fs::create_directory(at("killed"));
      const Ran killed =
          test::run_command("export TESSERA_KILLED_AT=" + std::to_string(call) + "; " + command_in("killed"), folder_);
      if (killed.code == 0) break;
      ++kills;
      const Ran ran = test::run_command(command_in("killed"), folder_);
      ASSERT_EQ(ran.code, 0) << ran.err;
      expect_same_results("killed", "whole");
    }
    EXPECT_GT(kills, 2);
  }
}
#endif

TEST_F(TrainAgain, leaves_a_folder_to_the_run_that_writes_there) {
  fs::create_directory(at("run"));
  testing_io::put(at("run/.lock"), "process 7 on host far");
  const Descriptor file(open(at("run/.lock").c_str(), O_RDWR | O_CLOEXEC));
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  ASSERT_EQ(fcntl(file.get(), F_OFD_SETLK, &whole), 0);
  for (const std::string mesh : {"", "--mesh dp=2 --spawn 2 "}) {
    const std::string error =
        mistake(words_ + mesh + "--quiet --resume --checkpoints run --metrics m --emit step.onnx");
    EXPECT_THAT(error, AllOf(HasSubstr("run is being written by process 7 on host far"), HasSubstr("another folder")));
  }
  for (const char* written : {"m", "step.onnx", "run/step-000001"}) EXPECT_FALSE(fs::exists(at(written))) << written;
}

// Each run has an identity, also when it goes on from another.
TEST_F(TrainAgain, names_the_run_in_its_checkpoints) {
  ASSERT_EQ(tessera(unbounded_ + "--steps 2 --checkpoints run").code, 0);
  ASSERT_EQ(tessera(unbounded_ + "--steps 3 --resume --checkpoints run --mesh fsdp=2 --spawn 2").code, 0);
  const auto run_of = [&](const std::string& step) {
    return json::parse(contents(at("run/" + step + "/checkpoint.json"))).at("run").get<std::string>();
  };
  EXPECT_EQ(run_of("step-000002").size(), 16u);
  EXPECT_NE(run_of("step-000002"), run_of("step-000003"));
  for (const char* file : {"rank-0.bin", "rank-1.bin"})
    EXPECT_THAT(contents(at(std::string("run/step-000003/") + file)), HasSubstr(run_of("step-000003")));
}

/// Adds the scalars of an events file to those of earlier ones, as TensorBoard does: "train/loss" of each step.
void add_events(const std::string& bytes, std::multiset<std::pair<std::string, int>>& shown) {
  constexpr size_t kLength = 8, kCrc = 4, kStep = 9;  // the step, below 128 here, is after the time
  for (size_t at = 0; at < bytes.size();) {
    uint64_t size = 0;
    std::memcpy(&size, bytes.data() + at, kLength);
    const std::string event = bytes.substr(at + kLength + kCrc, size);
    at += kLength + kCrc + size + kCrc;
    const bool has_step = event.at(kStep) == 0x10;
    const int step = has_step ? event.at(kStep + 1) : 0;
    if (event.at(kStep + (has_step ? 2 : 0)) == 0x3a)  // a session begins
      std::erase_if(shown, [&](const auto& scalar) { return scalar.second >= step; });
    for (const char* tag : {"train/loss", "evaluation/loss"})
      if (event.find(tag) != std::string::npos) shown.emplace(tag, step);
  }
}

TEST_F(TrainAgain, shows_each_event_once) {
  const std::string words = words_ + "--quiet --eval-every 2 --checkpoints run --tensorboard ";
  ASSERT_EQ(tessera(words + "first").code, 0);
  const auto events_in = [&](const char* folder) { return contents(fs::directory_iterator(at(folder))->path()); };
  const std::multiset<std::pair<std::string, int>> expected = {{"train/loss", 0},      {"train/loss", 1},
                                                               {"train/loss", 2},      {"train/loss", 3},
                                                               {"evaluation/loss", 2}, {"evaluation/loss", 4}};
  std::multiset<std::pair<std::string, int>> shown;
  add_events(events_in("first"), shown);
  EXPECT_EQ(shown, expected);
  for (const char* lost : {"", "run/step-000004", "run"}) {
    SCOPED_TRACE(lost);
    fs::remove_all(at("again"));
    if (*lost) fs::remove_all(at(lost));
    ASSERT_EQ(tessera(words + "again --resume").code, 0);
    add_events(events_in("again"), shown);
    EXPECT_EQ(shown, expected);
  }
}

TEST_F(TrainAgain, fails_if_the_last_states_are_nowhere) {
  const auto on_a_full_disk = [&](const std::string& words) {
    return test::run_command("(ulimit -f 1; exec " + std::string(TESSERA_BINARY) + " " + words_ + words + ")", folder_);
  };
  Ran ran = on_a_full_disk("--quiet --checkpoints run");
  EXPECT_EQ(ran.code, 3);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("warning: the checkpoint: "), HasSubstr("File too large; training goes on"),
                             HasSubstr("the states after step 4 are saved nowhere: ")));
  EXPECT_TRUE(fs::is_empty(at("run")));
  // What the run has shown is not lost with its states.
  ran = test::run_command(
      "(ulimit -f 1; exec " + std::string(TESSERA_BINARY) + " " + words_ + "--json --checkpoints run) 2>told | cat",
      folder_);
  const json answer = json::parse(ran.out, nullptr, false);
  ASSERT_TRUE(answer.is_object()) << ran.out;
  EXPECT_THAT(answer.at("error").get<std::string>(), HasSubstr("are saved nowhere"));
  EXPECT_EQ(answer.at("losses").size(), static_cast<size_t>(kSteps));
  ran = tessera(words_ + "--quiet --resume --checkpoints run");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.err, "");
}

// The model is the same.
TEST_F(TrainAgain, names_another_optimizer) {
  ASSERT_EQ(tessera(unbounded_ + "--steps 2 --optimizer sgd:momentum=0.9 --checkpoints run").code, 0);
  const std::string resumed = words_ + "--quiet --resume --checkpoints run ";
  EXPECT_THAT(
      mistake(resumed + "--optimizer adamw"),
      AllOf(HasSubstr("run/step-000002 was made with another optimizer: --optimizer is adamw and was "
                      "sgd:momentum=0.9; it has no '"),
            HasSubstr("', which this one keeps; give the same --optimizer"), testing::Not(HasSubstr("another model"))));
  EXPECT_THAT(mistake(resumed + "--optimizer sgd:momentum=0.9 --average 0.99"),
              HasSubstr("another optimizer: --average is 0.99 and was 0; it has no '"));
  EXPECT_THAT(mistake(resumed + "--optimizer sgd"), HasSubstr("--optimizer is sgd and was sgd:momentum=0.9; it has '"));
  EXPECT_EQ(tessera(resumed + "--optimizer sgd:momentum=0.8").code, 0) << "it keeps the same states";
}

TEST_F(TrainAgain, writes_parameters_in_the_forms_that_it_knows) {
  for (const char* option : {"--save-final", "--save-average"})
    for (const char* path : {"out.pt", "out", "out.npz.gz"})
      EXPECT_THAT(mistake(words_ + "--average 0.9 " + option + " " + path),
                  HasSubstr(std::string("'") + path + "' must end in .npz, .safetensors or .onnx"));
  EXPECT_FALSE(fs::exists(at("out.pt")));
}

TEST_F(TrainAgain, warns_of_a_damaged_checkpoint_even_if_it_is_quiet) {
  ASSERT_EQ(tessera(words_ + "--checkpoints run").code, 0);
  fs::resize_file(at("run/step-000004/rank-0.bin"), 100);
  const Ran ran = tessera(words_ + "--quiet --resume --checkpoints run");
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(ran.out, "");
  EXPECT_THAT(ran.err, AllOf(HasSubstr("warning: "), HasSubstr("step-000004/rank-0.bin: is truncated")));
}

}  // namespace
}  // namespace tessera
