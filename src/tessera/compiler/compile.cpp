#include "tessera/compiler/compile.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/compiler/annotations.h"
#include "tessera/compiler/body_annotations.h"
#include "tessera/compiler/pipelining.h"
#include "tessera/compiler/places.h"
#include "tessera/compiler/shared_states.h"
#include "tessera/compiler/storage.h"
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
#include "tessera/spmd/partition/init.h"
#include "tessera/spmd/partition/partition.h"
#include "tessera/spmd/presets/stored.h"
#include "tessera/spmd/print.h"

namespace tessera::compiler {

namespace {

// How often a program's graphs have changed.
std::pair<uint64_t, uint64_t> edits(const spmd::Program& program) {
  return {program.graph->edits(), program.init ? program.init->edits() : 0};
}

class Compiler {
 public:
  Compiler(const OnnxModel& model, const OnnxModel* rewritten, const CompileOptions& options)
      : read_(model), is_rewritten_(rewritten != nullptr), options_(options) {
    result_.model = std::make_unique<OnnxModel>((rewritten ? *rewritten : model).clone());
    if (options.sharing) shared_.emplace(*options.sharing);
    if (options.machine)
      result_.prices = std::make_shared<const cost::Prices>(*options.machine, options.mesh, options.topology);
  }

  Compiled run() {
    const auto names = names_meant(read_, options_.annotations);
    const NodePlaces asked(*read_.graph, options_.places, options_.mesh);
    find_pipeline();
    if (!is_rewritten_) rewrite(names);
    make_next_values();
    lower_precision();
    require_supported();
    hints_ = symbol_values(read_, &graph(), options_.shapes, &result_.notes);
    note_device_annotations();
    auto annotations = read_annotations(read_, graph(), options_.annotations, names, options_.mesh, result_.warnings);
    drop_labels();
    std::multimap<const Value*, Sharding> cuts;
    for (const spmd::Annotation& annotation : annotations) cuts.emplace(annotation.value, annotation.sharding);
    spmd::Places places = asked.in(graph());
    if (pipeline_)
      for (auto& [node, place] : pipeline_->mark(*result_.model->graph))
        places[node].insert(places[node].end(), place.begin(), place.end());
    refuse_contradictions(annotations, places, options_.mesh, result_.warnings);
    choose_presets();
    const spmd::Storage ordered = read_storage(graph(), options_.storage, options_.mesh, shared_ ? &*shared_ : nullptr);
    lay_out(annotations, cuts, places, ordered);
    result_.storage = storage_;
    observe("propagate", [this] { return propagated_text(); });
    if (!options_.keep_gathered.empty())
      result_.decisions.fetched = spmd::fetched_values(graph(), stored_anew(storage_, options_.keep_gathered));
    review_presets();
    for (std::string& warning : spmd::idle_ranks(*result_.layout, result_.decisions, options_.mesh, hints_))
      result_.warnings.push_back(std::move(warning));
    result_.program = std::make_shared<spmd::Program>(
        spmd::partition(graph(), *result_.layout, result_.decisions, options_.mesh, hints_, prices()));
    if (shared_) shared_->require_alike(*result_.program);
    observe("partition", [this] { return spmd::print_program(*result_.program); });
    passes::Context context{options_.topology,     result_.notes,           options_.recompute,
                            options_.bucket_bytes, options_.ring_attention, prices()};
    context.early_starts = options_.early_starts;
    context.cells = pipeline_ ? &pipeline_->cells() : nullptr;
    context.choose_rings = [this](const spmd::Program& program) { return rings_of(program); };
    for (const passes::Pass& pass : passes::passes()) {
      const auto before = edits(*result_.program);
      pass.run(*result_.program, context);
      if (edits(*result_.program) != before) spmd::verify(*result_.program, pass.name);
      observe(pass.name, [this] { return spmd::print_program(*result_.program); });
    }
    return std::move(result_);
  }

 private:
  const cost::Prices* prices() const { return result_.prices.get(); }
  const Graph& graph() const { return *result_.model->graph; }

  void observe(std::string_view stage, const std::function<std::string()>& text) {
    if (options_.observe) options_.observe(stage, text);
  }

  std::vector<passes::RingChoice> rings_of(const spmd::Program& program) {
    if (options_.product_rings == ProductRings::never) return {};
    if (options_.product_rings == ProductRings::always) return all_rings(program, result_.rings);
    const StepSeconds seconds = [&](const spmd::Program& tried, const std::vector<passes::RingChoice>& choices) {
      return options_.simulate(with_rings(tried, choices));
    };
    // In fewer blocks, patterns of names might match nothing.
    const bool may_shorten =
        options_.recompute.kind != passes::Recompute::Kind::by_name && options_.recompute.keep_gathered.empty();
    return choose_rings(program, options_.simulate ? prices() : nullptr, seconds, may_shorten, result_.rings);
  }

  // A copy of the program after the passes that choose rings and come after them.
  std::shared_ptr<const spmd::Program> with_rings(const spmd::Program& program,
                                                  const std::vector<passes::RingChoice>& choices) const {
    auto copy = std::make_shared<spmd::Program>(spmd::in_one_graph(program));
    std::vector<std::string> notes;
    passes::Context context{
        options_.topology, notes, options_.recompute, options_.bucket_bytes, passes::RingAttention::never, prices()};
    context.early_starts = options_.early_starts;
    context.cells = pipeline_ ? &pipeline_->cells() : nullptr;
    context.choose_rings = [&](const spmd::Program&) { return choices; };
    for (const passes::Pass& pass : passes::passes()) pass.run(*copy, context);
    return copy;
  }

