// The same failures on every engine whose ranks are processes: the others end, say why, and leave nothing behind.
#include <gmock/gmock.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <tuple>

#include "api/small_model.h"
#include "launchers.h"
#include "processes_with.h"
#include "sample.h"
#include "tessera/io/npz.h"
#include "tessera/onnx/import.h"

namespace tessera {
namespace {

using test::Launcher;
using test::Ran;
using test::run_command;
using test::TemporaryFolder;
using testing::AllOf;
using testing::AnyOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Matcher;
using testing_io::contents;
using testing_io::put;

constexpr int kRanks = 3;

class OnEngine : public testing::TestWithParam<Launcher> {
 protected:
  void SetUp() override {
    if (const std::string why = test::missing(GetParam().engine, folder_); !why.empty()) GTEST_SKIP() << why;
    std::filesystem::create_directory(folder_ / "tmp");
  }
  bool is(const Launcher& launcher) const { return GetParam().engine == launcher.engine; }

  /// tessera run of a model of ours, by which the ranks' processes can be known.
  std::string command(const std::string& timeout = "1") const {
    return std::string(TESSERA_BINARY) + " run " + model_ + " --mesh tp=3 --shapes batch=7 --threads 1 --quiet " +
           "--timeout " + timeout + " --flight-record " + (folder_ / "flight.json").string();
  }
  /// Starts the ranks, in a folder of their own for their files and the launcher's; within a time limit (code 124).
  Ran launch(const std::string& command, const std::string& variables = "") const {
    const std::string tmp = (folder_ / "tmp").string();
    return run_command("timeout -k 1 30 env TMPDIR=" + tmp + " OMPI_MCA_btl_vader_backing_directory=" + tmp + " " +
                           variables + " " + GetParam().start(kRanks, command),
                       folder_);
  }
  /// Ranks from a shell script; `rank` is each one's number.
  Ran launch_script(const std::string& body) const {
    const std::string script = (folder_ / "rank.sh").string();
    put(script, "rank=${OMPI_COMM_WORLD_RANK-$RANK}\n" + body);
    return launch("sh " + script);
  }
  void expect_nothing_left() const {
    EXPECT_THAT(test::processes_with(folder_.path().string()), IsEmpty());
    EXPECT_TRUE(std::filesystem::is_empty(folder_ / "tmp")) << *std::filesystem::directory_iterator(folder_ / "tmp");
  }
  bool all_others_have_records(int failed) const {
    for (int rank = 0; rank < kRanks; ++rank)
      if (rank != failed && flight_of(rank).is_null()) return false;
    return true;
  }
  /// The rank's flight record, from whichever file has it; null: none.
  nlohmann::json flight_of(int rank) const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      if (entry.path().extension() != ".json") continue;
      const nlohmann::json record = nlohmann::json::parse(contents(entry.path()));
      for (const auto& one : record["ranks"])
        if (one["rank"] == rank) return one;
    }
    return nullptr;
  }

  TemporaryFolder folder_;
  const std::string model_ = test::write_model(folder_, test::kPair).string();
};

struct Failure {
  const char* act;
  int rank;
};

class FaultOnEngine : public OnEngine {
 protected:
  Matcher<std::string> says(const Failure& failure) const {
    const std::string rank = std::to_string(failure.rank), act = failure.act;
    const std::string come = failure.rank == 0 ? "ranks 1,2" : failure.rank == 1 ? "ranks 0,2" : "ranks 0,1";
    const auto arrivals =
        AllOf(HasSubstr("(#1 of group {0,1,2})"), HasSubstr("missing: rank " + rank + "; arrived: " + come));
    if (act == "throw")
      return AllOf(HasSubstr("rank " + rank + " fails at communication 1, in AllReduce 'y'"),
                   failure.rank == 0 ? Matcher<std::string>(testing::_) : Matcher<std::string>(arrivals));
    if (act == "stall") return AllOf(HasSubstr("all_reduce sum float32[56] 'y'"), arrivals);
    // mpirun sees it, too, and ends the others, which say where they were. Whichever is first; mpirun may lose what
    // some of them say.
    if (is(test::kMpirun))
      return AnyOf(AllOf(HasSubstr("rank " + rank + " has died"), arrivals),
                   AllOf(AnyOf(HasSubstr("process rank " + rank), HasSubstr("1]," + rank + "]")),
                         HasSubstr("was in AllReduce 'y', waiting for all_reduce 'y' (#1 of group {0,1,2})")));
    if (is(test::kTorchrun) && failure.rank == 0)  // with whom goes the store by which ranks speak to each other
      return AllOf(HasSubstr("rank 0, which serves the rendezvous, has died"),
                   HasSubstr("rank 1 waited at all_reduce sum float32[56] 'y' (#1 of group {0,1,2})"),
                   HasSubstr("rank 2 waited at all_reduce sum float32[56] 'y' (#1 of group {0,1,2})"));
    if (is(test::kTorchrun))
      return AllOf(HasSubstr("rank " + rank), HasSubstr("has died"), HasSubstr("all_reduce sum float32[56] 'y'"),
                   arrivals);
    return AllOf(AnyOf(HasSubstr("rank " + rank + " died (killed by signal 9, Killed) in AllReduce 'y'"),
                       HasSubstr("rank " + rank + " ended with exit code 9 in AllReduce 'y'")),
                 HasSubstr("all_reduce 'y'"), arrivals);
  }
};

