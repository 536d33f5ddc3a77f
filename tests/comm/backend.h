#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tessera/comm/communicator.h"

/// A backend under test, and what tests of all backends need.
namespace tessera::comm {

using RankBody = std::function<void(World& world, int rank)>;
/// A backend for the suite.
struct Backend {
  std::string_view name;
  /// Runs the body on `ranks` ranks at once, and returns when all have ended. A body that throws fails the test. If
  /// ranks are processes, each runs the body for its own rank; ranks share only the body's captures.
  void (*on_ranks)(int ranks, const RankBody& body);
  /// Whether sums are taken in member order. Otherwise the library orders them, the same way in every run, and only
  /// sums that are exact in any order have predictable bits.
  bool member_order = true;

  friend std::ostream& operator<<(std::ostream& stream, const Backend& backend) { return stream << backend.name; }
};

inline std::string name_of_backend(const ::testing::TestParamInfo<Backend>& info) {
  return std::string(info.param.name);
}

/// The seed of a random test: TESSERA_TEST_SEED, or a new one. Printed, and the same on all ranks of one process.
inline uint64_t test_seed() {
  static const uint64_t seed = [] {
    const char* given = std::getenv("TESSERA_TEST_SEED");
    uint64_t chosen = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    std::cout << "TESSERA_TEST_SEED=" << chosen << std::endl;
    return chosen;
  }();
  return seed;
}

/// Sleeps up to 200 microseconds every other time, so that ranks come in any order.
class Dawdle {
 public:
  explicit Dawdle(int rank) : random_(test_seed() + static_cast<uint64_t>(rank)) {}
  void operator()() {
    uint64_t word = random_();
    if (word & 1) std::this_thread::sleep_for(std::chrono::microseconds((word >> 1) % 200));
  }
  std::mt19937_64& random() { return random_; }

 private:
  std::mt19937_64 random_;
};

inline std::vector<int> everyone(int ranks) {
  std::vector<int> members(ranks);
  std::iota(members.begin(), members.end(), 0);
  return members;
}

}  // namespace tessera::comm
