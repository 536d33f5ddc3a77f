// Training on ranks that are processes: the same figures, parameters and checkpoints as on threads; what happens when a
// rank dies, and when one is told to stop.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "launchers.h"
#include "processes_with.h"
#include "sample.h"
#include "started.h"
#include "tessera/io/npz.h"

namespace tessera {
namespace {

using nlohmann::json;
using test::Ran;
using test::run_command;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing_io::contents;
using testing_io::TemporaryFolder;

class TrainOnEngine : public testing::TestWithParam<test::Launcher> {
 protected:
  void SetUp() override {
    if (const std::string why = test::missing(GetParam().engine, folder_); !why.empty()) GTEST_SKIP() << why;
    std::filesystem::create_directory(folder_ / "tmp");
  }
  bool is(const test::Launcher& launcher) const { return GetParam().engine == launcher.engine; }
  std::string at(const std::string& name) const { return (folder_ / name.c_str()).string(); }
  static std::string command(const std::string& words) {
    return std::string(TESSERA_BINARY) + " train " + TESSERA_TEST_DATA + "/models/training/gpt/model.onnx " + words;
  }
  // Bounded: a run that hangs has the code 124.
  std::string launched(const std::string& words, const std::string& variables = "", int ranks = 2) const {
    return "timeout -k 1 100 env TMPDIR=" + at("tmp") + " OMPI_MCA_btl_vader_backing_directory=" + at("tmp") + " " +
           variables + " " + GetParam().start(ranks, command(words));
  }
  Ran launch(const std::string& words, const std::string& variables = "", int ranks = 2) const {
    return run_command(launched(words, variables, ranks), folder_);
  }
  /// In a sample, engines take turns: by two turns that follow each other, an engine takes two meshes.
  std::vector<std::string> sampled(const std::vector<std::string>& meshes, size_t turn) const {
    return test::one_in(meshes.size(), meshes, turn + engine());
  }
  size_t engine() const { return is(test::kSpawn) ? 0 : is(test::kMpirun) ? 1 : 2; }
  Ran on_threads(const std::string& words) const { return run_command(command(words), folder_); }
  void write_text() const {
    std::ofstream text(at("text.txt"));
    for (int i = 0; i < 400; ++i) text << "line " << i * 7919 % 1000 << " of a text to learn from\n";
  }
  std::vector<json> figures(const std::string& name) const {
    std::ifstream file(at(name));
    std::vector<json> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
    return lines;
  }

