#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "../backend_suite.h"
#include "tessera/comm/gloo/gloo_world.h"
#include "tessera/comm/hosts.h"
#include "tessera/comm/plugin.h"
#include "tessera/comm/rendezvous/frames.h"
#include "tessera/comm/rendezvous/store_client.h"

namespace tessera::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

int free_port() {
  const Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof address;
  EXPECT_EQ(bind(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  return ntohs(address.sin_port);
}

Launched launch_of(int rank, int size, int port) {
  Launched launch;
  launch.engine = Engine::gloo;
  launch.rank = rank;
  launch.size = size;
  launch.address = "127.0.0.1";
  launch.port = port;
  return launch;
}

/// Runs the body in `ranks` processes, which have no threads before their worlds make some. Returns their exit codes,
/// or the negative number of the signal that ended them.
std::vector<int> fork_ranks(int ranks, const std::function<void(int rank)>& body) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        body(rank);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
      std::cout << std::flush;
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back(child);
  }
  std::vector<int> codes;
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    codes.push_back(WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status));
  }
  return codes;
}

void run_on_gloo(int ranks, const RankBody& body, int most_direct) {
  test_seed();  // drawn once, by the parent
  const int port = free_port();
  const auto codes = fork_ranks(ranks, [&](int rank) {
    auto world = make_gloo_world(launch_of(rank, ranks, port), {}, most_direct);
    body(*world, rank);
  });
  EXPECT_EQ(codes, std::vector<int>(ranks, 0));
}

void run_by_messages(int ranks, const RankBody& body) {
  run_on_gloo(ranks, body, DirectPlan::kMostMembers);
}
void run_by_library(int ranks, const RankBody& body) {
  run_on_gloo(ranks, body, 0);
}

INSTANTIATE_TEST_SUITE_P(Gloo, BackendSuite,
                         ::testing::Values(Backend{.name = "gloo", .on_ranks = run_by_messages, .member_order = false},
                                           Backend{
                                               .name = "library", .on_ranks = run_by_library, .member_order = false}),
                         name_of_backend);

/// Two ranks a host: groups within one meet in memory, others by Gloo.
std::shared_ptr<World> make_world_of_hosts(int rank, int ranks, int port) {
  return share_memory_within_hosts(make_gloo_world(launch_of(rank, ranks, port)), rank, {}, rank / 2);
}

void run_on_hosts(int ranks, const RankBody& body) {
  test_seed();
  const int port = free_port();
  const auto codes = fork_ranks(ranks, [&](int rank) { body(*make_world_of_hosts(rank, ranks, port), rank); });
  EXPECT_EQ(codes, std::vector<int>(ranks, 0));
}

INSTANTIATE_TEST_SUITE_P(Hosts, BackendSuite,
                         ::testing::Values(Backend{.name = "hosts", .on_ranks = run_on_hosts, .member_order = false}),
                         name_of_backend);

const WorldOptions kImpatient{.timeout = milliseconds(500), .join_timeout = milliseconds(500)};

TEST(DirectPlan, leaves_large_tensors_to_the_library_where_members_share_links) {
  auto suits = [](Kind kind, int64_t bytes, const std::vector<int64_t>& hosts) {
    const int size = static_cast<int>(hosts.size());
    const std::vector<int64_t> counts(hosts.size(), bytes / 4 / size);
    const Operation operation{.kind = kind, .count = bytes / 4, .counts = counts, .recv_counts = counts};
    return DirectPlan::suits(operation, {.size = size, .shares_links = DirectPlan::share_links(hosts)});
  };
  constexpr int64_t kSmall = 4 << 10, kLarge = 16 << 20;
  for (Kind kind : {Kind::all_reduce, Kind::all_gather, Kind::reduce_scatter, Kind::reduce}) {
    EXPECT_FALSE(suits(kind, kLarge, {1, 1, 2, 2})) << name_of(kind);
    EXPECT_TRUE(suits(kind, kSmall, {1, 1, 2, 2})) << name_of(kind);
    EXPECT_TRUE(suits(kind, kLarge, {1, 1, 1, 1})) << name_of(kind);
    EXPECT_TRUE(suits(kind, kLarge, {1, 2, 3, 4})) << name_of(kind);
    EXPECT_FALSE(suits(kind, kSmall, std::vector<int64_t>(9, 1))) << name_of(kind);
  }
  EXPECT_TRUE(suits(Kind::all_to_all, kLarge, {1, 1, 2, 2}));
  EXPECT_TRUE(suits(Kind::broadcast, kLarge, {1, 2}));
  EXPECT_FALSE(suits(Kind::broadcast, kLarge, {1, 1, 1}));
}

