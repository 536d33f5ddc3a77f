// Entries of plans that are made of names.
#include <fmt/ranges.h>

#include "tessera/base/error.h"
#include "tessera/compiler/requests.h"
#include "tessera/mesh/group.h"
#include "tessera/rules.h"

namespace tessera {
inline namespace v1 {
namespace {

void require_axis(std::string_view stage, const std::string& axis, const std::string& name) {
  if (!reads_as_axis(axis))
    fail(stage, "'{}': '{}' is not an axis; name one, as 'tp', or a sub-axis, as 'tp:(2)2'", name, axis);
}

// An entry is a text: what it says must be about that name.
void require_named(std::string_view stage, const std::string& name, const std::string& read) {
  if (read != name)
    fail(stage, "the entry of a plan cannot name '{}', which would be read as '{}'; rename the tensor, or use '*'",
         name, read);
}

}  // namespace

Plan::Annotation annotate(const std::string& name, const std::vector<std::vector<std::string>>& dims) {
  std::vector<std::string> entries;
  for (const std::vector<std::string>& axes : dims) {
    for (const std::string& axis : axes) require_axis("annotate", axis, name);
    const std::string all = fmt::format("{}", fmt::join(axes, ","));
    entries.push_back(axes.empty() ? "-" : axes.size() == 1 ? all : "{" + all + "}");
  }
  Plan::Annotation made{fmt::format("{}=[{}]", name, fmt::join(entries, ", "))};
  require_named("annotate", name, compiler::AnnotationRequest::parse(made.text, made.by).pattern);
  return made;
}

Plan::Annotation place(const std::string& name, const std::vector<std::pair<std::string, int64_t>>& axes) {
  std::vector<std::string> entries;
  for (const auto& [axis, index] : axes) {
    require_axis("place", axis, name);
    if (index < 0) fail("place", "'{}': axis '{}' has no index {}; an index is at least 0", name, axis, index);
    entries.push_back(fmt::format("{}:{}", axis, index));
  }
  Plan::Annotation made{fmt::format("{}={}", name, fmt::join(entries, ","))};
  require_named("place", name, compiler::PlaceRequest::parse(made.text, made.by).pattern);
  return made;
}

}  // namespace v1
}  // namespace tessera