  void note_device_annotations() {
    FileFacts facts = file_facts(read_);
    if (facts.annotated_nodes == 0) return;
    result_.warnings.push_back(fmt::format(
        "the file's device configurations ({} nodes) are not applied, because a mesh is given; leave it out to "
        "follow them",
        facts.annotated_nodes));
  }

  // Finds all layouts by the operators' first rules. If finer rules would split some nodes more evenly, it finds them
  // again with these, and keeps the cheaper layouts.
  void lay_out(const std::vector<spmd::Annotation>& annotations, const std::multimap<const Value*, Sharding>& cuts,
               const spmd::Places& places, const spmd::Storage& ordered) {
    const auto once = [&](const std::set<const Node*>& finer) {
      storage_ = spmd::stored_by_presets(graph(), presets_, ordered);
      storage_.insert(ordered.begin(), ordered.end());
      annotations_ = annotations;
      result_.layout = std::make_unique<spmd::Layout>(graph(), hints_, cuts, places, storage_, finer);
      if (options_.narrow_sums) result_.layout->narrow_sums();
      apply_presets();
      spmd::store_as_computed(storage_, graph(), annotations_, ordered);
      result_.propagation = spmd::propagate(*result_.layout, annotations_, options_.mesh, storage_);
      for (const std::string& line : result_.propagation.approximated) result_.warnings.push_back(line);
      result_.decisions = spmd::decide(graph(), *result_.layout, options_.mesh, hints_, annotations_, storage_,
                                       prices(), spmd::scattered_sums(stored_anew(storage_, options_.keep_gathered)));
    };
    const spmd::Costs costs(options_.mesh, hints_, prices());
    const auto work = [&] { return spmd::busiest_work(graph(), *result_.layout, result_.decisions, costs); };
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

  // The rewritten model, each tensor with the layout that it got; a source has that of its first use.
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
    std::map<std::string, std::vector<const AnnotationRequest*>> globs;  // by the tensors that they match
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
        if (request.keeps_whole(*state)) exact.insert(state->name);
    if (shared_) exact.insert(shared_->undivided().begin(), shared_->undivided().end());
    options.barriers = exact;
    for (const auto& [name, requests] : globs) options.candidates.insert(name);
    options.is_barrier = [&](const Value& value) {
      const auto requests = globs.find(value.name);  // none for a value without its label, which is known by now
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

  // An axis of stages is a pipeline, unless places use it in another way.
  void find_pipeline() {
    const std::vector<std::string> placed = axes_of(options_.places, options_.mesh);
    const bool is_placed = std::find(placed.begin(), placed.end(), kPipelineAxis) != placed.end();
    const auto axis = options_.mesh.find(kPipelineAxis);
    const bool is_implied = axis && options_.mesh.axes()[*axis].size > 1 && !is_placed && options_.presets != kNoPreset;
    if (!options_.pipeline && !is_implied) return;
    pipeline_.emplace(read_, options_.pipeline.value_or(PipelineRequest()), options_.mesh, options_.shapes, prices());
    for (const std::string& line : pipeline_->notes()) result_.notes.push_back(line);
    observe("schedule", [this] { return pipeline_->text(); });
  }

  // If a state's next value consists of sizes, it becomes a node's result, as outputs do.
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
             "the state '{}' changes, and each step would round it; leave out `dtype`, or cast the states to {} in the "
             "model",
             value->name, name_of(options_.compute));
    rewrite::lower_precision(*result_.model, options_.compute);
    observe("lower_precision", [this] { return print_text(*result_.model); });
  }

  // Refuses what later stages do not expect, while the message can name the place.
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

  void drop_labels() {
    for (const Value* value : rewrite::labelled_results(graph())) {
      result_.labels.emplace(value, *rewrite::label_of(*value));
      value->producer->remove_attribute(rewrite::kLabel);
    }
  }

  void choose_presets() {
    if (options_.presets == kNoPreset) return;
    if (!options_.presets.empty()) {
      presets_ = spmd::parse_presets(options_.presets, options_.mesh);
      for (const spmd::PresetRequest& request : presets_)
        if (request.preset->name == "pipeline" && request.axis.axis != kPipelineAxis)
          fail("preset", "a pipeline's stages lie along the axis '{}', not along '{}'; rename the axis in the mesh",
               kPipelineAxis, request.axis.axis);
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
          "no preset is applied, because there are annotations; add `presets` {} for those that the mesh implies",
          names));
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
  std::optional<Pipelining> pipeline_;
  Compiled result_;
};

}  // namespace

ProductRings parse_product_rings(std::string_view text) {
  if (text.empty() || text == "auto") return ProductRings::by_cost;
  if (text == "always") return ProductRings::always;
  if (text == "off") return ProductRings::never;
  fail("overlap", "'{}' is not a mode of overlap; write auto, always or off", text);
}

bool parse_narrow_sums(std::string_view text) {
  if (text.empty() || text == "float32") return false;
  if (text == "operands") return true;
  fail("partial sums", "ranks cannot add up partial sums in '{}'; write float32, or operands for the operands' type",
       text);
}

Compiled compile(const OnnxModel& model, const CompileOptions& options) {
  if (!has_regions(*model.graph) || options.annotations.empty()) return Compiler(model, nullptr, options).run();
  OnnxModel labelled = model.clone();
  CompileOptions own = options;
  own.annotations = label_in_bodies(labelled, options.annotations);
  return Compiler(labelled, nullptr, own).run();
}

Compiled compile_rewritten(const OnnxModel& model, const OnnxModel& rewritten, const CompileOptions& options) {
  check(options.annotations.empty() && options.places.empty() && options.keep.empty(),
        "nothing is asked about names that rewriting may remove");
  return Compiler(model, &rewritten, options).run();
}

}  // namespace tessera::compiler
