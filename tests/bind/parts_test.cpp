// The small parts of which a binding is made.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tessera/bind/arena.h"
#include "tessera/bind/layered.h"
#include "tessera/bind/order.h"

namespace tessera::bind {
namespace {

using Names = Layered<std::map<int, std::string>>;

TEST(Layered, own_entries_override_shared_ones) {
  Names first;
  first.set(1, "one");
  first.set(2, "two");
  first.share();
  Names second = first.fresh();
  second.set(2, "deux");
  EXPECT_EQ(*second.find(1), "one");
  EXPECT_EQ(*second.find(2), "deux");
  EXPECT_EQ(second.find(3), nullptr);
  EXPECT_EQ(*first.find(2), "two");
  EXPECT_EQ(*second.fresh().find(2), "two");
}

TEST(Layered, entries_stay_where_they_are_when_they_are_shared) {
  Names names;
  const std::string* one = &names.set(1, "one");
  names.share();
  EXPECT_EQ(names.find(1), one);
}

TEST(Arena, a_buffer_lives_to_its_last_use) {
  Arena arena;
  const size_t a = arena.add(64, {2, 3}, {}), b = arena.add(8, {5, 5}, {});
  arena.extend(a, 4);
  arena.extend(a, 1);
  EXPECT_EQ(arena[a].first, 2);
  EXPECT_EQ(arena[a].last, 4);
  arena.live_together(a, b);
  for (const Lifetime& life : arena.buffers()) {
    EXPECT_EQ(life.first, 2);
    EXPECT_EQ(life.last, 5);
  }
}

// Tasks: 0 computes, 1 communicates, 2 computes beside it, 3 reads what 1 brings.
const std::vector<Action> kActions{
    {0, Phase::run}, {1, Phase::start}, {2, Phase::run}, {1, Phase::wait}, {3, Phase::run}};

TEST(Queues, communications_have_their_own_on_an_asynchronous_device) {
  const std::vector<Enqueued> enqueued = on_queues(kActions, spans_of(kActions, 4), {0, 1, 0, 0});
  const auto& [first, start, beside, wait, last] =
      std::tie(enqueued[0], enqueued[1], enqueued[2], enqueued[3], enqueued[4]);
  EXPECT_EQ(start.queue, 1);
  EXPECT_EQ(start.after, 0) << "its operand is made by then";
  EXPECT_TRUE(first.signals);
  EXPECT_EQ(beside.queue, kComputing);
  EXPECT_EQ(beside.after, -1);
  EXPECT_EQ(wait.queue, kComputing);
  EXPECT_EQ(wait.after, 1) << "the computing queue waits for the communication";
  EXPECT_TRUE(start.signals);
  EXPECT_FALSE(last.signals);
}

// A gather over one set of axes is under way while a sum over others begins and ends.
TEST(Queues, communications_over_other_axes_have_another) {
  const std::vector<Action> actions{{0, Phase::start}, {1, Phase::run},  {2, Phase::start}, {2, Phase::wait},
                                    {3, Phase::run},   {0, Phase::wait}, {4, Phase::run}};
  const std::vector<Enqueued> enqueued = on_queues(actions, spans_of(actions, 5), {1, 0, 2, 0, 0});
  EXPECT_EQ(enqueued[0].queue, 1);
  EXPECT_EQ(enqueued[2].queue, 2);
  EXPECT_EQ(enqueued[2].after, 1) << "the sum waits for its operand, and not for the gather";
  EXPECT_EQ(enqueued[3].after, 2) << "the computing queue waits for the sum alone";
  EXPECT_EQ(enqueued[5].after, 0);
}

TEST(Queues, a_synchronous_device_has_one) {
  for (const Enqueued& enqueued : on_queues(kActions, spans_of(kActions, 4), {0, 0, 0, 0})) {
    EXPECT_EQ(enqueued.queue, kComputing);
    EXPECT_EQ(enqueued.after, -1);
    EXPECT_FALSE(enqueued.signals);
  }
}

}  // namespace
}  // namespace tessera::bind
