#include "tessera/compiler/annotations.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/compiler/places.h"
#include "tessera/ir/glob.h"
#include "tessera/onnx/export_record.h"
#include "tessera/ops/library/dims.h"
#include "tessera/rewrite/passes.h"

namespace tessera::compiler {
namespace {

[[noreturn]] void refuse_unknown(const OnnxModel& model, const AnnotationRequest& request) {
  fail("annotate", "'{}' matches no tensor of the model{} (`Inspection::weights` lists the parameters)",
       request.pattern, nearest_names(tensor_names(*model.graph), request.pattern));
}

bool may_name_stack(const AnnotationRequest& request) {
  return request.pattern.find(rewrite::kStackMark) != std::string::npos;
}

// A dimension along which the layout would cut the value within a byte.
std::optional<size_t> cut_within_bytes(const Value& value, const Sharding& sharding) {
  for (size_t d = 0; d < sharding.dims.size(); ++d)
    if (sharding.dims[d].is_split() && !ops::fills_bytes(value, static_cast<int64_t>(d))) return d;
  return std::nullopt;
}

// Applies requests to one rewritten model.
class AnnotationReader {
 public:
  AnnotationReader(const OnnxModel& read, const Graph& graph, const Mesh& mesh, std::vector<std::string>& warnings)
      : read_(read), graph_(graph), mesh_(mesh), warnings_(warnings) {}

  void read(const AnnotationRequest& request, const std::vector<std::string>& names) {
    if (request.is_labelled()) {
      for (const Value* value : rewrite::labelled_results(graph_))
        if (*rewrite::label_of(*value) == request.pattern) read_labelled(*value, request);
      return;
    }
    const size_t before = annotations_.size();
    std::vector<std::string> meant = names;
    for (const Value* state : graph_.values_of(ValueKind::state))
      if (!state->rows.empty() && glob_matches(request.pattern, state->name)) meant.push_back(state->name);
    if (meant.empty()) refuse_unstacked(request);
    for (const std::string& name : meant) read_named(name, request);
    if (annotations_.size() == before && !request.optional)
      fail("annotate",
           "'{}' matches {}, but none with {}{}, as '{}' has entries{}; write one entry per "
           "dimension",
           request.pattern, counted(names.size(), "tensor"), counted(request.entries(), "dimension"),
           request.has_ellipsis() ? " or more" : "", request.sharding, first_shapes(names));
  }
  std::vector<spmd::Annotation> take() { return std::move(annotations_); }

 private:
  void read_named(const std::string& name, const AnnotationRequest& request) {
    const Value* value = graph_.find(name);
    bool exact = request.pattern == name;
    if (!value || !value->has_shape() || value->kind == ValueKind::expression) {
      if (exact && !request.optional)
        fail("annotate",
             "'{}' is used in shape computation only, or not at all, so it has no layout; annotate a tensor "
             "that carries data",
             name);
      if (exact && request.sharding.find('{') != std::string::npos)
        warnings_.push_back(fmt::format(
            "{}: '{}' stays whole, because only sizes are computed from it, or nothing uses it", request.by, name));
      return;
    }
    // A glob may match tensors of several ranks; the number of entries selects those that are meant.
    if (!exact && (value->content || !request.fits(value->rank()))) return;
    Sharding sharding = parse_sharding(request.for_rank(value->rank()), value->shape(), mesh_, name);
    if (!sharding.at.empty())
      fail("annotate", "'{}': a tensor is where its node runs; remove at({}), and place the node: `places` '{}={}'",
           name, print_place(sharding.at, mesh_), name, request_of(sharding.at, mesh_));
    if (const auto cut = cut_within_bytes(*value, sharding))
      fail("annotate",
           "'{}' has elements of {} bits, and dimension {} of {} may be cut within bytes; leave that dimension "
           "whole",
           name, bits_of(value->dtype()), *cut, to_string(value->shape()));
    annotations_.push_back({value, std::move(sharding), request.by, request.optional});
  }