TEST_P(FaultOnEngine, ends_the_others_which_say_who_it_was_and_leave_records) {
  // Every engine has each failure of one rank, and some engine has it of the other.
  const int turn = is(test::kMpirun) ? 1 : 0;
  std::vector<Failure> failures = {{"exit", 1}, {"die", turn}, {"throw", 1 - turn}, {"stall", turn}};
  if (test::tries_all()) failures.insert(failures.end(), {{"die", 1 - turn}, {"throw", turn}, {"stall", 1 - turn}});
  for (const Failure& failure : failures) {
    SCOPED_TRACE(testing::Message() << "rank " << failure.rank << ": " << failure.act);
    const std::string fault =
        "TESSERA_FAULT=rank=" + std::to_string(failure.rank) + ",operation=1,after=600,do=" + failure.act;
    Ran ran = launch(command("2"), fault);
    // mpirun gives ranks a second before it kills them, which may be too little on a loaded machine.
    for (int again = 0; again < 2 && is(test::kMpirun) && !all_others_have_records(failure.rank); ++again)
      ran = launch(command("2"), fault);
    EXPECT_THAT(ran.code, testing::Not(AnyOf(0, 124))) << ran.err;
    EXPECT_THAT(ran.err, says(failure));
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == failure.rank) continue;
      const nlohmann::json flight = flight_of(rank);
      ASSERT_FALSE(flight.is_null()) << "no record of rank " << rank << "\n" << ran.err;
      const nlohmann::json& last = flight["communications"].back();
      EXPECT_EQ(last["kind"], "all_reduce");
      EXPECT_EQ(last["value"], "y");
      EXPECT_EQ(last["number"], 1);
      EXPECT_EQ(last["state"], "waiting");
    }
    expect_nothing_left();
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      if (entry.path().extension() == ".json") std::filesystem::remove(entry.path());
  }
}

/// A sum of 2 MiB, and beside it a kernel that throws: index 2 of a table of two rows.
constexpr std::string_view kBadIndex = R"(
bad (float[batch, 8] x, int64[64] rows) => (float[batch, 8] y, float[64, 8] g)
    <float[8, 32] up, float[32, 8] down, float[2, 8] table> {
  hidden = MatMul (x, up)
  active = Relu (hidden)
  y = MatMul (active, down)
  twice = Add (rows, rows)
  g = Gather (table, twice)
})";

// A library goes on with the sum while ranks tell each other of the end, and finds its memory in place.
TEST_P(FaultOnEngine, of_a_kernel_while_a_communication_is_under_way_is_told) {
  const std::string model = test::write_model(folder_, kBadIndex).string();
  for (const char* option : {"", " --overlap off"})
    for (int again = 0; again < 3; ++again) {
      const Ran ran =
          launch(std::string(TESSERA_BINARY) + " run " + model + " --mesh tp=3 --shapes batch=65536" +
                 " --threads 1 --quiet --timeout 5 --flight-record " + (folder_ / "flight.json").string() + option);
      EXPECT_EQ(ran.code, 2) << ran.err;
      EXPECT_THAT(ran.err, HasSubstr("[kernel] Gather producing 'g': the index 2 is outside [-2, 2)")) << option;
      EXPECT_THAT(ran.err, testing::Not(HasSubstr("ignal"))) << option;
      expect_nothing_left();
    }
}

INSTANTIATE_TEST_SUITE_P(Engines, FaultOnEngine, testing::Values(test::kSpawn, test::kMpirun, test::kTorchrun),
                         test::engine_of);

// Failures before the first run that occur only if ranks are started one by one.
class StartOnEngine : public OnEngine {};
INSTANTIATE_TEST_SUITE_P(Engines, StartOnEngine, testing::Values(test::kMpirun, test::kTorchrun), test::engine_of);

