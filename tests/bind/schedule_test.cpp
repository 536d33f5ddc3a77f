#include "tessera/bind/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>

#include "tessera/bind/order.h"

namespace tessera::bind {
namespace {

using testing::ElementsAre;

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kMemories = 40;  // at most, where their sizes do not matter

Task compute(std::vector<int> reads, std::vector<int> writes) {
  return {.reads = std::move(reads), .writes = std::move(writes)};
}

Task communicate(std::vector<int> reads, std::vector<int> writes) {
  return {.communicates = true, .reads = std::move(reads), .writes = std::move(writes)};
}

std::vector<Action> with_under_way(int most, const std::vector<Task>& tasks) {
  return overlapped(tasks, std::vector<Memory>(kMemories), {most, {}});
}

/// The most communications that are under way at once.
int under_way(const std::vector<Action>& actions) {
  int now = 0, most = 0;
  for (const Action& action : actions) {
    now += action.phase == Phase::start ? 1 : action.phase == Phase::wait ? -1 : 0;
    most = std::max(most, now);
  }
  return most;
}

/// "start 0", "run 1", "wait 0".
std::vector<std::string> text(const std::vector<Action>& actions) {
  std::vector<std::string> lines;
  for (const auto& [task, phase] : actions)
    lines.push_back((phase == Phase::run ? "run " : phase == Phase::start ? "start " : "wait ") + std::to_string(task));
  return lines;
}

TEST(Schedule, as_given_waits_for_each_communication_where_it_starts) {
  EXPECT_THAT(text(as_given({compute({0}, {1}), communicate({1}, {2}), compute({2}, {3})})),
              ElementsAre("run 0", "start 1", "wait 1", "run 2"));
}

TEST(Schedule, runs_what_does_not_need_the_result_before_the_wait) {
  const std::vector<Task> tasks = {communicate({0}, {1}), compute({1}, {2}), compute({3}, {4}), compute({2, 4}, {5})};
  EXPECT_THAT(text(with_under_way(1, tasks)), ElementsAre("start 0", "run 2", "wait 0", "run 1", "run 3"));
}

TEST(Schedule, starts_a_communication_before_steps_that_it_does_not_need) {
  const std::vector<Task> tasks = {compute({0}, {1}), compute({2}, {3}), communicate({3}, {4}), compute({1, 4}, {5})};
  EXPECT_THAT(text(with_under_way(1, tasks)), ElementsAre("run 1", "start 2", "run 0", "wait 2", "run 3"));
}

TEST(Schedule, gathers_ahead_by_as_many_as_may_be_under_way) {
  std::vector<Task> tasks;  // gather i, then a step that uses it and what the step before has made
  for (int i = 0; i < 3; ++i) {
    tasks.push_back(communicate({10 + i}, {20 + i}));
    tasks.push_back(compute({20 + i, 30 + i}, {31 + i}));
  }
  EXPECT_THAT(text(with_under_way(1, tasks)),
              ElementsAre("start 0", "wait 0", "start 2", "run 1", "wait 2", "start 4", "run 3", "wait 4", "run 5"));
  EXPECT_THAT(text(with_under_way(2, tasks)),
              ElementsAre("start 0", "start 2", "wait 0", "start 4", "run 1", "wait 2", "run 3", "wait 4", "run 5"));
}

TEST(Schedule, keeps_memory_from_start_to_wait) {
  // Step 1 overwrites the communication's operand, step 2 its result.
  const std::vector<Task> tasks = {communicate({0}, {1}), compute({2}, {0}), compute({2}, {1})};
  EXPECT_THAT(text(with_under_way(4, tasks)), ElementsAre("start 0", "wait 0", "run 1", "run 2"));
}

// Two steps of a ring: a block arrives and goes on, a product of it is computed. The last step could run at any time.
TEST(Schedule, sends_messages_on_before_steps_that_come_later) {
  const auto message = [](Task task) {
    task.message = true;
    return task;
  };
  const std::vector<Task> tasks = {message(communicate({0}, {})),
                                   message(communicate({}, {1})),
                                   compute({0}, {10}),
                                   message(communicate({1}, {})),
                                   message(communicate({}, {2})),
                                   compute({1}, {11}),
                                   compute({2}, {12}),
                                   compute({0}, {13})};
  EXPECT_THAT(text(with_under_way(4, tasks)), ElementsAre("start 0", "start 1", "run 2", "wait 0", "wait 1", "start 3",
                                                          "start 4", "run 5", "run 7", "wait 3", "wait 4", "run 6"));
}

// The block that goes on is a sum, to which a product is added that is computed while the sum arrives.
TEST(Schedule, sends_sums_on_before_steps_that_come_later) {
  const auto message = [](Task task) {
    task.message = true;
    return task;
  };
  const std::vector<Task> tasks = {message(communicate({}, {1})), compute({0}, {2}), compute({1, 2}, {3}),
                                   message(communicate({3}, {})), compute({0}, {4})};
  EXPECT_THAT(text(with_under_way(4, tasks)),
              ElementsAre("start 0", "run 1", "wait 0", "run 2", "start 3", "run 4", "wait 3"));
}

TEST(Schedule, waits_at_the_end_for_what_nobody_reads) {
  EXPECT_THAT(text(with_under_way(4, {communicate({0}, {}), compute({0}, {1})})),
              ElementsAre("start 0", "run 1", "wait 0"));
}

TEST(Schedule, waits_for_a_barrier_where_it_stands) {
  Task barrier = communicate({}, {});
  barrier.at_once = true;
  EXPECT_THAT(text(with_under_way(4, {compute({0}, {1}), barrier, communicate({1}, {2}), compute({0}, {3})})),
              ElementsAre("start 1", "wait 1", "run 0", "start 2", "run 3", "wait 2"));
}

TEST(Schedule, waits_for_what_is_under_way_before_a_barrier) {
  Task barrier = communicate({}, {});
  barrier.at_once = true;
  EXPECT_THAT(text(with_under_way(4, {communicate({0}, {1}), communicate({2}, {3}), barrier, compute({1, 3}, {4})})),
              ElementsAre("start 0", "start 1", "wait 0", "wait 1", "start 2", "wait 2", "run 3"));
}

TEST(Schedule, peak_holds_operands_until_the_wait) {
  const std::vector<Task> tasks = {compute({}, {0}), communicate({0}, {1}), compute({}, {2}), compute({1, 2}, {3})};
  const std::vector<Memory> memories = {{1, false}, {10, false}, {100, false}, {1000, true}};
  EXPECT_EQ(peak_bytes(as_given(tasks), tasks, memories), 1110u);
  EXPECT_EQ(peak_bytes(with_under_way(1, tasks), tasks, memories), 1110u);
  const std::vector<Memory> large_operand = {{10'000, false}, {10, false}, {100, false}, {1000, true}};
  EXPECT_EQ(peak_bytes(as_given(tasks), tasks, large_operand), 10'010u);
  EXPECT_EQ(peak_bytes(with_under_way(1, tasks), tasks, large_operand), 10'110u);
}

// Zeros that are read late are not made while the first communication is under way, though nothing else is ready then.
TEST(Schedule, makes_what_reads_nothing_in_its_turn) {
  const std::vector<Task> tasks = {communicate({}, {0}), compute({0}, {1}), compute({}, {2}), compute({1, 2}, {3})};
  EXPECT_EQ(with_under_way(1, tasks), as_given(tasks));
}

TEST(Schedule, peak_counts_a_sum_in_place_once) {
  std::vector<Task> tasks = {compute({}, {0}), communicate({0}, {1}), compute({1}, {2})};
  const std::vector<Memory> memories = {{100, false}, {100, false}, {1, true}};
  EXPECT_EQ(peak_bytes(as_given(tasks), tasks, memories), 200u);
  tasks[1].in_place = true;
  EXPECT_EQ(peak_bytes(as_given(tasks), tasks, memories), 101u);
  tasks.push_back(compute({0}, {3}));  // which reads the operand later
  EXPECT_EQ(peak_bytes(as_given(tasks), tasks, {{100, false}, {100, false}, {1, true}, {1, true}}), 201u);
}

TEST(Schedule, peak_counts_scratch_from_start_to_wait) {
  std::vector<Task> tasks = {communicate({}, {0}), communicate({}, {1}), compute({0, 1}, {2})};
  tasks[0].scratch = 1000, tasks[1].scratch = 100;
  const std::vector<Memory> memories = {{1, false}, {10, false}, {0, true}};
  EXPECT_EQ(peak_bytes(as_given(tasks), tasks, memories), 1001u);
  EXPECT_EQ(peak_bytes(with_under_way(2, tasks), tasks, memories), 1111u);
}

TEST(Schedule, exchanges_ahead_as_far_as_scratch_does_not_grow) {
  for (const auto& [bytes, expected] : {std::pair{kMiB / 8, 4}, {kMiB / 2, 3}, {kMiB, 2}, {10 * kMiB, 1}}) {
    std::vector<Task> tasks;
    for (int i = 0; i < 8; ++i) {
      tasks.push_back(communicate({2 * i}, {2 * i + 1}));
      tasks.back().scratch = bytes;
    }
    const std::vector<Memory> memories(16);
    EXPECT_EQ(under_way(schedule(tasks, memories)), expected) << bytes;
  }
}

TEST(Schedule, starts_no_more_ahead_than_is_asked) {
  std::vector<Task> tasks;
  for (int i = 0; i < 8; ++i) tasks.push_back(communicate({2 * i}, {2 * i + 1}));
  for (int most : {1, 2, 6}) EXPECT_EQ(under_way(schedule(tasks, std::vector<Memory>(16), most)), most);
}

TEST(Schedule, gathers_ahead_as_far_as_memory_does_not_grow) {
  for (const auto& [bytes, expected] : {std::pair{kMiB / 8, 4}, {kMiB / 2, 3}, {kMiB, 2}, {10 * kMiB, 1}}) {
    std::vector<Task> tasks;
    std::vector<Memory> memories;
    for (int i = 0; i < 8; ++i) {
      tasks.push_back(communicate({3 * i}, {3 * i + 1}));
      tasks.push_back(compute({3 * i + 1}, {3 * i + 2}));
      memories.insert(memories.end(), {{0, false}, {bytes, false}, {0, true}});
    }
    const std::vector<Action> actions = schedule(tasks, memories);
    EXPECT_EQ(under_way(actions), expected) << bytes;
    EXPECT_LE(peak_bytes(actions, tasks, memories), bytes + kMiB);
  }
}

TEST(Schedule, computes_meanwhile_as_far_as_memory_does_not_grow) {
  // Steps beside a sum of 4 MiB make 1 MiB each, which the next one reads.
  std::vector<Task> tasks = {communicate({0}, {1}), compute({1}, {2})};
  std::vector<Memory> memories = {{0, false}, {4 * kMiB, false}, {0, true}, {0, false}};
  for (int i = 3; i < 7; ++i) {
    tasks.push_back(compute({i}, {i + 1}));
    memories.push_back({kMiB, false});
  }
  EXPECT_THAT(text(schedule(tasks, memories)),
              ElementsAre("start 0", "run 2", "wait 0", "run 1", "run 3", "run 4", "run 5"));
}

TEST(Schedule, waits_late_in_the_order_given) {
  const std::vector<Task> tasks = {compute({0}, {1}),     communicate({1}, {2}), compute({3}, {4}),
                                   communicate({4}, {5}), compute({2}, {6}),     compute({5, 6}, {7})};
  const std::vector<Memory> memories(8);
  EXPECT_THAT(text(waiting_late(tasks, memories, {2, {}})),
              ElementsAre("run 0", "start 1", "run 2", "start 3", "wait 1", "run 4", "wait 3", "run 5"));
  EXPECT_THAT(text(waiting_late(tasks, memories, {1, {}})),
              ElementsAre("run 0", "start 1", "run 2", "wait 1", "start 3", "run 4", "wait 3", "run 5"));
}

TEST(Schedule, waits_earlier_where_operands_under_way_would_exceed_the_limit) {
  const std::vector<Task> tasks = {compute({}, {0}), communicate({0}, {1}), compute({}, {2}), compute({1, 2}, {3})};
  const std::vector<Memory> memories = {{10, false}, {1, false}, {10, false}, {1, true}};
  EXPECT_THAT(text(waiting_late(tasks, memories, {4, 21})),
              ElementsAre("run 0", "start 1", "run 2", "wait 1", "run 3"));
  EXPECT_THAT(text(waiting_late(tasks, memories, {4, 20})),
              ElementsAre("run 0", "start 1", "wait 1", "run 2", "run 3"));
}

Task communicate_in(int queue, std::vector<int> reads, std::vector<int> writes) {
  Task task = communicate(std::move(reads), std::move(writes));
  task.queue = queue;
  return task;
}

// A gather for later is under way, and longer than the sum, over other ranks, that the next step needs.
TEST(Schedule, waits_for_no_other_queue_than_a_step_needs) {
  const std::vector<Task> tasks = {communicate_in(1, {0}, {1}), communicate_in(2, {2}, {3}), compute({3}, {4}),
                                   compute({1, 4}, {5})};
  for (const auto& actions : {with_under_way(4, tasks), waiting_late(tasks, std::vector<Memory>(6), {4, {}})})
    EXPECT_THAT(text(actions), ElementsAre("start 0", "start 1", "wait 1", "run 2", "wait 0", "run 3"));
}

TEST(Schedule, counts_what_is_under_way_by_queue) {
  const std::vector<Task> tasks = {communicate_in(1, {0}, {1}), communicate_in(2, {2}, {3}),
                                   communicate_in(1, {4}, {5}), compute({1, 3, 5}, {6})};
  for (const auto& actions : {with_under_way(1, tasks), waiting_late(tasks, std::vector<Memory>(7), {1, {}})})
    EXPECT_THAT(text(actions), ElementsAre("start 0", "start 1", "wait 0", "start 2", testing::_, testing::_, "run 3"));
}

// A block goes on around a ring before steps that nobody waits for, also while a gather in another queue is under way.
TEST(Schedule, sends_messages_on_while_another_queue_is_busy) {
  const auto message = [](Task task) {
    task.message = true;
    return task;
  };
  const std::vector<Task> tasks = {communicate_in(1, {0}, {9}), message(communicate_in(2, {}, {1})),
                                   message(communicate_in(2, {1}, {})), compute({0}, {13}), compute({9}, {14})};
  EXPECT_THAT(text(with_under_way(4, tasks)),
              ElementsAre("start 0", "start 1", "wait 1", "start 2", "run 3", "wait 0", "run 4", "wait 2"));
}

// A sum of gradients is under way while the next ones are computed, although nothing else may go out of turn: what is
// read first is computed last.
TEST(Schedule, overlaps_in_the_order_given_where_another_order_needs_more_memory) {
  constexpr size_t kLarge = 100 * kMiB;
  std::vector<Task> tasks;
  std::vector<Memory> memories = {{0, false}};
  for (int i = 0; i < 4; ++i) {  // the output of a layer, which its gradient frees
    tasks.push_back(compute({i}, {i + 1}));
    memories.push_back({kLarge, false});
  }
  int last = 4;
  for (int i = 4; i > 0; --i) {
    const int gradient = last + 1, sum = last + 2;
    tasks.push_back(compute({i, i == 4 ? 4 : last}, {gradient}));
    tasks.push_back(communicate_in(1, {gradient}, {sum}));
    memories.insert(memories.end(), {{kLarge, false}, {kMiB, true}});
    last = sum - 1;
  }
  const std::vector<Action> actions = schedule(tasks, memories);
  EXPECT_LE(peak_bytes(actions, tasks, memories), peak_bytes(as_given(tasks), tasks, memories) * 21 / 20);
  EXPECT_GE(under_way(actions), 1);
}

TEST(Schedule, leaves_programs_without_communication_alone) {
  const std::vector<Task> tasks = {compute({0}, {1}), compute({0}, {2}), compute({1, 2}, {3})};
  EXPECT_EQ(schedule(tasks, std::vector<Memory>(4)), as_given(tasks));
}

bool meets(const std::vector<int>& a, const std::vector<int>& b) {
  return std::any_of(a.begin(), a.end(), [&](int m) { return std::count(b.begin(), b.end(), m) > 0; });
}

/// Tasks over few memories, so that they get into each other's way by reading and by writing.
Task random_task(std::mt19937& random, bool communicates, int queues = 0) {
  auto some = [&](int most) {
    std::vector<int> memories(random() % (most + 1));
    for (int& memory : memories) memory = static_cast<int>(random() % 12);
    return memories;
  };
  Task task{.communicates = communicates,
            .at_once = communicates && random() % 8 == 0,
            .message = communicates && random() % 2 == 0};
  task.reads = some(2);
  task.writes = some(1);
  if (communicates && queues > 0) task.queue = 1 + static_cast<int>(random() % queues);
  return task;
}

/// The most communications of one queue that are under way at once.
int under_way_in_a_queue(const std::vector<Action>& actions, const std::vector<Task>& tasks) {
  std::map<int, int> now;
  int most = 0;
  for (const Action& action : actions) {
    if (action.phase == Phase::run) continue;
    int& count = now[tasks[action.task].queue];
    most = std::max(most, count += action.phase == Phase::start ? 1 : -1);
  }
  return most;
}

TEST(Schedule, never_lets_two_get_into_each_others_way) {
  std::mt19937 random(1);
  for (int round = 0; round < 1000; ++round) {
    std::vector<Task> tasks;
    const int queues = static_cast<int>(random() % 4);  // 0: the rank's own thread
    for (size_t t = 0; t < 1 + random() % 40; ++t) tasks.push_back(random_task(random, random() % 3 == 0, queues));
    const int most = 1 + static_cast<int>(random() % 4);
    std::vector<Memory> memories(kMemories);
    for (Memory& memory : memories) memory.bytes = random() % 1000;
    const size_t given = peak_bytes(as_given(tasks), tasks, memories);
    const bool late = random() % 2 == 0;
    const std::vector<Action> actions =
        late ? waiting_late(tasks, memories, {most, given}) : with_under_way(most, tasks);
    if (late) {
      EXPECT_LE(peak_bytes(actions, tasks, memories), given);
    }
    const std::vector<Span> spans = spans_of(actions, tasks.size());
    ASSERT_EQ(actions.size(), as_given(tasks).size());
    EXPECT_LE(under_way_in_a_queue(actions, tasks), most);
    for (size_t later = 0; later < tasks.size(); ++later)
      for (size_t t = 0; t < later; ++t) {
        if (tasks[t].communicates && tasks[later].communicates) {
          EXPECT_LT(spans[t].begin, spans[later].begin);
          if (tasks[t].queue == tasks[later].queue) {
            EXPECT_LT(spans[t].end, spans[later].end);
          }
        }
        const bool conflict = meets(tasks[t].writes, tasks[later].writes) ||
                              meets(tasks[t].writes, tasks[later].reads) || meets(tasks[t].reads, tasks[later].writes);
        if (conflict) {
          EXPECT_LT(spans[t].end, spans[later].begin) << "round " << round << ": " << t << ", " << later;
        }
      }
  }
}

/// Ranks that run these actions, whose communications are `meetings[task]`, of the members `groups[meeting]`: whether
/// all get to their ends. A wait passes once all members have started.
struct Rank {
  std::vector<Action> actions;
  std::vector<int> meeting;  // by task; -1: none
  size_t at = 0;
};

bool all_end(std::vector<Rank> ranks, const std::vector<std::vector<int>>& groups) {
  std::vector<size_t> come(groups.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (Rank& rank : ranks)
      for (; rank.at < rank.actions.size(); ++rank.at, moved = true) {
        const auto& [task, phase] = rank.actions[rank.at];
        if (phase == Phase::run) continue;
        const auto meeting = static_cast<size_t>(rank.meeting[task]);
        if (phase == Phase::start) ++come[meeting];
        if (phase == Phase::wait && come[meeting] < groups[meeting].size()) break;
      }
  }
  return std::all_of(ranks.begin(), ranks.end(), [](const Rank& rank) { return rank.at == rank.actions.size(); });
}

// Ranks choose for themselves how much is under way, and their other steps differ.
TEST(Schedule, ranks_that_get_to_their_ends_as_given_do_so_overlapped) {
  constexpr int kRanks = 4;
  std::mt19937 random(2);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::vector<int>> groups(1 + random() % 20);
    std::vector<std::vector<Task>> tasks(kRanks);
    std::vector<Rank> ranks(kRanks);
    for (size_t meeting = 0; meeting < groups.size(); ++meeting)
      for (int rank = 0; rank < kRanks; ++rank) {
        if (random() % 2 == 0) continue;
        groups[meeting].push_back(rank);
        for (size_t other = random() % 3; other > 0; --other) {
          tasks[rank].push_back(random_task(random, false));
          ranks[rank].meeting.push_back(-1);
        }
        tasks[rank].push_back(random_task(random, true));
        ranks[rank].meeting.push_back(static_cast<int>(meeting));
      }
    for (int rank = 0; rank < kRanks; ++rank) ranks[rank].actions = as_given(tasks[rank]);
    ASSERT_TRUE(all_end(ranks, groups));
    for (int rank = 0; rank < kRanks; ++rank)
      ranks[rank].actions = with_under_way(1 + static_cast<int>(random() % 4), tasks[rank]);
    EXPECT_TRUE(all_end(ranks, groups)) << "round " << round;
  }
}

/// The same on devices with queues. A communication waits for its queue's last one, and for what the computing queue
/// got before it.
struct QueuedRank {
  std::vector<Enqueued> actions;
  std::vector<int> meeting;  // by task; -1: none
  std::map<int, std::vector<int>> queues = {};
  std::map<int, size_t> at = {};
  std::set<int> come = {}, ended = {};  // actions
};

bool all_end(std::vector<QueuedRank> ranks, const std::vector<std::vector<int>>& groups) {
  std::vector<size_t> come(groups.size());
  for (QueuedRank& rank : ranks)
    for (int a = 0; a < static_cast<int>(rank.actions.size()); ++a) rank.queues[rank.actions[a].queue].push_back(a);
  for (bool moved = true; moved;) {
    moved = false;
    for (QueuedRank& rank : ranks)
      for (auto& [queue, actions] : rank.queues)
        for (size_t& at = rank.at[queue]; at < actions.size(); ++at, moved = true) {
          const Enqueued& it = rank.actions[actions[at]];
          if (it.after >= 0 && !rank.ended.contains(it.after)) break;
          if (it.action.phase == Phase::start) {
            const auto meeting = static_cast<size_t>(rank.meeting[it.action.task]);
            if (rank.come.insert(actions[at]).second) ++come[meeting], moved = true;
            if (come[meeting] < groups[meeting].size()) break;
          }
          rank.ended.insert(actions[at]);
        }
  }
  return std::all_of(ranks.begin(), ranks.end(),
                     [](const QueuedRank& rank) { return rank.ended.size() == rank.actions.size(); });
}

// Queues of several sets of axes wait for one another, through what ranks compute between them.
TEST(Schedule, queues_of_ranks_that_get_to_their_ends_as_given_do_so_overlapped) {
  constexpr int kRanks = 4;
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::vector<int>> groups(1 + random() % 20);
    std::vector<std::vector<Task>> tasks(kRanks);
    std::vector<QueuedRank> ranks(kRanks);
    for (size_t meeting = 0; meeting < groups.size(); ++meeting) {
      const int queue = 1 + static_cast<int>(random() % 3);
      for (int rank = 0; rank < kRanks; ++rank) {
        if (random() % 2 == 0) continue;
        groups[meeting].push_back(rank);
        for (size_t other = random() % 3; other > 0; --other) {
          tasks[rank].push_back(random_task(random, false));
          ranks[rank].meeting.push_back(-1);
        }
        tasks[rank].push_back(random_task(random, true));
        tasks[rank].back().queue = queue;
        ranks[rank].meeting.push_back(static_cast<int>(meeting));
      }
    }
    std::vector<Memory> memories(kMemories);
    for (int rank = 0; rank < kRanks; ++rank) {
      const int most = 1 + static_cast<int>(random() % 4);
      const std::vector<Action> actions =
          random() % 2 == 0 ? with_under_way(most, tasks[rank]) : waiting_late(tasks[rank], memories, {most, {}});
      std::vector<int> queue_of;
      for (const Task& task : tasks[rank]) queue_of.push_back(task.queue);
      ranks[rank].actions = on_queues(actions, spans_of(actions, tasks[rank].size()), queue_of);
    }
    EXPECT_TRUE(all_end(ranks, groups)) << "round " << round;
  }
}

}  // namespace
}  // namespace tessera::bind
