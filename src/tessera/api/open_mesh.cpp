#include "tessera/api/open_mesh.h"

#include <regex>

namespace tessera::api {
namespace {

// A size is what stands between '=' and ',' or the end.
const std::regex& open_size() {
  static const std::regex pattern(R"(=\s*\?\s*(?=,|$))");
  return pattern;
}

}  // namespace

bool has_open_sizes(const std::string& mesh) {
  return std::regex_search(mesh, open_size());
}

Mesh close_sizes(const std::string& mesh, int64_t size) {
  return Mesh::parse(std::regex_replace(mesh, open_size(), "=" + std::to_string(size)));
}

}  // namespace tessera::api