TEST_P(StartOnEngine, waits_for_a_rank_that_is_late) {
  const Ran ran = launch_script("[ \"$rank\" = 1 ] && sleep 1.5\nexec " + command("1"));  // longer than waits last
  EXPECT_EQ(ran.code, 0) << ran.err;
  expect_nothing_left();
}

TEST_P(StartOnEngine, gives_up_on_a_rank_that_never_comes) {
  for (const char* instead : {"sleep 5", "true"}) {
    SCOPED_TRACE(instead);
    const Ran ran = launch_script(std::string("[ \"$rank\" = 1 ] && exec ") + instead + "\nexec " + command() +
                                  " --join-timeout 1");
    EXPECT_THAT(ran.code, testing::Not(AnyOf(0, 124))) << ran.err;
    EXPECT_THAT(ran.err, HasSubstr("gave up after 1000 ms"));
    EXPECT_THAT(ran.err,
                HasSubstr(is(test::kMpirun) ? "not all ranks have joined" : "missing: rank 1; arrived: ranks 0,2"));
    expect_nothing_left();
  }
}

TEST_P(StartOnEngine, refuses_ranks_that_differ) {
  OnnxModel other = import_model(model_);
  for (Value* state : other.graph->values_of(ValueKind::state))
    state->data = Tensor::zeros(state->dtype(), state->data.dims);
  export_model(other, folder_ / "weights.onnx");
  const std::string mlp = std::string(TESSERA_TEST_DATA) + "/models/mlp/model.onnx";
  for (const auto& [arguments, words] :
       {std::pair<std::string, std::string>{model_ + " --shapes batch=7 --mesh dp=3",
                                            "the mesh of rank 1 is not that of rank 0; give all ranks the same --mesh"},
        {mlp + " --shapes batch=7 --mesh tp=3", "the program of rank 1 is not that of rank 0"},
        {(folder_ / "weights.onnx").string() + " --shapes batch=7 --mesh tp=3",
         "the data of the weights of rank 1 is not that of rank 0"},
        {model_ + " --shapes batch=8 --mesh tp=3", ", batch=8, but rank 0 inputs with the hash "},
        {(folder_ / "none.onnx").string() + " --mesh tp=3", "rank 1 ended the run: [import] cannot open"}}) {
    SCOPED_TRACE(arguments);
    const Ran ran = launch_script("[ \"$rank\" = 1 ] && exec " + std::string(TESSERA_BINARY) + " run " + arguments +
                                  " --threads 1 --quiet --timeout 5\nexec " + command("5"));
    EXPECT_EQ(ran.code, 2) << "on all ranks: " << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(words));
    EXPECT_EQ(ran.err.find(words), ran.err.rfind(words)) << "said once: " << ran.err;
    expect_nothing_left();
  }
}

TEST_P(StartOnEngine, refuses_inputs_that_differ_in_one_element) {
  for (const float element : {0.0F, 1.0F}) {
    Tensor x = test::ramp({128, 8});
    reinterpret_cast<float*>(x.mutable_data())[24] = element;
    write_npz(folder_ / (element == 0 ? "usual.npz" : "other.npz"), {{"x", x}});
  }
  const std::string run = std::string(TESSERA_BINARY) + " run " + model_ +
                          " --mesh tp=3 --threads 1 --quiet --timeout 5 --flight-record '' --inputs " +
                          folder_.path().string();
  const Ran ran = launch_script("[ \"$rank\" = 1 ] && exec " + run + "/other.npz\nexec " + run + "/usual.npz");
  EXPECT_EQ(ran.code, 2) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("[inputs] rank 1 was given inputs with the hash "));
  expect_nothing_left();
}

// Commands that do not make the same calls would wait for each other in different places.
TEST_P(StartOnEngine, refuses_ranks_that_are_to_do_something_else) {
  const std::string options = " " + model_ + " --mesh tp=3 --shapes batch=7 --threads 1 --quiet --timeout 5";
  for (const auto& [first, other, words] :
       {std::tuple<std::string, std::string, std::string>{"run", "verify", "'verify'"},
        {"run", "bench", "'bench --iterations "},
        {"run", "run --repeat 3", "'run --repeat 3'"},
        {"verify", "verify --first-diverging", "'verify --first-diverging'"},
        {"bench", "bench --warmup 3", "--warmup 3'"}}) {
    SCOPED_TRACE(other);
    const Ran ran = launch_script("[ \"$rank\" = 1 ] && exec " + std::string(TESSERA_BINARY) + " " + other + options +
                                  "\nexec " + TESSERA_BINARY + " " + first + options);
    EXPECT_EQ(ran.code, 2) << ran.err;
    const std::string said = "[launch] rank 1 was given the command ";
    EXPECT_THAT(ran.err, AllOf(HasSubstr(said), HasSubstr(words), HasSubstr("but rank 0 the command '" + first)));
    EXPECT_EQ(ran.err.find(said), ran.err.rfind(said)) << "said once: " << ran.err;
    expect_nothing_left();
  }
  const Ran ran = launch_script("[ \"$rank\" = 1 ] && share=--share-memory\nexec " + command("5") + " $share");
  EXPECT_EQ(ran.code, 2) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("with shared memory"));
}