  TemporaryFolder folder_;
  const std::string data_ = std::string("--data ") + TESSERA_TEST_DATA + "/models/training/gpt/data.npz --clip 1 ";
};

INSTANTIATE_TEST_SUITE_P(Engines, TrainOnEngine, testing::Values(test::kSpawn, test::kMpirun, test::kTorchrun),
                         test::engine_of);

// The process of a rank, by what its launcher has put into its environment.
pid_t process_of(const TemporaryFolder& folder, int rank) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (std::chrono::steady_clock::now() < deadline)
    for (const pid_t process : test::processes_with(folder.path().string())) {
      const std::filesystem::path entry = "/proc/" + std::to_string(process);
      const std::string variables = '\0' + test::contents_in_proc(entry / "environ");
      for (const std::string name : {"TESSERA_RANK", "OMPI_COMM_WORLD_RANK", "RANK"})
        if (variables.find('\0' + name + "=" + std::to_string(rank) + '\0') != std::string::npos) return process;
    }
  ADD_FAILURE() << "there is no process of rank " << rank;
  return -1;
}

bool appears(const std::filesystem::path& path) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < deadline) {
    if (std::filesystem::exists(path) && std::filesystem::file_size(path) > 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// Between two ranks all engines give the same bits (docs/engines.md).
TEST_P(TrainOnEngine, gives_the_losses_and_parameters_of_threads) {
  for (const std::string& mesh : sampled({"dp=2", "fsdp=2"}, 0)) {
    SCOPED_TRACE(mesh);
    const std::string words = data_ + "--steps 5 --threads 1 --mesh " + mesh + " ";
    ASSERT_EQ(on_threads(words + "--metrics threads.jsonl --save-final threads.npz").code, 0);
    const Ran ran = launch(words + "--metrics ranks.jsonl --save-final ranks.npz --tensorboard events." + mesh);
    ASSERT_EQ(ran.code, 0) << ran.err;
    EXPECT_EQ(ran.out.find("wrote ranks.npz"), ran.out.rfind("wrote ranks.npz")) << "one rank writes";
    EXPECT_EQ(contents(at("threads.npz")), contents(at("ranks.npz")));
    const std::vector<json> own = figures("threads.jsonl"), all = figures("ranks.jsonl");
    ASSERT_EQ(all.size(), 5u);
    for (size_t i = 0; i < 5; ++i)
      for (const char* key : {"step", "loss", "grad_norm", "lr", "peak_bytes"}) EXPECT_EQ(all[i][key], own[i][key]);
    const auto events = std::filesystem::directory_iterator(folder_ / ("events." + mesh).c_str());
    EXPECT_EQ(std::distance(begin(events), end(events)), 1);
  }
}

// Sums of more than two addends have the same order in a bucket as alone, whoever adds.
TEST_P(TrainOnEngine, gives_the_same_bits_in_buckets_of_any_size) {
  size_t turn = engine();
  for (const std::string mesh : {"dp=3", "fsdp=3", "dp=3 --preset zero2"}) {
    SCOPED_TRACE(mesh);
    std::string alone;
    std::vector<std::string> sizes = {"0"};
    for (const std::string& bytes : test::one_in<std::string>(2, {"48K", "2M"}, turn++)) sizes.push_back(bytes);
    for (const std::string& bytes : sizes) {
      const std::string words = data_ + "--steps 3 --threads 1 --mesh " + mesh + " --bucket-bytes " + bytes;
      const Ran ran = launch(words + " --save-final after.npz", "", 3);
      ASSERT_EQ(ran.code, 0) << ran.err;
      const std::string made = contents(at("after.npz"));
      if (alone.empty()) alone = made;
      EXPECT_EQ(made, alone) << bytes;
    }
  }
}

// A step and its evaluation store a state alike, though each alone would not on these meshes.
TEST_P(TrainOnEngine, evaluates_as_on_threads) {
  for (const std::string& mesh : sampled({"fsdp=2,tp=2", "dp=2,tp=2 --preset zero1+megatron+sequence"}, 0)) {
    SCOPED_TRACE(mesh);
    const std::string words = data_ + "--eval-data " + TESSERA_TEST_DATA + "/models/training/gpt/data.npz " +
                              "--eval-steps 1 --eval-every 1 --steps 2 --threads 1 --json --mesh " + mesh;
    const Ran threads = on_threads(words), ranks = launch(words, "", 4);
    ASSERT_EQ(threads.code, 0) << threads.err;
    ASSERT_EQ(ranks.code, 0) << ranks.err;
    const json own = json::parse(threads.out).at("evaluations"), all = json::parse(ranks.out).at("evaluations");
    ASSERT_EQ(all.size(), 2u);
    for (size_t i = 0; i < 2; ++i)
      EXPECT_NEAR(all[i].at("loss").get<double>(), own[i].at("loss").get<double>(), 1e-5) << i;
  }
}

TEST_P(TrainOnEngine, goes_on_from_its_checkpoints) {
  for (const std::string& mesh : sampled({"dp=2", "fsdp=2"}, 1)) {
    SCOPED_TRACE(mesh);
    const std::string words = data_ + "--threads 1 --mesh " + mesh + " ", run = "run." + mesh;
    ASSERT_EQ(on_threads(words + "--steps 6 --save-final whole.npz").code, 0);
    const std::string saved = "--checkpoints " + run + " --metrics m.jsonl ";
    Ran ran = launch(words + saved + "--steps 4 --save-every 2");
    ASSERT_EQ(ran.code, 0) << ran.err;
    std::set<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / (run + "/step-000004").c_str()))
      files.insert(entry.path().filename());
    EXPECT_EQ(files, (std::set<std::string>{"checkpoint.json", "rank-0.bin", "rank-1.bin"}));
    ran = launch(words + saved + "--steps 6 --resume --save-final again.npz");
    ASSERT_EQ(ran.code, 0) << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("goes on from " + run + "/step-000004"));
    EXPECT_EQ(contents(at("whole.npz")), contents(at("again.npz")));
    const std::vector<json> all = figures("m.jsonl");
    ASSERT_EQ(all.size(), 6u);
    for (size_t i = 0; i < 6; ++i) EXPECT_EQ(all[i]["step"], i);
    // A rank that chose a checkpoint by itself could choose another.
    ran = launch(words + saved + "--steps 8");
    EXPECT_EQ(ran.code, 2);
    EXPECT_THAT(ran.err, HasSubstr("has checkpoints of another run, the last one of step 6; give --resume"));
  }
}

#ifdef TESSERA_SLOW_DISK
const std::string kDiskOfRank1 = "LD_PRELOAD=" TESSERA_SLOW_DISK " TESSERA_DISK_FILE=rank-1.bin ";