  // A copy in a body; one for each iteration if the loop is unrolled.
  void read_labelled(const Value& value, const AnnotationRequest& request) {
    const std::string& name = value.producer->input(0)->name;
    if (!request.fits(value.rank())) {
      if (request.is_one_of_many) return;
      if (!request.optional)
        fail("annotate", "'{}' has {}, but '{}' has {}; write one entry per dimension", name,
             counted(value.rank(), "dimension"), request.sharding, counted(request.entries(), "entry", "entries"));
      warnings_.push_back(fmt::format("{}: '{}' has {}, so it cannot have the layout {}; propagation decides",
                                      request.by, name, counted(value.rank(), "dimension"), request.sharding));
      return;
    }
    Sharding sharding = parse_sharding(request.for_rank(value.rank()), value.shape(), mesh_, name);
    if (const auto cut = cut_within_bytes(value, sharding))
      warnings_.push_back(
          fmt::format("{}: '{}' has elements of {} bits, and dimension {} of {} may be cut within bytes, so it "
                      "stays whole",
                      request.by, name, bits_of(value.dtype()), *cut, to_string(value.shape())));
    else
      annotations_.push_back({&value, std::move(sharding), request.by, request.optional});
  }

  // For a request that names nothing: the stack that it may mean was not made.
  void refuse_unstacked(const AnnotationRequest& request) {
    if (request.optional) {
      if (may_name_stack(request))
        warnings_.push_back(
            fmt::format("{}: the parameters '{}' are not stacked here; propagation decides their layout", request.by,
                        request.pattern));
      return;
    }
    std::string like = request.pattern;
    like.replace(like.find(rewrite::kStackMark), rewrite::kStackMark.size(), "*");
    for (const Value* state : read_.graph->values_of(ValueKind::state))
      if (glob_matches(like, state->name) && graph_.find(state->name))
        fail("annotate",
             "'{}' names no tensor: its parameters (such as '{}') are not stacked, because another option names one of "
             "them, or rewriting finds no mixture of experts; annotate them one by one",
             request.pattern, state->name);
    refuse_unknown(read_, request);
  }

  // ": 'up' is [8, 32], 'down' is [32, 8], …": the first tensors that carry data.
  std::string first_shapes(const std::vector<std::string>& names) const {
    constexpr int kMost = 3;
    std::string text;
    int listed = 0;
    for (const std::string& name : names) {
      const Value* value = graph_.find(name);
      if (!value || !value->has_shape() || value->kind == ValueKind::expression) continue;
      if (listed++ == kMost) return text + ", …";
      text += fmt::format("{} '{}' is {}", listed == 1 ? ":" : ",", name, to_string(value->shape()));
    }
    return text;
  }

  const OnnxModel& read_;
  const Graph& graph_;
  const Mesh& mesh_;
  std::vector<std::string>& warnings_;
  std::vector<spmd::Annotation> annotations_;
};

}  // namespace

std::vector<std::vector<std::string>> names_meant(const OnnxModel& model,
                                                  const std::vector<AnnotationRequest>& requests) {
  std::vector<std::vector<std::string>> names;
  if (requests.empty()) return names;
  const ExportRecord record(*model.graph);
  for (const AnnotationRequest& request : requests) {
    names.emplace_back();
    if (request.is_labelled()) {
      names.back().push_back(request.pattern);  // a branch that is not taken has none
    } else if (request.pattern.find('*') == std::string::npos && model.graph->find(request.pattern)) {
      names.back().push_back(request.pattern);
    } else {
      for (const auto& value : model.graph->values())
        if (record.matches(request.pattern, *value)) names.back().push_back(value->name);
    }
    if (names.back().empty() && !request.optional && !may_name_stack(request)) refuse_unknown(model, request);
  }
  return names;
}

std::vector<spmd::Annotation> read_annotations(const OnnxModel& read, const Graph& rewritten,
                                               const std::vector<AnnotationRequest>& requests,
                                               const std::vector<std::vector<std::string>>& names, const Mesh& mesh,
                                               std::vector<std::string>& warnings) {
  AnnotationReader reader(read, rewritten, mesh, warnings);
  for (size_t r = 0; r < names.size(); ++r) reader.read(requests[r], names[r]);
  return reader.take();
}

}  // namespace tessera::compiler