// The first, a middle and the last element of every weight, on any rank.
TEST_P(StartOnEngine, refuses_models_that_differ_in_one_element) {
  for (const char* weight : {"up", "down"})
    for (const double place : {0.0, 0.6, 1.0}) {
      OnnxModel other = import_model(model_);
      Value* state = other.graph->find(weight);
      state->data = Tensor::copy_of(state->dtype(), state->data.dims, state->data.data, state->data.bytes);
      const auto element = static_cast<int64_t>(place * static_cast<double>(state->data.count() - 1));
      reinterpret_cast<float*>(state->data.mutable_data())[element] += 1e-3F;
      export_model(other, folder_ / "other.onnx");
      const std::string run = std::string(TESSERA_BINARY) + " run " + folder_.path().string();
      const std::string options = " --mesh tp=3 --shapes batch=7 --threads 1 --quiet --timeout 5 --flight-record ''";
      const Ran ran = launch_script("[ \"$rank\" = 1 ] && exec " + run + "/other.onnx" + options + "\nexec " +
                                    TESSERA_BINARY + " run " + model_ + options);
      EXPECT_EQ(ran.code, 2) << ran.err;
      EXPECT_THAT(ran.err, HasSubstr("the data of the weights of rank 1 is not that of rank 0: '" +
                                     std::string(weight) + "' differs"))
          << element;
    }
  expect_nothing_left();
}

TEST_P(StartOnEngine, takes_copies_of_one_model) {
  std::filesystem::copy_file(model_, folder_ / "copy.onnx");
  const std::string options = " --mesh tp=3 --shapes batch=7 --threads 1 --quiet --timeout 5";
  const Ran ran = launch_script("[ \"$rank\" = 1 ] && exec " + std::string(TESSERA_BINARY) + " run " +
                                (folder_ / "copy.onnx").string() + options + "\nexec " + command("5"));
  EXPECT_EQ(ran.code, 0) << ran.err;
}

// Failures of Gloo only, whose ranks meet at rank 0.
class OnGloo : public OnEngine {
 protected:
  double seconds_of(const std::function<void()>& call) const {
    const auto start = std::chrono::steady_clock::now();
    call();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
};
INSTANTIATE_TEST_SUITE_P(Engines, OnGloo, testing::Values(test::kTorchrun), test::engine_of);

TEST_P(OnGloo, a_mistake_in_the_environment_of_one_rank_is_one_on_all) {
  const Ran ran = launch_script("[ \"$rank\" = 1 ] && export WORLD_SIZE=4\nexec " + command("5"));
  EXPECT_EQ(ran.code, 2) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("rank 1 says that the world has 4 ranks, rank 0 says 3"));
  expect_nothing_left();
}

// Ranks that wait in shared memory hear of it, long before the timeout.
TEST_P(OnGloo, a_rank_that_dies_is_named_where_ranks_share_memory) {
  for (const int failed : {1, 0}) {
    const std::string rank = "rank " + std::to_string(failed);
    Ran ran;
    const double seconds = seconds_of([&] {
      ran = launch(command("25") + " --share-memory",
                   "TESSERA_FAULT=rank=" + std::to_string(failed) + ",operation=1,after=600,do=die");
    });
    EXPECT_LT(seconds, 15);
    EXPECT_THAT(ran.err, AllOf(HasSubstr(rank), HasSubstr("has died"), HasSubstr("all_reduce 'y'"),
                               HasSubstr("it was in AllReduce 'y'"), HasSubstr("missing: " + rank)));
    EXPECT_THAT(ran.err, testing::Not(HasSubstr("has not heard")));
    for (int other = 0; other < kRanks; ++other)
      if (other != failed) {
        EXPECT_EQ(flight_of(other)["in"], "AllReduce 'y'") << other;
      }
    expect_nothing_left();
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      if (entry.path().extension() == ".json") std::filesystem::remove(entry.path());
  }
}

}  // namespace
}  // namespace tessera
