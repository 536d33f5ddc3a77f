#include "tessera/train/selection.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/ir/aligned.h"
#include "tessera/ir/glob.h"
#include "tessera/onnx/export_record.h"
#include "tessera/rewrite/literal.h"
#include "tessera/train/batch_norm.h"
#include "tessera/train/guess.h"

namespace tessera::train {
namespace {

constexpr std::string_view kHowToExport = "export with optimize=False to train it (docs/training.md)";

bool any_matches(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return glob_matches(pattern, name); });
}

// "'a', 'b', 'c' and 4 others"
std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kMost = 3;
  std::string text;
  for (size_t i = 0; i < names.size() && i < kMost; ++i) text += fmt::format("{}'{}'", i == 0 ? "" : ", ", names[i]);
  if (names.size() <= kMost) return text;
  const size_t others = names.size() - kMost;
  return fmt::format("{} and {} {}", text, others, others == 1 ? "other" : "others");
}

// Numbers that Constants give become initializers if they are to train.
std::vector<Value*> free_literals(Graph& graph, const std::vector<std::string>& named) {
  std::vector<Value*> freed;
  if (named.empty()) return freed;
  for (Value* value : graph.values_of(ValueKind::result)) {
    if (!value->producer->is("Constant") || !any_matches(named, value->name)) continue;
    const std::optional<Tensor> number = rewrite::literal(*value->producer);
    if (!number || !is_float(number->dtype)) continue;
    const std::string name = value->name;
    graph.rename(value, name + ".constant");
    freed.push_back(graph.add_constant(name, *number));
    graph.replace_uses(value, freed.back());
    graph.erase(value->producer);
  }
  return freed;
}

class Selector {
 public:
  Selector(const OnnxModel& given, const StepOptions& options)
      : given_(*given.graph), options_(options), record_(given_), read_before_(read_before_runs(given)) {
    selection_.model = given.clone();
  }

  Selection run() && {
    selection_.ties = ties_of(given_, record_, options_.tie, selection_.notes);
    compute_copies(graph(), selection_.ties);
    for (const auto& value : given_.values())
      if (value->has_data()) name(*value);
    selection_.freeze = options_.freeze;
    add_rows();
    for (Value* literal : free_literals(graph(), options_.train)) add_literal(*literal);
    for_each_statistic(graph(), options_.batch_norm, [&](const Node*, size_t, Value* state) {
      if (!selection_.is_frozen(state->name)) selection_.statistics.insert(state->name);
    });
    finish_rows();
    reach();
    note_lost();
    note_equal();
    return std::move(selection_);
  }

 private:
  Graph& graph() { return *selection_.model.graph; }

  // The names that mean a value, and those that mean the state that a copy is tied to.
  void name(const Value& value) {
    const Tie* tie = tie_of(value.name);
    auto& names = selection_.names[tie ? tie->source : value.name];
    for (std::string_view known : record_.names_of(value)) names.emplace_back(known);
  }

  const Tie* tie_of(const std::string& copy) const {
    for (const Tie& tie : selection_.ties)
      if (tie.copy == copy) return &tie;
    return nullptr;
  }

  void add_rows() {
    for (const auto& value : given_.values()) {
      if (!value->has_data() || !is_float(value->dtype())) continue;
      if (const Value* now = graph().find(value->name); now->uses.empty() && !graph().is_output(now)) continue;
      const Provenance& provenance = record_.of(*value);
      const std::string* named = train_pattern(*value);
      const bool is_number =
          value->rank() == 0 && provenance.role != Role::parameter && provenance.role != Role::computed && !named;
      if (is_number) continue;
      Selected row;
      row.name = value->name;
      row.sources = provenance.sources;
      std::erase(row.sources, value->name);
      row.dims = value->data.dims;
      if (const Tie* tie = tie_of(value->name)) {
        row.tied_to = tie->source;
        row.transposed = tie->how == Tie::How::transposed;
      } else {
        row.why = why_not(*value, named);
        row.trains = row.why.empty();
        Value& own = *graph().find(value->name);
        if (row.trains) make_state(own);
        if (read_before_.contains(value->name)) make_constant(own);
      }
      selection_.table.push_back(std::move(row));
    }
  }