// The disk holds rank 1's writing up.
TEST_P(TrainOnEngine, trains_on_while_a_checkpoint_is_written) {
  testing_io::put(at("held"), "");
  const pid_t child = test::start(
      folder_, {"/bin/sh", "-c",
                "exec " +
                    launched(data_ + "--steps 4 --mesh fsdp=2 --threads 1 --save-every 2 --checkpoints run " +
                                 "--metrics m.jsonl --timeout 5",
                             kDiskOfRank1 + "TESSERA_DISK_HELD=" + at("held")) +
                    " >out 2>err"});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (figures("m.jsonl").size() < 4 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(figures("m.jsonl").size(), 4u) << contents(at("err"));
  // Longer than ranks wait for each other: they hear that the other one is not done.
  std::this_thread::sleep_for(std::chrono::seconds(7));
  EXPECT_FALSE(std::filesystem::exists(at("run/step-000002"))) << "rank 1 has not written";
  std::filesystem::remove(at("held"));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << contents(at("err"));
  EXPECT_TRUE(std::filesystem::exists(at("run/step-000002/checkpoint.json")));
  EXPECT_TRUE(std::filesystem::exists(at("run/step-000004/checkpoint.json")));
}

// One rank's disk fails, and both ranks go on. The last states are then in the parameters, or nowhere.
TEST_P(TrainOnEngine, trains_on_if_one_rank_cannot_write) {
  const std::string words = data_ + "--steps 4 --mesh fsdp=2 --threads 1 --save-every 2 --checkpoints run --timeout 5 ";
  Ran ran = launch(words + "--quiet --save-final after.npz", kDiskOfRank1);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.err, AllOf(HasSubstr("the checkpoint: rank 1: "), HasSubstr("rank-1.bin: Input/output error"),
                             HasSubstr("training goes on")));
  EXPECT_TRUE(std::filesystem::is_empty(at("run")));
  ran = launch(words, kDiskOfRank1);
  EXPECT_NE(ran.code, 0);
  EXPECT_THAT(ran.err, HasSubstr("the states after step 4 are saved nowhere: rank 1: "));
}
#endif

// A second run leaves the folder to the first, whatever its ranks are.
TEST_P(TrainOnEngine, keeps_other_runs_out_of_its_folder) {
  std::ofstream(at("text.txt")) << std::string(10'000, 'a');
  const std::string words = "--data " + at("text.txt") + " --sequence 16 --batch 4 --mesh dp=2 --threads 1 ";
  const pid_t child = test::start(
      folder_, {"/bin/sh", "-c",
                "exec " + launched(words + "--steps 1000000 --checkpoints run --metrics first") + " >out 2>err"});
  ASSERT_TRUE(appears(at("first"))) << contents(at("err"));
  const Ran ran = launch(words + "--steps 1 --resume --checkpoints run --metrics second --emit step.onnx");
  EXPECT_NE(ran.code, 0);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("run is being written by process "), HasSubstr(" on host ")));
  for (const char* file : {"second", "step.onnx"}) EXPECT_FALSE(std::filesystem::exists(at(file))) << file;
  ASSERT_EQ(kill(process_of(folder_, 0), SIGTERM), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(std::filesystem::exists(at("run/.lock")));
}

TEST_P(TrainOnEngine, names_the_rank_that_died_and_goes_on_with_fewer) {
  // A busy machine may hold a rank up for longer than 5 s; nobody waits for the timeout where a rank dies.
  const std::string words = data_ + "--steps 20 --threads 1 --timeout 30 --checkpoints run ";
  ASSERT_EQ(on_threads(data_ + "--steps 20 --mesh fsdp=2 --threads 1 --save-final whole.npz").code, 0);
  const auto start = std::chrono::steady_clock::now();
  // In the midst of a step, after some checkpoints, and late enough that rank 0 waits for it, also on a busy machine.
  Ran ran = launch(words + "--mesh fsdp=2 --save-every 1 --flight-record flight.json",
                   "TESSERA_FAULT=rank=1,operation=400,after=1500,do=die");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
  EXPECT_THAT(ran.code, Not(AnyOf(0, 2, 124))) << ran.err;
  EXPECT_THAT(ran.err, AnyOf(HasSubstr("rank 1 died"), HasSubstr("rank 1 has died"), HasSubstr("process rank 1"),
                             HasSubstr("1],1]")));
  if (!is(test::kSpawn)) {  // whose parent process knows how a rank ended
    // mpirun's signal may come first, or find a rank that cannot look.
    EXPECT_THAT(ran.err, AnyOf(AllOf(HasSubstr("rank 1 has died"), HasSubstr("rank 0 waited at"),
                                     HasSubstr("missing: rank 1; arrived: rank 0")),
                               AllOf(HasSubstr("rank 0 was in"), HasSubstr("(#"))));
    const json flight = json::parse(contents(at("flight.json")))["ranks"][0];
    EXPECT_EQ(flight["rank"], 0);
    const json& communications = flight["communications"];
    EXPECT_TRUE(std::any_of(communications.begin(), communications.end(), [](const json& entry) {
      return entry["state"] == "waiting";
    })) << flight;
  }
  EXPECT_THAT(test::processes_with(folder_.path().string()), IsEmpty());
  ran = on_threads(words + "--resume --save-final one.npz");
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("goes on from run/step-0000"));
  const auto whole = read_npz(at("whole.npz")), one = read_npz(at("one.npz"));
  for (const auto& [name, tensor] : whole)
    for (int64_t i = 0; i < tensor.count(); ++i)
      ASSERT_NEAR(one.at(name).as<float>()[i], tensor.as<float>()[i], 2e-5) << name;  // as on any other mesh
}

