#include "tessera/compiler/requests.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/compiler/places.h"
#include "tessera/ir/glob.h"
#include "tessera/mesh/sharding.h"
#include "tessera/pipeline.h"
#include "tessera/rewrite/passes.h"

namespace tessera::compiler {

AnnotationRequest AnnotationRequest::parse(std::string_view text, std::string_view by, std::string_view stage) {
  size_t bracket = text.find_last_of('[');
  size_t equals = bracket == std::string_view::npos ? std::string_view::npos : text.rfind('=', bracket);
  if (equals == std::string_view::npos || equals == 0)
    fail(stage, "'{}' is not an annotation; write NAME=[d, …] with one entry per dimension, as 'h.*.weight=[-, tp]'",
         text);
  auto trim = [](std::string_view piece) {
    while (piece.ends_with(' ')) piece.remove_suffix(1);
    while (piece.starts_with(' ')) piece.remove_prefix(1);
    return std::string(piece);
  };
  return {trim(text.substr(0, equals)), trim(text.substr(equals + 1)), std::string(by)};
}

namespace {

// The entries between the brackets.
std::vector<std::string_view> entries_of(std::string_view sharding) {
  std::vector<std::string_view> entries;
  const size_t open = sharding.find('['), end = sharding.find(']');
  if (open == std::string_view::npos || end == std::string_view::npos) return entries;
  int depth = 0;
  size_t begin = open + 1;
  for (size_t at = begin; at <= end; ++at) {
    const char c = sharding[at];
    if (c == '{' || c == '(') ++depth;
    if (c == '}' || c == ')') --depth;
    if (at != end && (c != ',' || depth != 0)) continue;
    std::string_view entry = sharding.substr(begin, at - begin);
    while (entry.ends_with(' ')) entry.remove_suffix(1);
    while (entry.starts_with(' ')) entry.remove_prefix(1);
    if (!entry.empty() || at != end || !entries.empty()) entries.push_back(entry);
    begin = at + 1;
  }
  return entries;
}

constexpr std::string_view kEllipsis = "...";

}  // namespace

bool AnnotationRequest::has_ellipsis() const {
  const auto all = entries_of(sharding);
  return std::find(all.begin(), all.end(), kEllipsis) != all.end();
}

size_t AnnotationRequest::entries() const {
  const auto all = entries_of(sharding);
  return all.size() - static_cast<size_t>(std::count(all.begin(), all.end(), kEllipsis));
}

bool AnnotationRequest::is_labelled() const {
  return pattern.starts_with(rewrite::kLabelPrefix);
}

bool AnnotationRequest::fits(size_t rank) const {
  return has_ellipsis() ? rank >= entries() : rank == entries();
}

std::string AnnotationRequest::for_rank(size_t rank) const {
  const auto all = entries_of(sharding);
  if (!has_ellipsis() || rank < entries()) return sharding;
  if (std::count(all.begin(), all.end(), kEllipsis) > 1)
    fail("annotate", "'{}={}' has '...' twice; write it once", pattern, sharding);
  std::vector<std::string> full;
  for (std::string_view entry : all) {
    if (entry == kEllipsis)
      full.insert(full.end(), rank - entries(), "-");
    else
      full.emplace_back(entry);
  }
  return fmt::format("[{}]{}", fmt::join(full, ", "), sharding.substr(sharding.find(']') + 1));
}

bool AnnotationRequest::keeps_whole(const Value& state) const {
  if (pattern == state.name) return true;
  return glob_matches(pattern, state.name) && !glob_matches(pattern, state.name + ".0") && fits(state.rank());
}

PlaceRequest PlaceRequest::parse(std::string_view text, std::string_view by) {
  size_t equals = text.find('=');
  while (equals != std::string_view::npos && !reads_as_place(text.substr(equals + 1)))
    equals = text.find('=', equals + 1);
  if (equals == std::string_view::npos) equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == text.size())
    fail("place", "'{}' is not a place; write NAME=AXIS:INDEX, as 'h.1.*=pp:1'", text);
  return {std::string(text.substr(0, equals)), std::string(text.substr(equals + 1)), std::string(by)};
}

std::optional<PipelineRequest> PipelineRequest::parse(const std::string& schedule, const std::string& stages,
                                                      const Mesh& mesh, const std::vector<PlaceRequest>& places) {
  if (schedule.empty() && stages.empty()) return std::nullopt;
  const std::string given = schedule.empty() ? "`stages` " + stages : "`pipeline` " + schedule;
  if (!mesh.find(kPipelineAxis))
    fail("pipeline", "{} needs an axis '{}' in the mesh, and {} has none; add it, as {}=2", given, kPipelineAxis,
         mesh.axes().empty() ? "one rank" : mesh.str(), kPipelineAxis);
  for (const PlaceRequest& place : places)
    for (const PlacedAxis& entry : parse_place(place.place, mesh, place.pattern))
      if (entry.axis.axis == kPipelineAxis)
        fail("pipeline",
             "{} places all nodes along '{}', and so does `places` '{}={}' with some; leave one of the two out", given,
             kPipelineAxis, place.pattern, place.place);
  PipelineRequest request{schedule, stages};
  request.blocks();
  return request;
}

std::vector<int64_t> PipelineRequest::blocks() const {
  if (stages.empty() || stages == "auto") return {};
  std::vector<int64_t> blocks;
  const char *at = stages.data(), *const end = at + stages.size();
  while (true) {
    int32_t number = -1;
    const auto [next, error] = std::from_chars(at, end, number);
    const bool is_number = error == std::errc() && number >= 0;
    if (is_number) blocks.push_back(number);
    if (is_number && next == end) return blocks;
    if (!is_number || *next != ',')
      fail("pipeline", "`stages` {}: write auto, or the number of blocks in each stage, as 7,9,9,7", stages);
    at = next + 1;
  }
}

}  // namespace tessera::compiler
