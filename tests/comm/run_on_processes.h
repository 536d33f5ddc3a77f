#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend.h"

namespace tessera::comm {

/// Runs the body on every rank of a world of shared memory, each a process forked from this one, which must have no
/// other threads. Returns what each rank threw ("" for nothing); a test that fails there fails here.
inline std::vector<std::string> errors_of_processes(int ranks, const WorldOptions& options, const RankBody& body) {
  test_seed();  // one for all
  const int memory = create_shared_memory(ranks);
  std::fflush(nullptr);
  std::vector<std::pair<pid_t, int>> children;
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      std::string error;
      try {
        auto world = make_shared_world(memory, rank, options);
        body(*world, rank);
      } catch (const std::exception& thrown) {
        error = thrown.what();
      }
      const bool told = write(ends[1], error.data(), error.size()) == static_cast<ssize_t>(error.size());
      std::fflush(nullptr);
      _exit(told && !::testing::Test::HasFailure() ? 0 : 1);
    }
    close(ends[1]);
    children.emplace_back(child, ends[0]);
  }
  close(memory);
  std::vector<std::string> errors;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto [child, end] = children[rank];
    std::string error;
    char part[4096];
    for (ssize_t got = 0; (got = read(end, part, sizeof part)) > 0;) error.append(part, static_cast<size_t>(got));
    close(end);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "rank " << rank << " failed; see above";
    errors.push_back(std::move(error));
  }
  return errors;
}

/// The same; a rank that throws ends the others and fails the test.
inline void run_on_processes(int ranks, const WorldOptions& options, const RankBody& body) {
  const std::vector<std::string> errors = errors_of_processes(ranks, options, [&](World& world, int rank) {
    try {
      body(world, rank);
    } catch (const std::exception& error) {
      world.abort(rank, error.what());
      throw;
    }
  });
  for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(errors[rank], "") << "on rank " << rank;
}

}  // namespace tessera::comm
