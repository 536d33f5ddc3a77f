#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "io/temporary_folder.h"
#include "layers/includes.h"

namespace tessera::layers {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::filesystem::path kRoot = TESSERA_SOURCE;

// The one list, src/tessera/CMakeLists.txt's.
std::vector<std::string> listed_folders() {
  std::istringstream words(TESSERA_FOLDERS);
  return {std::istream_iterator<std::string>(words), {}};
}

TEST(Layers, files_include_what_stands_below_them) {
  EXPECT_THAT(wrong_includes(kRoot, listed_folders()), IsEmpty());
}

TEST(Layers, every_folder_is_listed) {
  EXPECT_THAT(unlisted_folders(kRoot, listed_folders()), IsEmpty());
}

TEST(Layers, the_map_has_the_folders_in_their_order) {
  static const std::regex row(R"(^\| `(src/tessera/)?([a-z_/]+)` \|.*)");
  std::ifstream map(kRoot / "docs" / "architecture.md");
  std::vector<std::string> rows;
  bool in_table = false;
  for (std::string line; std::getline(map, line);) {
    if (line.starts_with("## ")) in_table = line == "## The folders, bottom to top";
    if (std::smatch match; in_table && std::regex_match(line, match, row) && match[2] != "include/tessera/")
      rows.push_back(match[2]);
  }
  EXPECT_EQ(rows, listed_folders());
}

// A source tree of three folders in which some includes are wrong.
class WrongIncludes : public testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_.path() / path;
    std::filesystem::create_directories(file.parent_path());
    testing_io::put(file, text);
  }

  testing_io::TemporaryFolder root_;
  const std::vector<std::string> folders_ = {"base", "spmd", "spmd/presets"};
};

TEST_F(WrongIncludes, are_told_with_file_and_line) {
  put("src/tessera/base/error.cpp", "#include <string>\n#include \"tessera/base/error.h\"\n");
  put("src/tessera/base/error.h", "// up\n#include \"tessera/spmd/layout/layout.h\"\n");
  put("src/tessera/spmd/layout/layout.h", "#include \"tessera/base/error.h\"\n");
  EXPECT_THAT(wrong_includes(root_.path(), folders_),
              ElementsAre("src/tessera/base/error.h:2: base/ stands below spmd/, and must not include "
                          "\"tessera/spmd/layout/layout.h\""));
}

TEST_F(WrongIncludes, are_seen_between_a_folder_and_one_within_it) {
  put("src/tessera/spmd/layout/layout.cpp", "#include \"tessera/spmd/presets/presets.h\"\n");
  put("src/tessera/spmd/presets/presets.h", "#include \"tessera/spmd/layout/layout.h\"\n");
  EXPECT_THAT(
      wrong_includes(root_.path(), folders_),
      ElementsAre("src/tessera/spmd/layout/layout.cpp:1: spmd/ stands below spmd/presets/, and must not include "
                  "\"tessera/spmd/presets/presets.h\""));
}

TEST_F(WrongIncludes, are_seen_through_public_headers) {
  put("include/tessera/error.h", "#include <string>\n");
  put("include/tessera/tessera.h", "#include \"tessera/error.h\"\n#include \"tessera/spmd/layout/layout.h\"\n");
  put("src/tessera/base/error.h", "#include \"tessera/error.h\"\n#include \"tessera/tessera.h\"\n");
  EXPECT_THAT(wrong_includes(root_.path(), folders_),
              ElementsAre("src/tessera/base/error.h:2: base/ stands below spmd/, and must not include "
                          "\"tessera/tessera.h\""));
}

TEST_F(WrongIncludes, folder_that_is_not_listed_is_named) {
  put("src/tessera/base/error.h", "");
  put("src/tessera/attic/all.cpp", "");
  EXPECT_THAT(unlisted_folders(root_.path(), folders_), ElementsAre("tessera/attic"));
}

}  // namespace
}  // namespace tessera::layers
