#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

/// The folder of ONNX's backend tests in Debian's libonnx-testdata, and our lists of them.
namespace tessera::conformance {

inline const std::filesystem::path kData = "/usr/share/libonnx-testdata/data";

/// "node/test_abs", in order.
inline std::vector<std::string> all_cases() {
  namespace fs = std::filesystem;
  std::vector<std::string> cases;
  if (!fs::exists(kData)) return cases;
  for (const auto& suite : fs::directory_iterator(kData))
    for (const auto& folder : fs::directory_iterator(suite))
      if (fs::exists(folder.path() / "model.onnx")) cases.push_back(fs::relative(folder, kData).string());
  std::sort(cases.begin(), cases.end());
  return cases;
}

/// The first word of each line that is not a comment, of a file beside the tests.
inline std::set<std::string> listed_cases(const char* file_name) {
  std::set<std::string> names;
  std::ifstream file(std::filesystem::path(TESSERA_TEST_DATA) / "conformance" / file_name);
  for (std::string line; std::getline(file, line);) {
    std::string name = line.substr(0, line.find_first_of(" \t"));
    if (!name.empty() && name[0] != '#') names.insert(name);
  }
  return names;
}

}  // namespace tessera::conformance
