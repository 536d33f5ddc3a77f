#include "train/closeness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace tessera::train {

void expect_close(const Differentiated& made, const Closeness& closeness) {
  const auto results = run_on_one(made.backward);
  for (const auto& [source, quotients] : difference_quotients(made, closeness.step)) {
    const auto found = results.find("grad." + source);
    // None means 0 everywhere.
    const std::vector<double> gradient =
        found == results.end() ? std::vector<double>(quotients.size(), 0) : doubles_of(found->second);
    if (found != results.end()) {
      EXPECT_EQ(found->second.dims, made.forward.inputs.at(source).dims) << made.forward.name;
      EXPECT_EQ(found->second.dtype, closeness.type) << made.forward.name;
    }
    ASSERT_EQ(gradient.size(), quotients.size()) << made.forward.name << ", by " << source;
    double largest = 1;
    for (double quotient : quotients) largest = std::max(largest, std::abs(quotient));
    for (size_t i = 0; i < quotients.size(); ++i)
      ASSERT_NEAR(gradient[i], quotients[i], closeness.relative * largest)
          << made.forward.name << ", by element " << i << " of " << source
          << "\nTESSERA_TEST_SEED=" << property::base_seed();
  }
}

}  // namespace tessera::train
