#include "tessera/comm/launch.h"

#include <gmock/gmock.h>

#include <map>

#include "tessera/base/error.h"

namespace tessera::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Map = std::map<std::string, std::string>;

Launched launch_of(const Map& variables, Engine asked = Engine::automatic) {
  return find_launch(asked, [&](const std::string& name) -> std::optional<std::string> {
    auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string refusal_of(const Map& variables, Engine asked = Engine::automatic) {
  try {
    launch_of(variables, asked);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    return error.what();
  }
}

const Map kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                      {"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                      {"PMIX_RANK", "2"},
                      {"PMIX_NAMESPACE", "job1"}};
const Map kTorchrun = {{"RANK", "3"},
                       {"WORLD_SIZE", "4"},
                       {"LOCAL_RANK", "1"},
                       {"LOCAL_WORLD_SIZE", "2"},
                       {"MASTER_ADDR", "10.0.0.1"},
                       {"MASTER_PORT", "29500"}};
const Map kSlurm = {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"},  {"SLURM_NTASKS", "2"},
                    {"SLURM_LOCALID", "1"}, {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_NODELIST", "node7"}};

Map with(Map map, const Map& changes) {
  for (const auto& [name, value] : changes) map[name] = value;
  return map;
}
Map without(Map map, const std::string& name) {
  map.erase(name);
  return map;
}

TEST(Launched, without_a_launcher_ranks_are_threads) {
  EXPECT_EQ(launch_of({}).engine, Engine::threads);
  EXPECT_FALSE(launch_of({}).distributed());
}

TEST(Launched, open_mpi_says_rank_and_size) {
  const Launched launch = launch_of(kOpenMpi);
  EXPECT_EQ(launch.engine, Engine::mpi);
  EXPECT_EQ(launch.launcher, "Open MPI");
  EXPECT_EQ(launch.rank, 2);
  EXPECT_EQ(launch.size, 4);
  EXPECT_EQ(launch.local_rank, 0);
  EXPECT_EQ(launch.local_size, 2);
}

TEST(Launched, torchrun_says_where_gloo_meets) {
  const Launched launch = launch_of(kTorchrun);
  EXPECT_EQ(launch.engine, Engine::gloo);
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(launch.size, 4);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch_of(without(kTorchrun, "LOCAL_RANK")).local_rank, -1) << "unknown, as where it is set by hand";
  EXPECT_EQ(launch.address, "10.0.0.1");
  EXPECT_EQ(launch.port, 29500);
}

TEST(Launched, a_store_of_torchruns_agent_moves_ours_to_the_next_port) {
  EXPECT_EQ(launch_of(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})).port, 29501);
}

TEST(Launched, pmix_without_open_mpi_leaves_the_size_to_mpi) {
  const Launched launch = launch_of({{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "job"}});
  EXPECT_EQ(launch.engine, Engine::mpi);
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.size, 0);
}

TEST(Launched, srun_with_pmix_is_mpi_and_without_it_gloo) {
  const Launched pmix = launch_of(with(kSlurm, {{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "slurm.77"}}));
  EXPECT_EQ(pmix.engine, Engine::mpi);
  EXPECT_EQ(pmix.size, 2);
  const Launched plain = launch_of(kSlurm);
  EXPECT_EQ(plain.engine, Engine::gloo);
  EXPECT_EQ(plain.rank, 1);
  EXPECT_EQ(plain.address, "127.0.0.1");  // one machine
  EXPECT_GT(plain.port, 1024);
}

TEST(Launched, srun_on_several_machines_needs_to_be_told_where_to_meet) {
  const Map machines = with(kSlurm, {{"SLURM_STEP_NODELIST", "node[7-8]"}});
  EXPECT_THAT(refusal_of(machines), AllOf(HasSubstr("MASTER_ADDR"), HasSubstr("scontrol show hostnames")));
  EXPECT_EQ(launch_of(with(machines, {{"MASTER_ADDR", "node7"}})).address, "node7");
}

TEST(Launched, srun_says_how_many_ranks_share_a_machine) {
  auto on_node = [](const char* node, const char* counts) {
    return launch_of(with(kSlurm, {{"SLURM_NODEID", node}, {"SLURM_STEP_TASKS_PER_NODE", counts}})).local_size;
  };
  EXPECT_EQ(on_node("0", "2"), 2);
  EXPECT_EQ(on_node("1", "3(x2),1"), 3);
  EXPECT_EQ(on_node("2", "3(x2),1"), 1);
  EXPECT_EQ(on_node("3", "3(x2),1"), 0) << "unknown";
}

TEST(Launched, a_batch_script_is_no_step_of_srun) {
  EXPECT_EQ(launch_of(without(kSlurm, "SLURM_STEP_ID")).engine, Engine::threads);
}

TEST(Launched, threads_are_threads_under_any_launcher) {
  EXPECT_EQ(launch_of(kOpenMpi, Engine::threads).engine, Engine::threads);
  EXPECT_EQ(launch_of({{"RANK", "x"}}, Engine::processes).engine, Engine::processes);
}

TEST(Launched, gloo_under_mpirun_meets_where_the_user_says) {
  const Launched launch =
      launch_of(with(kOpenMpi, {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "5000"}}), Engine::gloo);
  EXPECT_EQ(launch.engine, Engine::gloo);
  EXPECT_EQ(launch.rank, 2);
  EXPECT_EQ(launch.port, 5000);
  EXPECT_THAT(refusal_of(kOpenMpi, Engine::gloo), HasSubstr("set MASTER_ADDR and MASTER_PORT"));
}