  void add_literal(Value& literal) {
    Selected row;
    row.name = literal.name;
    row.dims = literal.data.dims;
    row.why = frozen_by(literal.name);
    row.trains = row.why.empty();
    if (row.trains) make_state(literal);
    selection_.table.push_back(std::move(row));
  }

  void make_state(Value& value) {
    value.kind = ValueKind::state;
    value.content.reset();
    selection_.trained.insert(value.name);
  }

  // What an operator must know may be computed before the run, as no parameter may.
  static void make_constant(Value& value) {
    value.kind = ValueKind::constant;
    value.data = aligned(std::move(value.data));
  }

  // The pattern of --train that means a value: by its own name, or by that of the parameter that it is.
  const std::string* train_pattern(const Value& value) const {
    const bool is_one = record_.of(value).role <= Role::copy;
    for (const std::string& pattern : options_.train)
      if (is_one ? record_.matches(pattern, value) : glob_matches(pattern, value.name)) return &pattern;
    return nullptr;
  }

  // Empty if no pattern of --freeze means a state.
  std::string frozen_by(const std::string& state) const {
    for (const std::string& pattern : options_.freeze)
      if (selection_.matches(pattern, state)) return fmt::format("`freeze` '{}'", pattern);
    return "";
  }

  std::string why_not(const Value& value, const std::string* named) {
    if (const auto reader = read_before_.find(value.name); reader != read_before_.end()) {
      if (named && named->find('*') == std::string::npos)
        fail("train", "`train` names '{}', whose elements {} needs before the run; leave it out", value.name,
             reader->second);
      return fmt::format("{} reads it before the run", reader->second);
    }
    if (bits_of(value.dtype()) < 16) return fmt::format("it is {}", tessera::name_of(value.dtype()));
    if (std::string frozen = frozen_by(value.name); !frozen.empty()) return frozen;
    if (named) return "";
    const Provenance& provenance = record_.of(value);
    switch (provenance.role) {
      case Role::buffer:
        return "it is a buffer of the model that was exported";
      case Role::constant:
        return "the exporter computed it, from no parameter";
      case Role::computed:
        return fmt::format("the exporter computed it from {}", listed(provenance.sources));
      case Role::unknown:
        if (const auto reason = looks_constant(value)) {
          guessed_.push_back(value.name);
          return fmt::format("it looks like a constant: {}", *reason);
        }
        break;
      default:
        break;
    }
    return "";
  }

  void finish_rows() {
    for (Selected& row : selection_.table) {
      if (selection_.statistics.contains(row.name)) {
        row.trains = false;
        row.why = "it is a running statistic, which moves without a gradient";
        selection_.trained.erase(row.name);
      }
      if (row.tied_to.empty()) continue;
      const auto source = std::find_if(selection_.table.begin(), selection_.table.end(),
                                       [&](const Selected& other) { return other.name == row.tied_to; });
      if (source == selection_.table.end()) continue;
      row.trains = source->trains;
      row.why = source->why;
    }
  }

  void reach() {
    for (const std::string& pattern : options_.freeze) reach("freeze", pattern);
    for (const std::string& pattern : options_.no_decay)
      if (pattern != "vectors") reach("no_decay", pattern);
    for (const auto& [pattern, factor] : options_.rate_factors) reach("rate_factors", pattern);
    for (const std::string& pattern : options_.train) {
      const Reached& reached = reach("train", pattern);
      const auto trains = [&](const std::string& name) { return selection_.trained.contains(name) || tie_of(name); };
      if (!reached.names.empty() && std::none_of(reached.names.begin(), reached.names.end(), trains))
        fail("train", "`train` '{}' matches only '{}', which does not train: {}{}", pattern, reached.names[0],
             row_of(reached.names[0]).why,
             record_of(reached.names[0]).role == Role::computed
                 ? fmt::format("; {}, or name '{}' itself to train what was computed", kHowToExport, reached.names[0])
                 : "");
    }
    for (const auto& [pattern, rule] : options_.init) {
      Reached reached{"init", pattern, {}};
      for (const Selected& row : selection_.table)
        if (row.trains && row.tied_to.empty() && selection_.matches(pattern, row.name))
          reached.names.push_back(row.name);
      selection_.reached.push_back(std::move(reached));
    }
  }

