#include "tessera/base/bytes_text.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

constexpr size_t kGiB = size_t{1} << 30;

TEST(BytesText, has_one_digit) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1.0 KiB");
  EXPECT_EQ(bytes_text(12.5 * 1024 * 1024), "12.5 MiB");
}

TEST(ComparedBytes, have_as_many_digits_as_it_takes) {
  const auto texts = [](size_t a, size_t b) {
    const ComparedBytes both = compared_bytes(a, b);
    return both.first + " and " + both.second;
  };
  EXPECT_EQ(texts(4 * kGiB, 3 * kGiB), "4.0 GiB and 3.0 GiB");
  EXPECT_EQ(texts(3 * kGiB + (44 << 20), 3 * kGiB), "3.04 GiB and 3.00 GiB");
  EXPECT_EQ(texts(3 * kGiB + (4 << 20), 3 * kGiB), "3.004 GiB and 3.000 GiB");
  EXPECT_EQ(texts(3 * kGiB + 1, 3 * kGiB), "3221225473 B and 3221225472 B");
  EXPECT_EQ(texts(3 * kGiB, 3 * kGiB), "3.0 GiB and 3.0 GiB");
}

// Whatever two sizes are, no message says that one is more than what prints alike.
TEST(ComparedBytes, differ_if_the_sizes_do) {
  for (size_t a = 1; a < 64 * kGiB; a = a * 3 / 2 + 1)
    for (size_t difference = 1; difference <= a; difference = difference * 7 + 1) {
      const ComparedBytes both = compared_bytes(a, a - difference);
      EXPECT_NE(both.first, both.second) << a << " " << difference;
    }
}

}  // namespace
}  // namespace tessera
