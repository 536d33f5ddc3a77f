#include "tessera/compiler/compile.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/compiler/body_annotations.h"
#include "tessera/compiler/places.h"
#include "tessera/compiler/shared_states.h"
#include "tessera/ir/glob.h"
#include "tessera/ir/on_demand.h"
#include "tessera/ir/regions.h"
#include "tessera/ir/text.h"
#include "tessera/onnx/export_record.h"
#include "tessera/onnx/file_facts.h"
#include "tessera/ops/library/dims.h"
#include "tessera/passes/pipeline.h"
#include "tessera/rewrite/passes.h"
#include "tessera/rewrite/pipeline.h"
#include "tessera/rewrite/precision.h"
#include "tessera/spmd/decide/finer.h"
#include "tessera/spmd/decide/idle.h"
#include "tessera/spmd/partition/partition.h"
#include "tessera/spmd/presets/stored.h"
#include "tessera/spmd/print.h"

namespace tessera::compiler {

namespace {

[[noreturn]] void refuse_unknown(const OnnxModel& model, const AnnotationRequest& request) {
  fail("annotate", "'{}' matches no tensor of the model{} (tessera inspect --weights lists the parameters)",
       request.pattern, nearest_names(tensor_names(*model.graph), request.pattern));
}

bool may_name_stack(const AnnotationRequest& request) {
  return request.pattern.find(rewrite::kStackMark) != std::string::npos;
}

// The names that each request means, in the model as it was read; none if it may name a stack that rewriting makes. A
// parameter may be named as the model that was exported names it.
std::vector<std::vector<std::string>> expand(const OnnxModel& model, const std::vector<AnnotationRequest>& requests) {
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

// States that a request names stay whole. A wildcard means those that it fits, or the pieces that it reaches as well.
bool keeps_whole(const AnnotationRequest& request, const Value& state) {
  if (request.pattern == state.name) return true;
  return glob_matches(request.pattern, state.name) && !glob_matches(request.pattern, state.name + ".0") &&
         request.fits(state.rank());
}

class Compiler {
 public:
  Compiler(const OnnxModel& model, const OnnxModel* rewritten, const CompileOptions& options)
      : read_(model), is_rewritten_(rewritten != nullptr), options_(options) {
    result_.model = std::make_unique<OnnxModel>((rewritten ? *rewritten : model).clone());
    if (options.sharing) shared_.emplace(*options.sharing);
  }

  Compiled run() {
    auto names = expand(read_, options_.annotations);
    const NodePlaces asked(*read_.graph, options_.places, options_.mesh);
    if (!is_rewritten_) rewrite(names);
    make_next_values();
    lower_precision();
    require_supported();
    hints_ = symbol_values(read_, &graph(), options_.shapes, &result_.notes);
    note_device_annotations();
    auto annotations = read_annotations(names);
    drop_labels();
    std::multimap<const Value*, Sharding> cuts;
    for (const spmd::Annotation& annotation : annotations) cuts.emplace(annotation.value, annotation.sharding);
    const spmd::Places places = asked.in(graph());
    refuse_contradictions(annotations, places, options_.mesh, result_.warnings);
    choose_presets();
    const spmd::Storage ordered = read_storage();
    lay_out(annotations, cuts, places, ordered);
    observe("propagate", [this] { return propagated_text(); });
    keep_gathered();
    review_presets();
    for (std::string& warning : spmd::idle_ranks(*result_.layout, result_.decisions, options_.mesh, hints_))
      result_.warnings.push_back(std::move(warning));
    result_.program = std::make_shared<spmd::Program>(
        spmd::partition(graph(), *result_.layout, result_.decisions, options_.mesh, hints_));
    if (shared_) shared_->require_alike(*result_.program);
    observe("partition", [this] { return spmd::print_program(*result_.program); });
    passes::Context context{options_.topology, result_.notes, options_.recompute, options_.bucket_bytes,
                            options_.ring_attention};
    for (const passes::Pass& pass : passes::passes()) {
      pass.run(*result_.program, context);
      spmd::verify(*result_.program, pass.name);
      observe(pass.name, [this] { return spmd::print_program(*result_.program); });
    }
    return std::move(result_);
  }

 private:
  const Graph& graph() const { return *result_.model->graph; }

  void observe(std::string_view stage, const std::function<std::string()>& text) {
    if (options_.observe) options_.observe(stage, text);
  }

  void note_device_annotations() {
    FileFacts facts = file_facts(read_);
    if (facts.annotated_nodes == 0) return;
    result_.warnings.push_back(fmt::format(
        "the file's device configurations ({} nodes) are not applied, since a mesh is given; leave it out to "
        "follow them",
        facts.annotated_nodes));
  }

  // Finds all layouts by the operators' first rules. Where finer rules would split some nodes more evenly, it finds
  // them once more with these, and keeps the cheaper ones.
  void lay_out(const std::vector<spmd::Annotation>& annotations, const std::multimap<const Value*, Sharding>& cuts,
               const spmd::Places& places, const spmd::Storage& ordered) {
    const auto once = [&](const std::set<const Node*>& finer) {
      storage_ = spmd::stored_by_presets(graph(), presets_, ordered);
      storage_.insert(ordered.begin(), ordered.end());
      annotations_ = annotations;
      result_.layout = std::make_unique<spmd::Layout>(graph(), hints_, cuts, places, storage_, finer);
      apply_presets();
      spmd::store_as_computed(storage_, graph(), annotations_, ordered);
      result_.propagation = spmd::propagate(*result_.layout, annotations_, options_.mesh, storage_);
      for (const std::string& line : result_.propagation.approximated) result_.warnings.push_back(line);
      result_.decisions = spmd::decide(graph(), *result_.layout, options_.mesh, hints_, annotations_, storage_);
    };
    const auto work = [&] {
      return spmd::busiest_work(graph(), *result_.layout, result_.decisions, options_.mesh, hints_);
    };
    const std::vector<std::string> warnings = result_.warnings, notes = result_.notes;
    once({});
    const auto uneven = spmd::nodes_for_finer_rules(*result_.layout, result_.decisions, hints_);
    if (uneven.empty()) return;
    const double before = work();
    std::tuple first(std::move(result_.layout), std::move(result_.propagation), std::move(result_.decisions), storage_,
                     annotations_, std::exchange(result_.warnings, warnings), std::exchange(result_.notes, notes));
    once(uneven);
    if (work() < before) return;
    std::tie(result_.layout, result_.propagation, result_.decisions, storage_, annotations_, result_.warnings,
             result_.notes) = std::move(first);
  }

  // The rewritten model, each tensor with the layout that it got; of a source, that of its first use.
  std::string propagated_text() const {
    TextOptions text;
    text.types = true;
    text.annotate = [this](const Value& value) -> std::string {
      auto slots = result_.layout->of_value.find(&value);
      if (slots == result_.layout->of_value.end()) return "";
      Sharding sharding = result_.layout->slots[slots->second.front()].sharding();
      return sharding.is_replicated() ? "" : sharding.str(options_.mesh);
    };
    return print_text(*result_.model, text);
  }

  void rewrite(const std::vector<std::vector<std::string>>& names) {
    rewrite::RewriteOptions options;
    std::set<std::string> exact(options_.keep.begin(), options_.keep.end());
    std::map<std::string, std::vector<const AnnotationRequest*>> globs;  // by the tensors that they reach
    for (size_t r = 0; r < names.size(); ++r) {
      const AnnotationRequest& request = options_.annotations[r];
      for (const std::string& name : names[r])
        if (name == request.pattern)
          exact.insert(name);
        else
          globs[name].push_back(&request);
    }
    for (const AnnotationRequest& request : options_.storage)
      for (const Value* state : result_.model->graph->values_of(ValueKind::state))
        if (keeps_whole(request, *state)) exact.insert(state->name);
    if (shared_) exact.insert(shared_->undivided().begin(), shared_->undivided().end());
    options.barriers = exact;
    for (const auto& [name, requests] : globs) options.candidates.insert(name);
    options.is_barrier = [&](const Value& value) {
      const auto requests = globs.find(value.name);  // none for what has lost its label: it is known by now
      return requests != globs.end() && !value.content &&
             std::any_of(requests->second.begin(), requests->second.end(),
                         [&](const auto* request) { return request->fits(value.rank()); });
    };
    options.observe = [this](std::string_view pass, const OnnxModel& model) {
      observe(pass, [&model] { return print_text(model); });
    };
    observe("import", [this] { return print_text(*result_.model); });
    rewrite::rewrite_model(*result_.model, options);
  }

  // Sizes that a state takes are a node's result, as outputs are.
  void make_next_values() {
    Graph& graph = *result_.model->graph;
    for (const auto& value : std::vector<Value*>(graph.values_of(ValueKind::state))) {
      Value* next = value->next;
      if (!next || next->kind != ValueKind::expression) continue;
      Value* made = graph.add_node("Identity", {next}, {value->name + ".next"})->outputs[0];
      made->type = next->type;
      graph.set_next(value, made);
    }
  }

  void lower_precision() {
    if (options_.compute == DType::float32) return;
    if (options_.compute != DType::bfloat16 && options_.compute != DType::float16)
      fail("precision", "models compute in float32, bfloat16 or float16, not in {}; name one of these",
           name_of(options_.compute));
    for (const auto& value : graph().values())
      if (value->next && !rewrite::only_moves(*value))
        fail("precision",
             "the state '{}' changes, and each step would round it; leave out --dtype, or cast the states to {} in the "
             "model",
             value->name, name_of(options_.compute));
    rewrite::lower_precision(*result_.model, options_.compute);
    observe("lower_precision", [this] { return print_text(*result_.model); });
  }

  // What later stages take for granted, refused here where the message can name the place.
  void require_supported() const {
    for (const Value* input : graph().inputs)
      if (!input->has_shape() || input->dtype() == DType::undefined)
        fail("import", "input '{}' has no element type or no rank in the file; state them (dimensions may be symbols)",
             input->name);
    for (const auto& value : graph().values()) {
      const Value* next = value->next;
      if (next && (next->dtype() != value->dtype() || !next->has_shape() || next->shape() != value->shape()))
        fail("state", "the state '{}' is {} {}, but its next value '{}' is {} {}; they must have one type", value->name,
             name_of(value->dtype()), to_string(value->shape()), next->name, name_of(next->dtype()),
             next->has_shape() ? to_string(next->shape()) : "of unknown shape");
    }
  }

  // A copy in a body, of each iteration if the loop is written out.
  void read_labelled(const Value& value, const AnnotationRequest& request, std::vector<spmd::Annotation>& annotations) {
    const std::string& name = value.producer->input(0)->name;
    if (!request.fits(value.rank())) {
      if (request.is_one_of_many) return;
      if (!request.optional)
        fail("annotate", "'{}' has {} dimensions, but '{}' has {} entries; write one entry per dimension", name,
             value.rank(), request.sharding, request.entries());
      result_.warnings.push_back(
          fmt::format("{}: '{}' has {} dimensions, so that it cannot have the layout {}; propagation decides there",
                      request.by, name, value.rank(), request.sharding));
      return;
    }
    Sharding sharding = parse_sharding(request.for_rank(value.rank()), value.shape(), options_.mesh, name);
    if (const auto cut = cut_within_bytes(value, sharding))
      result_.warnings.push_back(
          fmt::format("{}: '{}' has elements of {} bits, and dimension {} of {} may be cut within bytes, so that it "
                      "stays whole",
                      request.by, name, bits_of(value.dtype()), *cut, to_string(value.shape())));
    else
      annotations.push_back({&value, std::move(sharding), request.by, request.optional});
  }

  /// A dimension along which the value would be cut within a byte.
  static std::optional<size_t> cut_within_bytes(const Value& value, const Sharding& sharding) {
    for (size_t d = 0; d < sharding.dims.size(); ++d)
      if (sharding.dims[d].is_split() && !ops::fills_bytes(value, static_cast<int64_t>(d))) return d;
    return std::nullopt;
  }

  void drop_labels() {
    for (const Value* value : rewrite::labelled_results(graph())) {
      result_.labels.emplace(value, *rewrite::label_of(*value));
      value->producer->remove_attribute(rewrite::kLabel);
    }
  }

  std::vector<spmd::Annotation> read_annotations(const std::vector<std::vector<std::string>>& names) {
    std::vector<spmd::Annotation> annotations;
    for (size_t r = 0; r < names.size(); ++r) {
      const AnnotationRequest& request = options_.annotations[r];
      const size_t before = annotations.size();
      if (request.is_labelled()) {
        for (const Value* value : rewrite::labelled_results(graph()))
          if (*rewrite::label_of(*value) == request.pattern) read_labelled(*value, request, annotations);
        continue;
      }
      std::vector<std::string> meant = names[r];
      for (const Value* state : graph().values_of(ValueKind::state))
        if (!state->rows.empty() && glob_matches(request.pattern, state->name)) meant.push_back(state->name);
      if (meant.empty()) refuse_unstacked(request);
      for (const std::string& name : meant) {
        const Value* value = graph().find(name);
        bool exact = request.pattern == name;
        if (!value || !value->has_shape() || value->kind == ValueKind::expression) {
          if (exact && !request.optional)
            fail("annotate",
                 "'{}' is used in shape computation only, or not at all, so that it has no layout; annotate a tensor "
                 "that carries data",
                 name);
          if (exact && request.sharding.find('{') != std::string::npos)
            result_.warnings.push_back(fmt::format(
                "{}: '{}' stays whole, since only sizes are computed from it, or nothing needs it", request.by, name));
          continue;
        }
        // A glob may reach tensors of several ranks; the bracket's entries say which are meant.
        if (!exact && (value->content || !request.fits(value->rank()))) continue;
        Sharding sharding = parse_sharding(request.for_rank(value->rank()), value->shape(), options_.mesh, name);
        if (!sharding.at.empty())
          fail("annotate",
               "'{}': a tensor is where its node runs; leave out at({}), and place the node: --place '{}={}'", name,
               print_place(sharding.at, options_.mesh), name, request_of(sharding.at, options_.mesh));
        if (const auto cut = cut_within_bytes(*value, sharding))
          fail("annotate",
               "'{}' has elements of {} bits, and dimension {} of {} may be cut within bytes; leave that dimension "
               "whole",
               name, bits_of(value->dtype()), *cut, to_string(value->shape()));
        annotations.push_back({value, std::move(sharding), request.by, request.optional});
      }
      if (annotations.size() == before && !request.optional)
        fail("annotate",
             "'{}' matches {} tensors, but none with {} dimensions{}, as '{}' has entries{}; write one entry per "
             "dimension",
             request.pattern, names[r].size(), request.entries(), request.has_ellipsis() ? " or more" : "",
             request.sharding, first_shapes(names[r]));
    }
    return annotations;
  }

  // For a request that names nothing: what it might mean is not stacked.
  void refuse_unstacked(const AnnotationRequest& request) {
    if (request.optional) {
      if (may_name_stack(request))
        result_.warnings.push_back(
            fmt::format("{}: the parameters '{}' are not stacked here; propagation decides their layout", request.by,
                        request.pattern));
      return;
    }
    std::string like = request.pattern;
    like.replace(like.find(rewrite::kStackMark), rewrite::kStackMark.size(), "*");
    for (const Value* state : read_.graph->values_of(ValueKind::state))
      if (glob_matches(like, state->name) && graph().find(state->name))
        fail("annotate",
             "'{}' names no tensor: its parameters, as '{}', are not stacked, since another option names one of them, "
             "or rewriting finds no mixture of experts; annotate them one by one",
             request.pattern, state->name);
    refuse_unknown(read_, request);
  }

  // How states are stored, where the program that shares them or the caller has said so; the first request for a state
  // counts. One may be about states of the other program only.
  spmd::Storage read_storage() const {
    spmd::Storage storage = shared_ ? shared_->storage_in(graph()) : spmd::Storage();
    if (options_.storage.empty()) return storage;
    const ExportRecord record(graph());
    std::vector<std::string_view> states;
    for (const Value* state : graph().values_of(ValueKind::state)) states.push_back(state->name);
    for (const AnnotationRequest& request : options_.storage) {
      bool reached = false, fitted = false;
      for (const Value* state : graph().values_of(ValueKind::state)) {
        if (!record.matches(request.pattern, *state)) continue;
        reached = true;
        if (request.pattern != state->name && !request.fits(state->rank())) continue;
        Sharding sharding = parse_sharding(request.for_rank(state->rank()), state->shape(), options_.mesh, state->name);
        if (!sharding.at.empty() || sharding.is_partial())
          fail("store", "'{}': what is stored is neither partial nor placed; name the axes of its dimensions only",
               request.pattern + "=" + request.sharding);
        fitted = true;
        storage.emplace(state, std::move(sharding));
      }
      if (!reached && !shared_)
        fail("store",
             "'{}' matches no state or parameter of the model{} (tessera inspect --weights lists the parameters)",
             request.pattern, nearest_names(states, request.pattern));
      if (!fitted && !shared_)
        fail("store",
             "'{}' matches states, but none with {} dimensions{}, as '{}' has entries; write one entry per "
             "dimension, or '...' for those that stay whole",
             request.pattern, request.entries(), request.has_ellipsis() ? " or more" : "", request.sharding);
    }
    return storage;
  }

  // All uses of these states, and of what is made of these alone, share one gathering.
  void keep_gathered() {
    if (options_.keep_gathered.empty()) return;
    spmd::Storage anew = storage_;
    std::vector<std::string_view> names;
    for (const auto& [state, sharding] : storage_) names.push_back(state->name);
    std::sort(names.begin(), names.end());
    for (const std::string& pattern : options_.keep_gathered) {
      const size_t before = anew.size();
      std::erase_if(anew, [&](const auto& entry) { return glob_matches(pattern, entry.first->name); });
      const auto matches = [&](std::string_view name) { return glob_matches(pattern, name); };
      if (anew.size() == before && std::none_of(names.begin(), names.end(), matches))
        fail("store", "--keep-gathered: '{}' matches no state or parameter that is stored split{}; store it so first",
             pattern, nearest_names(names, pattern));
    }
    result_.decisions.fetched = spmd::fetched_values(graph(), anew);
  }

  // ": 'up' is [8, 32], 'down' is [32, 8], …" of the first that carry data.
  std::string first_shapes(const std::vector<std::string>& names) const {
    constexpr int kMost = 3;
    std::string text;
    int listed = 0;
    for (const std::string& name : names) {
      const Value* value = graph().find(name);
      if (!value || !value->has_shape() || value->kind == ValueKind::expression) continue;
      if (listed++ == kMost) return text + ", …";
      text += fmt::format("{} '{}' is {}", listed == 1 ? ":" : ",", name, to_string(value->shape()));
    }
    return text;
  }

  void choose_presets() {
    if (options_.presets == kNoPreset) return;
    if (!options_.presets.empty()) {
      presets_ = spmd::parse_presets(options_.presets, options_.mesh);
      return;
    }
    // Annotations may use axes whose names imply nothing.
    std::vector<std::string> used = axes_of(options_.places, options_.mesh);
    if (!options_.annotations.empty())
      for (const MeshAxis& axis : options_.mesh.axes()) used.push_back(axis.name);
    const auto implied = spmd::implied_presets(options_.mesh, used);
    std::string names;
    for (const auto& request : implied)
      names += fmt::format("{}{}:{}", names.empty() ? "" : "+", request.preset->name, request.axis.axis);
    if (names.empty()) return;
    if (options_.annotations.empty()) {
      presets_ = implied;
      result_.notes.push_back("preset " + names + " (implied by the mesh)");
    } else {
      result_.notes.push_back(fmt::format(
          "no preset is applied, since there are annotations; add --preset {} for those that the mesh implies", names));
    }
  }

  void apply_presets() {
    for (const spmd::PresetRequest& request : presets_) {
      spmd::PresetContext context = context_of(request);
      request.preset->apply(context);
    }
  }

  void review_presets() {
    for (const spmd::PresetRequest& request : presets_)
      if (request.preset->review) request.preset->review(context_of(request), result_.decisions);
  }

  spmd::PresetContext context_of(const spmd::PresetRequest& request) {
    return {graph(),      *result_.layout,  storage_,
            hints_,       request.axis,     "preset " + std::string(request.preset->name),
            annotations_, result_.warnings, result_.notes};
  }

  const OnnxModel& read_;
  const bool is_rewritten_;
  const CompileOptions& options_;
  spmd::Hints hints_;
  spmd::Storage storage_;
  std::vector<spmd::PresetRequest> presets_;
  std::vector<spmd::Annotation> annotations_;  // the caller's, and those of presets
  std::optional<SharedStates> shared_;
  Compiled result_;
};

}  // namespace

Compiled compile(const OnnxModel& model, const CompileOptions& options) {
  if (!has_regions(*model.graph) || options.annotations.empty()) return Compiler(model, nullptr, options).run();
  OnnxModel labelled = model.clone();
  CompileOptions own = options;
  own.annotations = label_in_bodies(labelled, options.annotations);
  return Compiler(labelled, nullptr, own).run();
}

bool names_rewritten_state(const OnnxModel& model, const OnnxModel& rewritten, const CompileOptions& options) {
  std::set<std::string_view> gone;
  for (const Value* state : rewritten.graph->values_of(ValueKind::state)) {
    if (state->origin) gone.insert(state->origin->name);
    gone.insert(state->rows.begin(), state->rows.end());
  }
  if (gone.empty()) return false;
  if (options.sharing) {
    const SharedStates shared(*options.sharing);
    for (const std::string& name : shared.undivided())
      if (gone.contains(name)) return true;
  }
  for (const Value* state : model.graph->values_of(ValueKind::state))
    for (const AnnotationRequest& request : options.storage)
      if (gone.contains(state->name) && keeps_whole(request, *state)) return true;
  return false;
}

void share_data(spmd::Program& program, const spmd::Program& like) {
  std::map<std::string_view, const Tensor*> known;
  for (const auto& [state, data] : like.initial) known[state->name] = &data;
  for (auto& [state, data] : program.initial) {
    auto other = known.find(state->name);
    if (other == known.end() || other->second->dtype != data.dtype || other->second->dims != data.dims) continue;
    const Tensor& shared = *other->second;
    // Makers of one identity make the same elements.
    if (maker_of(data) && maker_of(shared) && origin_of(data) == origin_of(shared)) {
      data = shared;
      continue;
    }
    const Tensor *own = bytes_behind(data), *there = bytes_behind(shared);
    if (!own || !there || own->dtype != there->dtype || own->bytes != there->bytes) continue;
    if (own->data == there->data || std::memcmp(own->data, there->data, own->bytes) == 0) data = shared;
  }
}

Compiled compile_rewritten(const OnnxModel& model, const OnnxModel& rewritten, const CompileOptions& options) {
  check(options.annotations.empty() && options.places.empty() && options.keep.empty(),
        "nothing is asked about names that rewriting may remove");
  return Compiler(model, &rewritten, options).run();
}

}  // namespace tessera::compiler
