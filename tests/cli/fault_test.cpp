// A rank that dies, throws or stalls: all others end, soon, and say who it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "api/small_model.h"
#include "run_command.h"
#include "tessera/io/npz.h"

namespace tessera {
namespace {

using test::Ran;
using test::run_command;
using test::TemporaryFolder;
using testing::AllOf;
using testing::HasSubstr;
using testing_io::contents;

struct Engine {
  const char* name;
  const char* option;
};

class Fault : public testing::TestWithParam<Engine> {
 protected:
  /// A run of which rank 1 of 3 fails so at its first communication.
  Ran run(const std::string& act, const std::string& options = "") { return run(act, options, record()); }
  Ran run(const std::string& act, const std::string& options, const std::string& record) {
    const std::string model = test::write_model(folder_, test::kPair).string();
    return run_command("env TESSERA_FAULT=rank=1,operation=1,do=" + act + " " + TESSERA_BINARY + " run " + model +
                           " --mesh tp=3 --shapes batch=7 --threads 1 --quiet --timeout " + timeout_ +
                           " --flight-record '" + record + "' " + options + " " + GetParam().option,
                       folder_);
  }
  std::string record() const { return (folder_ / "flight.json").string(); }
  nlohmann::json flights() const { return nlohmann::json::parse(contents(record())); }

  TemporaryFolder folder_;
  std::string timeout_ = "0.5";
};

TEST_P(Fault, names_a_rank_that_throws) {
  const Ran ran = run("throw", "--outputs " + (folder_ / "y.npz").string());
  EXPECT_EQ(ran.code, 3);
  EXPECT_THAT(ran.err,
              AllOf(HasSubstr("rank 1 fails at communication 1"), HasSubstr("what ranks did last is in " + record())));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "y.npz"));
  EXPECT_THAT(flights()["reason"].get<std::string>(), HasSubstr("rank 1 fails at communication 1"));
}

TEST_P(Fault, names_a_rank_that_stalls) {
  const Ran ran = run("stall");
  EXPECT_EQ(ran.code, 3);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("all_reduce sum float32[56] 'y' (#1 of group {0,1,2})"),
                             HasSubstr("gave up after 500 ms: missing: rank 1; arrived: ranks 0,2"),
                             HasSubstr("rank 1 waits for nobody and is in AllReduce 'y'")));
  const nlohmann::json record = flights();
  ASSERT_EQ(record["ranks"].size(), 3u);
  EXPECT_EQ(record["ranks"][1]["in"], "AllReduce 'y'");
  EXPECT_NE(record["ranks"][1]["communications"].back()["value"], "y") << "it has not begun the next one";
  const nlohmann::json& last = record["ranks"][0]["communications"].back();
  EXPECT_EQ(last["kind"], "all_reduce");
  EXPECT_EQ(last["value"], "y");
  EXPECT_EQ(last["axes"], "tp");
  EXPECT_EQ(last["number"], 1);
  EXPECT_EQ(last["bytes"], 7 * 8 * 4);
  EXPECT_EQ(last["state"], "waiting");
}

TEST_P(Fault, leaves_no_record_if_none_is_wanted) {
  const Ran ran = run("throw", "", "");
  EXPECT_EQ(ran.code, 3);
  EXPECT_THAT(ran.err, testing::Not(HasSubstr("what ranks did last")));
}

// The default is the system's temporary folder, never the folder where the command runs.
TEST_P(Fault, is_recorded_where_temporary_files_go) {
  const std::filesystem::path work = folder_ / "work", temporary = folder_ / "temporary";
  std::filesystem::create_directory(work);
  std::filesystem::create_directory(temporary);
  const std::string model = test::write_model(folder_, test::kPair).string();
  const Ran ran = run_command("cd " + work.string() + " && env TMPDIR=" + temporary.string() +
                                  " TESSERA_FAULT=rank=1,operation=1,do=throw " + TESSERA_BINARY + " run " + model +
                                  " --mesh tp=3 --shapes batch=7 --threads 1 --quiet " + GetParam().option,
                              folder_);
  EXPECT_EQ(ran.code, 3);
  EXPECT_TRUE(std::filesystem::is_empty(work));
  const std::vector<std::filesystem::path> files(std::filesystem::directory_iterator(temporary), {});
  ASSERT_EQ(files.size(), 1u) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("what ranks did last is in " + files[0].string()));
}

