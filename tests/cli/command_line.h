#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/small_model.h"
#include "cli/run_command.h"
#include "tessera/io/npz.h"

namespace tessera {

using nlohmann::json;
using test::kPair;
using test::Ran;
using test::TemporaryFolder;
using test::write_model;
using testing::AllOf;
using testing::HasSubstr;
using testing_io::contents;

/// The commands.
inline const std::vector<std::string> kCommands = {
    "inspect", "run",  "generate",   "train",    "shard",     "annotate", "infer", "check",  "verify",  "bench",
    "explain", "info", "bench comm", "simulate", "calibrate", "whatif",   "plan",  "report", "schedule"};

/// Runs the binary as a person would, on a small model.
class CommandLine : public testing::Test {
 protected:
  // Words are for the shell: quote what it would read.
  Ran tessera(const std::string& words) {
    return test::run_command(std::string(TESSERA_BINARY) + " " + words, folder_);
  }

  // The message of a user's mistake.
  std::string mistake(const std::string& words) {
    Ran ran = tessera(words);
    EXPECT_EQ(ran.code, 2) << words << "\n" << ran.out << ran.err;
    EXPECT_EQ(ran.out, "") << words;
    return ran.err;
  }

  json parsed(const std::string& words, int code = 0) {
    Ran ran = tessera(words + " --json");
    EXPECT_EQ(ran.code, code) << words << "\n" << ran.err;
    json object = json::parse(ran.out, nullptr, false);
    EXPECT_TRUE(object.is_object()) << ran.out;
    return object;
  }

  std::string npz(const char* name, const std::string& array, Tensor tensor) {
    write_npz(folder_ / name, {{array, std::move(tensor)}});
    return (folder_ / name).string();
  }

  TemporaryFolder folder_;
  std::string model_ = write_model(folder_, kPair).string();
};

}  // namespace tessera
