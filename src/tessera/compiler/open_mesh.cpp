#include "tessera/compiler/open_mesh.h"

#include <algorithm>
#include <regex>

#include "tessera/base/error.h"
#include "tessera/mesh/sharding.h"

namespace tessera::compiler {
namespace {

// A size is the text between '=' and ',' or the end.
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

int64_t size_with_places(const std::string& mesh, const std::vector<PlaceRequest>& places) {
  constexpr int64_t kLargest = 4096;
  for (int64_t size = 2; has_open_sizes(mesh) && size <= kLargest; ++size) {
    const Mesh closed = close_sizes(mesh, size);
    auto has = [&](const PlaceRequest& request) {
      try {
        parse_place(request.place, closed, request.pattern);
        return true;
      } catch (const Error&) {
        return false;
      }
    };
    if (std::all_of(places.begin(), places.end(), has)) return size;
  }
  return 2;
}

}  // namespace tessera::compiler