// The user is responsible for an input's contents: no rank has failed, and nothing is recorded.
TEST_P(Fault, is_none_where_an_input_names_what_there_is_not) {
  const std::filesystem::path temporary = folder_ / "temporary";
  std::filesystem::create_directory(temporary);
  const std::string model = test::write_model(folder_, R"(
      table (int64[n] rows, float[batch, 8] x) => (float[n, 8] g, float[batch, 8] y)
        <float[8, 32] up, float[32, 8] down, float[12, 8] table> {
        g = Gather (table, rows)
        hidden = MatMul (x, up)
        y = MatMul (hidden, down)
      })")
                                .string();
  for (const int64_t row : {int64_t{12}, int64_t{-13}, int64_t{1} << 40})
    for (const char* annotation : {"", " --annotate 'table=[tp,-]'"}) {
      write_npz(folder_ / "in.npz", {{"rows", Tensor::of<int64_t>(DType::int64, {3}, {0, row, 11})},
                                     {"x", Tensor::zeros(DType::float32, {7, 8})}});
      const Ran ran = run_command("env TMPDIR=" + temporary.string() + " " + TESSERA_BINARY + " run " + model +
                                      " --mesh tp=3 --threads 1 --quiet --inputs " + (folder_ / "in.npz").string() +
                                      annotation + " " + GetParam().option,
                                  folder_);
      EXPECT_EQ(ran.code, 2) << ran.err;
      EXPECT_THAT(ran.err, HasSubstr("the index " + std::to_string(row) + " is outside [-12, 12)")) << annotation;
      EXPECT_THAT(ran.err, testing::Not(HasSubstr("what ranks did last")));
      EXPECT_TRUE(std::filesystem::is_empty(temporary));
    }
}

TEST_P(Fault, is_not_made_of_other_words) {
  const Ran ran = run("explode");
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("TESSERA_FAULT is 'rank=1,operation=1,do=explode'"));
}

TEST_P(Fault, is_of_a_rank_that_there_is) {
  const Ran ran = run("throw,rank=9");
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("rank=9', but the ranks are 0 to 2"));
}

std::string name_of(const testing::TestParamInfo<Engine>& info) {
  return info.param.name;
}
const Engine kThreads{"threads", ""};
INSTANTIATE_TEST_SUITE_P(OnThreads, Fault, testing::Values(kThreads), name_of);

#ifndef TESSERA_THREAD_SANITIZER  // it keeps for itself the addresses where ranks share memory
const Engine kProcesses{"processes", "--spawn 3"};
INSTANTIATE_TEST_SUITE_P(OnProcesses, Fault, testing::Values(kProcesses), name_of);

using FaultOfProcesses = Fault;
TEST_P(FaultOfProcesses, names_a_rank_that_dies) {
  const Ran ran = run("die");
  EXPECT_EQ(ran.code, 3);
  EXPECT_THAT(ran.err, HasSubstr("rank 1 died (killed by signal 9, Killed) in AllReduce 'y'"));
  EXPECT_EQ(flights()["ranks"][1]["in"], "AllReduce 'y'");
}

// Stopped by a signal, as by SIGSTOP: the rank does nothing more, and cannot report.
TEST_P(FaultOfProcesses, names_a_rank_that_is_stopped_once_the_timeout_is_over) {
  timeout_ = "4";
  for (const char* rank : {"0", "1"}) {
    const auto start = std::chrono::steady_clock::now();
    const Ran ran = run("stop,rank=" + std::string(rank));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took.count(), 7.5) << "not twice the timeout";
    EXPECT_EQ(ran.code, 3);
    EXPECT_THAT(ran.err, AllOf(HasSubstr("missing: rank " + std::string(rank)),
                               HasSubstr("rank " + std::string(rank) + " waits for nobody and is in AllReduce 'y'"),
                               HasSubstr("what ranks did last is in " + record())));
  }
}
INSTANTIATE_TEST_SUITE_P(OnProcesses, FaultOfProcesses, testing::Values(kProcesses), name_of);
#endif

}  // namespace
}  // namespace tessera