  const Reached& reach(const std::string& setting, const std::string& pattern) {
    Reached reached{setting, pattern, {}};
    for (const Selected& row : selection_.table)
      if (selection_.matches(pattern, row.tied_to.empty() ? row.name : row.tied_to)) reached.names.push_back(row.name);
    if (reached.names.empty()) require_match(setting, pattern);
    selection_.reached.push_back(std::move(reached));
    return selection_.reached.back();
  }

  const Selected& row_of(const std::string& name) const {
    return *std::find_if(selection_.table.begin(), selection_.table.end(),
                         [&](const Selected& row) { return row.name == name; });
  }
  const Provenance& record_of(const std::string& name) const { return record_.of(*given_.find(name)); }

  // A pattern may mean a number or integers, which never train.
  void require_match(std::string_view setting, const std::string& pattern) const {
    std::vector<std::string_view> names;
    for (const auto& value : given_.values())
      if (value->has_data() || (value->producer && value->producer->is("Constant")))
        for (std::string_view name : record_.names_of(*value)) names.push_back(name);
    if (std::any_of(names.begin(), names.end(), [&](std::string_view name) { return glob_matches(pattern, name); }))
      return;
    for (const std::string& lost : record_.missing())
      if (glob_matches(pattern, lost))
        fail(
            "train",
            "`{}` '{}' matches no tensor of the file: the model that was exported has the parameter '{}', but the file "
            "has it under another name, or the exporter merged it with others or folded it away; {}",
            setting, pattern, lost, kHowToExport);
    fail("train", "`{}` '{}' matches no parameter of the model{}", setting, pattern, nearest_names(names, pattern));
  }

  void note_lost() {
    std::vector<std::string> computed;
    for (const Selected& row : selection_.table) {
      if (row.trains || !row.tied_to.empty()) continue;
      if (record_of(row.name).role == Role::computed) computed.push_back(row.sources[0]);
    }
    for (const std::string& lost : record_.merged())
      if (std::find(computed.begin(), computed.end(), lost) == computed.end()) computed.push_back(lost);
    if (!computed.empty())
      selection_.notes.push_back(fmt::format(
          "{} of the parameters that the model had do not train, since the exporter merged them with others "
          "or folded them away: {}; export with optimize=False to train all (docs/training.md)",
          computed.size(), listed(computed)));
    if (!guessed_.empty())
      selection_.notes.push_back(
          fmt::format("tensors that look like constants do not train: {}; `train` NAME trains one", listed(guessed_)));
  }

  void note_equal() {
    for (const Tie& pair : equal_states(graph(), record_)) {
      if (!selection_.trained.contains(pair.copy) && !selection_.trained.contains(pair.source)) continue;
      const char* how = pair.how == Tie::How::transposed ? "^T" : "";
      selection_.notes.push_back(
          fmt::format("'{}' and '{}' begin with equal values{} and train separately; `tie` '{}={}{}' makes them one",
                      pair.source, pair.copy, *how ? ", one transposed," : "", pair.copy, pair.source, how));
    }
  }

  const Graph& given_;
  const StepOptions& options_;
  const ExportRecord record_;
  const std::map<std::string, std::string> read_before_;
  Selection selection_;
  std::vector<std::string> guessed_;  // to be constants
};

}  // namespace

bool Selection::matches(std::string_view pattern, const std::string& state) const {
  const auto known = names.find(state);
  if (known == names.end()) return glob_matches(pattern, state);
  return std::any_of(known->second.begin(), known->second.end(),
                     [&](const std::string& name) { return glob_matches(pattern, name); });
}

bool Selection::is_frozen(const std::string& state) const {
  return std::any_of(freeze.begin(), freeze.end(), [&](const std::string& pattern) { return matches(pattern, state); });
}

Selection select(const OnnxModel& model, const StepOptions& options) {
  return Selector(model, options).run();
}

}  // namespace tessera::train
