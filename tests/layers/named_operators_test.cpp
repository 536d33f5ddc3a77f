// Which operators a device's kernels take over is its library's answer: binding and the device seam compare no names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>

namespace tessera::layers {
namespace {

const std::filesystem::path kSources = TESSERA_SOURCE;

/// "FILE:LINE: …" of comparisons of a node's operator with a name.
std::vector<std::string> compared_names(const std::filesystem::path& folder) {
  static const std::regex comparison(R"re((\.|->)is\("|\bis\(\*?[\w.>-]+, "|op_type\s*[!=]=\s*"|[!=]=\s*"[A-Z]\w+")re");
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path());
    int number = 1;
    for (std::string line; std::getline(file, line); ++number)
      if (std::regex_search(line, comparison))
        found.push_back(entry.path().filename().string() + ":" + std::to_string(number) + ": " + line);
  }
  return found;
}

TEST(NamedOperators, are_for_libraries_of_kernels) {
  for (const char* folder : {"bind", "device"})
    EXPECT_THAT(compared_names(kSources / "src" / "tessera" / folder), testing::IsEmpty());
  EXPECT_THAT(compared_names(kSources / "src" / "tessera" / "kernels" / "cpu" / "product"),
              testing::Not(testing::IsEmpty()))
      << "the search finds such comparisons";
}

}  // namespace
}  // namespace tessera::layers
