#include "tessera/ir/collective.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera {
namespace {

int64_t received_of(Collective kind, int64_t in, int64_t out, int64_t members) {
  return received(kind, in, out, members, [](int64_t whole, int64_t parts) { return whole / parts; });
}

TEST(Collectives, have_a_row_each) {
  for (const CollectiveTraits& row : collectives()) {
    EXPECT_EQ(&traits_of(row.kind), &row);
    EXPECT_EQ(collective_of_op(row.op), row.kind);
    EXPECT_EQ(name_of(row.kind), row.name);
  }
  EXPECT_FALSE(collective_of_op("AxisIndex"));
  EXPECT_THROW(traits_of(static_cast<Collective>(collectives().size())), Error);
}

// Four members and a tensor of 12: blocks are 3.
TEST(Collectives, tell_what_a_member_receives) {
  EXPECT_EQ(received_of(Collective::all_reduce, 12, 12, 4), 2 * 9);
  EXPECT_EQ(received_of(Collective::all_gather, 3, 12, 4), 9);
  EXPECT_EQ(received_of(Collective::gather, 3, 12, 4), 9);
  EXPECT_EQ(received_of(Collective::reduce_scatter, 12, 3, 4), 9);
  EXPECT_EQ(received_of(Collective::all_to_all, 12, 12, 4), 9);
  EXPECT_EQ(received_of(Collective::scatter, 12, 3, 4), 3);
  EXPECT_EQ(received_of(Collective::broadcast, 12, 12, 4), 12);
  EXPECT_EQ(received_of(Collective::reduce, 12, 12, 4), 12);
  EXPECT_EQ(received_of(Collective::permute, 12, 12, 4), 12);
  EXPECT_EQ(received_of(Collective::recv, 0, 12, 2), 12);
  EXPECT_EQ(received_of(Collective::send, 12, 0, 2), 0);
  EXPECT_EQ(received_of(Collective::barrier, 0, 0, 4), 0);
}

}  // namespace
}  // namespace tessera