TEST(Hosts, meet_in_memory_where_a_group_is_of_one_host) {
  const int port = free_port();
  const auto codes = fork_ranks(4, [&](int rank) {
    auto world = make_world_of_hosts(rank, 4, port);
    EXPECT_EQ(world->local_ranks(), std::vector{rank});
    // In shared memory, members notice that their statements differ; with Gloo they do not.
    const int first = rank / 2 * 2;
    auto near = world->join(rank, std::vector{first, first + 1});
    float data = 1;
    const Operation mine{.kind = rank % 2 ? Kind::all_reduce : Kind::broadcast, .in = &data, .out = &data, .count = 1};
    EXPECT_NE(error_of([&] { near->run(mine); }), "");
  });
  EXPECT_EQ(codes, std::vector<int>(4, 0));
}

TEST(Hosts, an_abort_ends_waits_in_memory_and_on_the_network) {
  const int port = free_port();
  const auto codes = fork_ranks(4, [&](int rank) {
    auto world = make_world_of_hosts(rank, 4, port);
    auto near = rank < 2 ? world->join(rank, std::vector{0, 1}) : nullptr;
    auto far = rank != 1 ? world->join(rank, std::vector{0, 2, 3}) : nullptr;
    const auto meet = [&] {
      if (near) near->run({.kind = Kind::barrier});
      if (far) far->run({.kind = Kind::barrier});
    };
    if (rank == 0) {
      meet();
      return world->abort(0, "the disk is full");
    }
    // The first barriers may end on rank 0 before they end here, so that here they end by the abort.
    const std::string error = error_of([&] {
      meet();
      (near ? near : far)->run({.kind = Kind::barrier});
    });
    EXPECT_THAT(error, HasSubstr("the disk is full"));
  });
  EXPECT_EQ(codes, std::vector<int>(4, 0));
}

TEST(GlooWorld, a_rank_that_does_not_come_is_named_on_all_others) {
  const int port = free_port();
  const auto codes = fork_ranks(4, [&](int rank) {
    auto world = make_gloo_world(launch_of(rank, 4, port), kImpatient);
    auto group = world->join(rank, everyone(4));
    std::vector<float> data(5000);
    Operation sum{.kind = Kind::all_reduce, .in = data.data(), .out = data.data(), .count = 5000, .label = "y"};
    group->run(sum);
    if (rank == 2) {
      std::this_thread::sleep_for(milliseconds(2500));  // beyond the timeout and the grace
      EXPECT_THAT(error_of([&] { group->run(sum); }), HasSubstr("ended the run"));
    } else {
      EXPECT_THAT(error_of([&] { group->run(sum); }),
                  AllOf(HasSubstr("all_reduce sum float32[5000] 'y' (#2 of group {0,1,2,3})"),
                        HasSubstr("missing: rank 2; arrived: ranks 0,1,3"), HasSubstr("rank 2 says nothing")));
    }
  });
  EXPECT_EQ(codes, std::vector<int>(4, 0));
}

