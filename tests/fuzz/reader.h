#pragma once

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "tessera/base/error.h"

namespace tessera::fuzz {

/// Runs a reader on damaged input. It may accept it, or throw a user's error; anything else (another exception, a
/// broken invariant) ends the process, so that the fuzzer keeps the input.
template <typename Read>
void run(Read read) {
  try {
    read();
    return;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::user) return;
    std::fprintf(stderr, "not a user's error: %s\n", error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "not a tessera::Error: %s\n", error.what());
  }
  std::abort();
}

}  // namespace tessera::fuzz
