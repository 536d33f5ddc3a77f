#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <string>

#include "tessera/base/error.h"

namespace tessera::testing_data {

/// Expects a user error whose message has all `parts`.
inline void expect_user_error(const std::function<void()>& action, std::initializer_list<std::string> parts) {
  try {
    action();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    for (const std::string& part : parts) EXPECT_THAT(error.what(), testing::HasSubstr(part));
  }
}

}  // namespace tessera::testing_data
