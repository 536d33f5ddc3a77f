#include "tessera/comm/fault.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera::comm {
namespace {

TEST(Fault, is_read_from_its_words) {
  const Fault fault = Fault::parse("rank=3,operation=12,do=stall");
  EXPECT_EQ(fault.rank, 3);
  EXPECT_EQ(fault.operation, 12);
  EXPECT_EQ(fault.act, Fault::Act::stall);
  EXPECT_EQ(fault.after.count(), 0);
  EXPECT_EQ(Fault::parse("after=250,do=die").after.count(), 250);
  EXPECT_EQ(Fault::parse("do=throw").act, Fault::Act::fail);
  EXPECT_EQ(Fault::parse("do=exit").act, Fault::Act::leave);
  for (const char* wrong : {"rank", "rank=", "rank=x", "operation=1.5", "do=nothing", "seconds=3"}) try {
      Fault::parse(wrong);
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user);
      EXPECT_THAT(error.what(), testing::HasSubstr("write rank=1,operation=5,do=die"));
    }
}

}  // namespace
}  // namespace tessera::comm