TEST(Launched, half_set_variables_are_refused) {
  EXPECT_THAT(refusal_of(without(kOpenMpi, "OMPI_COMM_WORLD_SIZE")),
              AllOf(HasSubstr("OMPI_COMM_WORLD_RANK is set"), HasSubstr("OMPI_COMM_WORLD_SIZE is not")));
  EXPECT_THAT(refusal_of(without(kTorchrun, "RANK")), AllOf(HasSubstr("WORLD_SIZE is set"), HasSubstr("RANK is not")));
  EXPECT_THAT(refusal_of(without(kTorchrun, "MASTER_ADDR")), HasSubstr("MASTER_ADDR is not"));
  EXPECT_THAT(refusal_of({{"PMIX_RANK", "0"}}), HasSubstr("PMIX_NAMESPACE is not"));
}

TEST(Launched, numbers_must_be_numbers_and_ranks_less_than_the_size) {
  EXPECT_THAT(refusal_of(with(kTorchrun, {{"RANK", "three"}})), HasSubstr("RANK=three is not a number"));
  EXPECT_THAT(refusal_of(with(kTorchrun, {{"RANK", "4"}})), HasSubstr("RANK=4 and WORLD_SIZE=4"));
}

TEST(Launched, launchers_that_disagree_are_refused_unless_the_engine_is_said) {
  Map both = kOpenMpi;
  both.insert(kTorchrun.begin(), kTorchrun.end());
  EXPECT_THAT(refusal_of(both), AllOf(HasSubstr("rank 2 of 4"), HasSubstr("3 of 4"), HasSubstr("`engine=")));
  EXPECT_EQ(launch_of(both, Engine::mpi).rank, 2);
  EXPECT_EQ(launch_of(both, Engine::gloo).rank, 3);
  both["RANK"] = "2";
  EXPECT_EQ(launch_of(both).engine, Engine::mpi);
}

TEST(Launched, ports_are_those_of_tcp) {
  for (const char* port : {"0", "65536", "99999", "-1", "http"})
    EXPECT_THAT(refusal_of(with(kTorchrun, {{"MASTER_PORT", port}})),
                AllOf(HasSubstr(std::string("MASTER_PORT=") + port + " is not a port"), HasSubstr("from 1 to 65535")));
  EXPECT_EQ(launch_of(with(kTorchrun, {{"MASTER_PORT", "65535"}})).port, 65535);
  EXPECT_THAT(refusal_of(with(kTorchrun, {{"MASTER_PORT", "65535"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}})),
              HasSubstr("the next port=65536 is not a port"));
  EXPECT_THAT(refusal_of(with(kSlurm, {{"MASTER_PORT", "70000"}})), HasSubstr("MASTER_PORT=70000 is not a port"));
  EXPECT_THAT(refusal_of(with(kOpenMpi, {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}}), Engine::gloo),
              HasSubstr("MASTER_PORT=70000 is not a port"));
}

TEST(Launched, half_a_step_of_srun_is_refused) {
  EXPECT_THAT(refusal_of({{"SLURM_PROCID", "0"}}),
              AllOf(HasSubstr("SLURM_PROCID is set"), HasSubstr("SLURM_STEP_ID is not")));
  EXPECT_THAT(refusal_of(without(kSlurm, "SLURM_PROCID")),
              AllOf(HasSubstr("SLURM_STEP_ID is set"), HasSubstr("SLURM_PROCID is not")));
  EXPECT_THAT(refusal_of(without(kSlurm, "SLURM_NTASKS")), HasSubstr("SLURM_NTASKS is not"));
  EXPECT_EQ(launch_of({{"SLURM_NTASKS", "2"}}).engine, Engine::threads) << "an option of srun";
}

TEST(Launched, the_shell_of_an_interactive_allocation_is_no_step_of_srun) {
  EXPECT_EQ(launch_of(with(kSlurm, {{"SLURM_STEP_ID", "4294967290"}})).engine, Engine::threads);
}

TEST(Launched, ranks_set_by_hand_must_be_those_of_srun) {
  Map both = with(kTorchrun, kSlurm);
  EXPECT_THAT(refusal_of(both),
              AllOf(HasSubstr("Slurm says that this is rank 1 of 2"), HasSubstr("3 of 4"), HasSubstr("`engine=gloo`")));
  EXPECT_EQ(launch_of(both, Engine::gloo).rank, 3);
  EXPECT_EQ(launch_of(with(both, {{"RANK", "1"}, {"WORLD_SIZE", "2"}})).address, "10.0.0.1");
  EXPECT_EQ(launch_of(without(both, "SLURM_STEP_ID")).rank, 3) << "in a batch script";
  EXPECT_EQ(launch_of(with(both, {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}})).rank, 3) << "a step of one task";
}

TEST(Launched, torchrun_counts_whoever_started_it) {
  const Map torchrun = with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "none"}});
  for (const Map& outer : {kSlurm, kOpenMpi}) {
    const Launched launch = launch_of(with(torchrun, outer));
    EXPECT_EQ(launch.launcher, "torchrun");
    EXPECT_EQ(launch.rank, 3);
  }
}

TEST(Launched, an_engine_without_its_launcher_is_refused_with_the_mend) {
  EXPECT_THAT(refusal_of({}, Engine::mpi), HasSubstr("mpirun -n"));
  EXPECT_THAT(refusal_of({}, Engine::gloo), HasSubstr("torchrun"));
  EXPECT_THAT([] { engine_named("nccl"); }, ::testing::ThrowsMessage<Error>(HasSubstr("auto, threads, processes")));
}

}  // namespace
}  // namespace tessera::comm
