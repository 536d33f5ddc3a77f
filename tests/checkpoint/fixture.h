#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "data/user_error.h"
#include "io/temporary_folder.h"
#include "tessera/checkpoint/checkpoint.h"
#include "tessera/checkpoint/save.h"

namespace tessera::checkpoint {

using testing_data::expect_user_error;

/// Two tensors that tell their step: "w" of [4, 3], whose rows ranks 0 and 1 share, and the counter "t".
inline const TensorType kW{"w", DType::float32, {4, 3}}, kT{"t", DType::int64, {}};

inline std::vector<float> w_of(int64_t step) {
  std::vector<float> w(12);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(step) + static_cast<float>(i) / 16;
  return w;
}

inline const std::string kRun = "0123456789abcdef";

/// What one rank of two saves of a step.
inline std::optional<std::string> save_rank(const std::filesystem::path& folder, int64_t step, int64_t rank,
                                            const std::string& run = kRun) {
  const std::vector<float> w = w_of(step);
  RankFile file(folder, step, rank, run);
  file.add(kW, {{2 * rank, 0}, {2, 3}}, w.data() + 6 * rank);
  if (rank == 0) file.add(kT, {{}, {}}, &step);
  return file.finish();
}

inline Outcome save_step(const std::filesystem::path& folder, int64_t step, int64_t keep = 0,
                         const std::string& run = kRun) {
  for (int64_t rank : {0, 1})
    if (const auto failure = save_rank(folder, step, rank, run)) {
      discard(folder, step, run);
      return {false, *failure};
    }
  return commit(folder, {step, "model", {{"cursor", 32 * step}}, run}, 2, keep);
}

inline void expect_step(const Checkpoint& checkpoint, int64_t step) {
  EXPECT_EQ(checkpoint.facts().step, step);
  EXPECT_EQ(std::get<int64_t>(checkpoint.facts().scalars.at("cursor")), 32 * step);
  EXPECT_THAT(checkpoint.read("w").as<float>(), testing::ElementsAreArray(w_of(step)));
  EXPECT_THAT(checkpoint.read("t").as<int64_t>(), testing::ElementsAre(step));
}

/// The names of a folder's entries, hidden ones too, sorted.
inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tessera::checkpoint
