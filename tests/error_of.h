#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tessera/base/error.h"

namespace tessera::test {

/// The message of the error that `call` throws, which must be of that kind; "no error" if it throws none.
template <typename Call>
std::string error_of(Call&& call, ErrorKind kind = ErrorKind::user) {
  try {
    std::forward<Call>(call)();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "no error";
}

}  // namespace tessera::test
