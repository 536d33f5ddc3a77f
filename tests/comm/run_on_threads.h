#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <thread>
#include <vector>

#include "backend.h"

namespace tessera::comm {

/// Runs the body on every rank of a world, each on its own thread; returns what each rank threw ("" for nothing).
inline std::vector<std::string> errors_of_threads(World& world, const RankBody& body) {
  std::vector<std::string> errors(world.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world.size(); ++rank)
    threads.emplace_back([&world, &body, &errors, rank] {
      try {
        body(world, rank);
      } catch (const std::exception& error) {
        errors[rank] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

/// Runs the body on the ranks of a new local world. A rank that throws ends the others, and fails the test.
inline void run_on_threads(int ranks, const WorldOptions& options, const RankBody& body) {
  auto world = make_local_world(ranks, options);
  std::vector<std::string> errors = errors_of_threads(*world, [&](World&, int rank) {
    try {
      body(*world, rank);
    } catch (const std::exception& error) {
      world->abort(rank, error.what());
      throw;
    }
  });
  for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(errors[rank], "") << "on rank " << rank;
}

}  // namespace tessera::comm
