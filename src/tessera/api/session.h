#pragma once

#include <unistd.h>

#include <memory>
#include <string>

#include "tessera/base/error.h"
#include "tessera/launch/loaded_program.h"
#include "tessera/parts/runner.h"
#include "tessera/tessera.h"

namespace tessera {
inline namespace v1 {

struct Session::Impl {
  std::optional<Program> made_of;                  ///< of a session of a program
  std::shared_ptr<launch::LoadedProgram> program;  ///< likewise
  std::unique_ptr<parts::Runner> runner;           ///< of a session of a model
  std::filesystem::path model;                     ///< likewise
  Plan plan;                                       ///< likewise
  pid_t process = ::getpid();                      ///< the process that has the ranks' threads

  /// The program that the session has loaded. If the model is compiled when it runs and has not run yet, throws a user
  /// error that says there are no `what`.
  std::shared_ptr<launch::LoadedProgram> loaded(std::string_view what) const;
  Tensors run(const Tensors& inputs, const RunLimits& limits, Tensors outputs = {}) const;
};

}  // namespace v1

namespace api {

/// The session's implementation. Throws a user error if the session was moved from, or made before this process was
/// forked.
template <typename Impl>
Impl& of(const std::shared_ptr<Impl>& session) {
  if (!session) fail("session", "the session was moved from; use the one that it was moved to");
  if (session->process != ::getpid())
    fail("session", "the session's threads are in the process that this one was forked from; make a session here");
  return *session;
}

}  // namespace api
}  // namespace tessera