TEST_P(TrainOnEngine, saves_and_leaves_on_all_ranks_when_one_is_told_to_stop) {
  write_text();
  for (const int rank : {0, 1}) {
    SCOPED_TRACE(rank);
    const std::string run = at("run" + std::to_string(rank)), metrics = at("metrics" + std::to_string(rank));
    const pid_t child = test::start(
        folder_, {"/bin/sh", "-c",
                  "exec " +
                      launched("--data " + at("text.txt") + " --sequence 16 --batch 4 --mesh dp=2 --steps 1000000 " +
                               "--threads 1 --checkpoints " + run + " --metrics " + metrics) +
                      " >out 2>err"});
    ASSERT_TRUE(appears(metrics)) << contents(at("err"));
    const pid_t process = process_of(folder_, rank);
    ASSERT_GT(process, 0);
    ASSERT_EQ(kill(process, SIGTERM), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 4) << contents(at("err"));
    EXPECT_THAT(contents(at("err")), HasSubstr("stopped by a signal after step"));
    const Ran ran = on_threads("--data " + at("text.txt") + " --sequence 16 --batch 4 --resume --checkpoints " + run +
                               " --steps " + std::to_string(figures("metrics" + std::to_string(rank)).size() + 1));
    EXPECT_EQ(ran.code, 0) << ran.err;
  }
}

// mpirun passes this one on, and does not kill a second later. In the shell that stands in for torchrun, nobody does.
TEST_P(TrainOnEngine, saves_and_leaves_when_its_launcher_passes_a_signal_on) {
  if (is(test::kTorchrun)) GTEST_SKIP() << "torchrun passes only SIGTERM and SIGINT on";
  write_text();
  const std::string words =
      "--data text.txt --sequence 16 --batch 4 --mesh dp=2 --steps 1000000 --threads 1 "
      "--checkpoints run --metrics metrics";
  const pid_t child = test::start(folder_, {"/bin/sh", "-c", "exec " + launched(words) + " >out 2>err"});
  ASSERT_TRUE(appears(at("metrics"))) << contents(at("err"));
  const std::string parent = std::to_string(child);  // timeout, which has started the launcher
  const std::string launcher = contents("/proc/" + parent + "/task/" + parent + "/children");
  ASSERT_EQ(kill(std::stoi(launcher), SIGUSR1), 0) << launcher;
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 4) << contents(at("err"));
  EXPECT_THAT(contents(at("err")), HasSubstr("stopped by a signal after step"));
  EXPECT_TRUE(std::filesystem::exists(at("run")));
}

// A signal that comes after the last step has cut nothing short.
TEST_P(TrainOnEngine, is_good_if_it_is_told_to_stop_after_its_last_step) {
  std::ofstream(at("text.txt")) << std::string(400'000, 'a');
  const pid_t child = test::start(
      folder_, {"/bin/sh", "-c",
                "exec " +
                    launched("--data " + at("text.txt") + " --sequence 16 --batch 4 --mesh dp=2 --steps 1 " +
                             "--threads 1 --held-out 0.5 --eval-steps 200 --metrics " + at("metrics")) +
                    " >out 2>err"});
  ASSERT_TRUE(appears(at("metrics"))) << contents(at("err"));
  const pid_t process = process_of(folder_, 1);
  ASSERT_GT(process, 0);
  ASSERT_EQ(kill(process, SIGTERM), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0) << contents(at("err"));
  EXPECT_THAT(contents(at("out")), HasSubstr("evaluation after step 1"));
}

}  // namespace
}  // namespace tessera