// As one that fails in another group does: it has come, and ends before it connects.
TEST(GlooWorld, a_rank_that_ends_the_run_while_others_connect_to_it_is_heard) {
  const int port = free_port();
  const auto codes = fork_ranks(2, [&](int rank) {
    if (rank == 0) {
      auto world = make_gloo_world(launch_of(0, 2, port));
      EXPECT_THAT(error_of([&] { world->join(0, everyone(2)); }), HasSubstr("the disk is full"));
      return;
    }
    StoreClient other("127.0.0.1", port, 1, 2, milliseconds(60'000), milliseconds(60'000));
    other.set("{0,1}#1/here/1", "");
    ASSERT_TRUE(other.get("{0,1}#1/address/0/1", milliseconds(60'000)));
    // The one whose port is less in memory waits for the other.
    std::string address = *other.get("{0,1}#1/address/0/1", milliseconds(60'000));
    address.replace(offsetof(sockaddr_in, sin_port), sizeof(in_port_t), sizeof(in_port_t), '\xff');
    other.set("{0,1}#1/address/1/0", address);
    std::this_thread::sleep_for(milliseconds(200));
    other.tell(end_notice("rank 1 ended the run: the disk is full"));
  });
  EXPECT_EQ(codes, std::vector<int>(2, 0));
}

TEST(GlooWorld, a_chain_of_waits_ends_at_the_rank_at_fault) {
  const int port = free_port();
  const auto codes = fork_ranks(3, [&](int rank) {
    auto world = make_gloo_world(launch_of(rank, 3, port), kImpatient);
    float element = 0;
    auto front = rank < 2 ? world->join(rank, std::vector{0, 1}) : nullptr;
    auto back = rank > 0 ? world->join(rank, std::vector{1, 2}) : nullptr;
    if (rank == 2) std::this_thread::sleep_for(milliseconds(2500));
    // Rank 0 waits for rank 1, which waits for a message of rank 2, which hangs.
    const std::string error = error_of([&] {
      if (rank == 1) back->run({.kind = Kind::recv, .out = &element, .count = 1, .from = 1, .label = "kv"});
      (rank == 2 ? back : front)->run({.kind = Kind::barrier});
    });
    EXPECT_THAT(error, HasSubstr("rank 2 says nothing"));
  });
  EXPECT_EQ(codes, std::vector<int>(3, 0));
}

TEST(GlooWorld, a_rank_that_is_killed_is_named_at_once) {
  for (int victim : {0, 2}) {
    const int port = free_port();
    const auto codes = fork_ranks(3, [&](int rank) {
      auto world = make_gloo_world(launch_of(rank, 3, port));
      auto group = world->join(rank, everyone(3));
      std::vector<float> data(5000);
      Operation sum{.kind = Kind::all_reduce, .in = data.data(), .out = data.data(), .count = 5000};
      group->run(sum);
      if (rank == victim) raise(SIGKILL);
      EXPECT_THAT(error_of([&] { group->run(sum); }),
                  AllOf(HasSubstr("rank " + std::to_string(victim)), HasSubstr("has died")));
    });
    std::vector<int> expected(3, 0);
    expected[victim] = -SIGKILL;
    EXPECT_EQ(codes, expected);
  }
}

TEST(GlooWorld, an_abort_ends_the_waits_of_all_others_with_its_message) {
  const int port = free_port();
  const auto codes = fork_ranks(4, [&](int rank) {
    auto world = make_gloo_world(launch_of(rank, 4, port));
    float element = 0;
    const std::string error = error_of([&] {
      auto group = world->join(rank, everyone(4));
      auto pair = world->join(rank, std::vector{rank / 2 * 2, rank / 2 * 2 + 1});
      if (rank == 2) world->abort(rank, "the disk is full");
      if (rank == 3) pair->run({.kind = Kind::recv, .out = &element, .count = 1, .from = 0});
      group->run({.kind = Kind::all_reduce, .in = &element, .out = &element, .count = 1});
    });
    EXPECT_THAT(error, HasSubstr("rank 2 ended the run: the disk is full"));
  });
  EXPECT_EQ(codes, std::vector<int>(4, 0));
}

TEST(GlooWorld, who_comes_after_the_end_is_told_why) {
  const int port = free_port();
  const auto codes = fork_ranks(2, [&](int rank) {
    if (rank == 1) std::this_thread::sleep_for(milliseconds(300));
    const std::string error = error_of([&] {
      auto world = make_gloo_world(launch_of(rank, 2, port));
      if (rank == 0) world->abort(rank, "no such file");
      world->join(rank, everyone(2));
    });
    EXPECT_THAT(error, HasSubstr("rank 0 ended the run: no such file"));
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

TEST(GlooWorld, processes_that_contradict_each_other_are_refused) {
  const int port = free_port();
  const auto codes = fork_ranks(2, [&](int rank) {
    // Rank 1 believes in a world of three.
    const std::string error = error_of(
        [&] {
          auto world = make_gloo_world(launch_of(rank, 2 + rank, port));
          world->join(rank, everyone(2));
        },
        ErrorKind::user);
    EXPECT_THAT(error, HasSubstr("rank 1 says that the world has 3 ranks, rank 0 says 2"));
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

TEST(GlooWorld, what_is_no_rank_0_is_told_from_one) {
  const int port = free_port();
  const Socket stranger = listen_at("127.0.0.1", port);
  EXPECT_THAT(error_of([&] { make_gloo_world(launch_of(1, 2, port), kImpatient); }, ErrorKind::user),
              AllOf(HasSubstr("does not answer as rank 0"), HasSubstr("MASTER_PORT")));
  EXPECT_THAT(error_of([&] { make_gloo_world(launch_of(0, 2, port), kImpatient); }, ErrorKind::user),
              AllOf(HasSubstr("cannot serve the rendezvous"), HasSubstr("MASTER_ADDR")));
}

/// What a stranger sends: bytes that are not a frame, frames of all kinds before a hello, hellos of other programs.
std::vector<std::string> strangers_words() {
  std::vector<std::string> all = {"GET / HTTP/1.0\r\n\r\n", std::string("\xff\xff\xff\xffS", 5), "\x01", ""};
  auto frame = [&](char kind, const std::string& content) {
    std::string bytes = joined(content, "");
    bytes.insert(4, 1, kind);
    all.push_back(bytes);
  };
  for (char kind : {kHello, kSet, kGet, kTell, kBye, kPing, kValue, '\0'})
    for (const std::string& content : {std::string(), std::string("x"), end_notice("enough"), std::string(5000, 'x')})
      frame(kind, content);
  for (const char* version : {"0.0.9", "", tessera_version()})
    for (const char* rank : {"1", "7", "-1", "x"})
      for (const char* size : {"2", "3"}) frame(kHello, joined(version, joined(rank, size)));
  return all;
}

TEST(GlooWorld, strangers_at_the_rendezvous_do_not_disturb_a_run) {
  const int port = free_port();
  const auto codes = fork_ranks(2, [&](int rank) {
    auto world = make_gloo_world(launch_of(rank, 2, port));
    auto disturb = [&] {
      for (const std::string& said : strangers_words()) {
        const Socket stranger = connect_to("127.0.0.1", port, milliseconds(1000));
        // An earlier frame may already have led to a refusal.
        send(stranger.descriptor(), said.data(), said.size(), MSG_NOSIGNAL);
      }
    };
    disturb();
    auto group = world->join(rank, everyone(2));
    disturb();
    group->run({.kind = Kind::barrier});
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

// The ranks of another run with the same port do this.
TEST(GlooWorld, ranks_of_another_run_do_not_disturb_one_that_is_complete) {
  const int port = free_port();
  const auto codes = fork_ranks(2, [&](int rank) {
    auto world = make_gloo_world(launch_of(rank, 2, port));
    auto group = world->join(rank, everyone(2));
    for (const int size : {2, 3})
      for (const int other : {0, 1, 2})
        EXPECT_THAT(
            error_of([&] { StoreClient("127.0.0.1", port, other, size, milliseconds(1000), milliseconds(1000)); },
                     ErrorKind::user),
            HasSubstr("has all its 2 ranks"));
    group->run({.kind = Kind::barrier});
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

// For example, it was given fewer runs.
TEST(GlooWorld, a_rank_that_has_left_in_peace_is_named_by_one_that_waits_for_it) {
  const int port = free_port();
  const auto codes = fork_ranks(2, [&](int rank) {
    auto world = make_gloo_world(launch_of(rank, 2, port), {.timeout = milliseconds(3000)});
    auto group = world->join(rank, everyone(2));
    std::vector<float> data(5000);
    const Operation sum{.kind = Kind::all_reduce, .in = data.data(), .out = data.data(), .count = 5000};
    group->run(sum);
    if (rank == 1) return;
    EXPECT_THAT(error_of([&] { group->run(sum); }, ErrorKind::user), HasSubstr("rank 1 was done and left"));
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

// SIGSTOP stops all threads of a process; of rank 0 that is the store, too.
TEST(GlooWorld, a_rank_that_is_stopped_is_named_and_no_other) {
  for (int victim : {0, 2}) {
    const int port = free_port();
    const auto codes = fork_ranks(3, [&](int rank) {
      auto world = make_gloo_world(launch_of(rank, 3, port), kImpatient);
      auto group = world->join(rank, everyone(3));
      std::vector<float> data(5000);
      Operation sum{.kind = Kind::all_reduce, .in = data.data(), .out = data.data(), .count = 5000};
      group->run(sum);
      if (rank == victim) {
        const pid_t stopped = getpid();
        if (fork() == 0) {  // who ends it in the end
          std::this_thread::sleep_for(milliseconds(4000));
          kill(stopped, SIGKILL);
          _exit(0);
        }
        raise(SIGSTOP);
      }
      const std::string name = "rank " + std::to_string(victim);
      EXPECT_THAT(error_of([&] { group->run(sum); }),
                  victim == 0 ? testing::Matcher<std::string>(AllOf(HasSubstr("rank 0 does not answer: it is stopped"),
                                                                    testing::Not(HasSubstr("say nothing"))))
                              : testing::Matcher<std::string>(HasSubstr("rank 2 says nothing")));
    });
    std::vector<int> expected(3, 0);
    expected[victim] = -SIGKILL;
    EXPECT_EQ(codes, expected);
  }
}

}  // namespace
}  // namespace tessera::comm
