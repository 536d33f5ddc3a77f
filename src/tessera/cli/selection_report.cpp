#include "tessera/cli/selection_report.h"

#include <algorithm>
#include <map>

#include "tessera/cli/settings.h"

namespace tessera::cli {
namespace {

double numbers_in(const SelectedTensor& tensor) {
  double count = 1;
  for (int64_t extent : tensor.dims) count *= static_cast<double>(extent);
  return count;
}

std::string shape_text(const Dims& dims) {
  std::vector<std::string> extents;
  for (int64_t extent : dims) extents.push_back(std::to_string(extent));
  return "[" + joined(extents) + "]";
}

std::string source_of(const SelectedTensor& copy) {
  return copy.tied_to + (copy.transposed ? "^T" : "");
}

std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kMost = 3;
  if (names.size() <= kMost) return joined(names);
  return joined({names.begin(), names.begin() + kMost}) + " and " + std::to_string(names.size() - kMost) + " more";
}

// Tensors about which the same is said.
struct Kind {
  std::vector<std::string> names;
  double numbers = 0;

  void add(const SelectedTensor& tensor, const std::string& name) {
    names.push_back(name);
    numbers += numbers_in(tensor);
  }
  std::vector<std::string> row(const std::string& what) const {
    return {what, std::to_string(names.size()), count_text(numbers), some_of(names)};
  }
};

void print_kinds(const Console& console, const TrainingStep& step) {
  Kind trained, tied;
  std::map<std::string, Kind> others;  // by the reason
  for (const SelectedTensor& tensor : step.selection) {
    if (!tensor.tied_to.empty())
      tied.add(tensor, tensor.name + " = " + source_of(tensor));
    else if (tensor.trains)
      trained.add(tensor, tensor.name);
    else
      others[tensor.why].add(tensor, tensor.name);
  }
  Table table({"", "tensors", "numbers", "which"});
  table.add(trained.row("trains"));
  if (!tied.names.empty()) table.add(tied.row("copies, tied"));
  for (const auto& [why, kind] : others) table.add(kind.row("does not train: " + why));
  table.print(console);
}

void print_all(const Console& console, const TrainingStep& step) {
  Table table({"tensor", "shape", "trains", "names in the exported model, or why not"});
  for (const SelectedTensor& tensor : step.selection) {
    std::string about = tensor.tied_to.empty() ? "" : "tied to " + source_of(tensor);
    for (const std::string& text : {joined(tensor.sources), tensor.why})
      if (!text.empty()) about += (about.empty() ? "" : "; ") + text;
    table.add({tensor.name, shape_text(tensor.dims), tensor.trains ? "yes" : "no", about});
  }
  table.print(console);
}

}  // namespace

void print_selection(const Console& console, const TrainingStep& step, bool verbose) {
  if (verbose)
    print_all(console, step);
  else
    print_kinds(console, step);
  if (step.reached.empty()) return;
  Table patterns({"pattern", "reaches", ""});
  for (const PatternReach& reach : step.reached)
    patterns.add({option_of(reach.setting) + " '" + reach.pattern + "'", std::to_string(reach.names.size()),
                  verbose ? joined(reach.names) : some_of(reach.names)});
  patterns.print(console);
}

Json selection_json(const TrainingStep& step) {
  Json tensors = Json::array(), patterns = Json::array();
  for (const SelectedTensor& tensor : step.selection) {
    Json entry = {{"name", tensor.name}, {"shape", tensor.dims}, {"trains", tensor.trains}};
    if (!tensor.why.empty()) entry["why"] = tensor.why;
    if (!tensor.sources.empty()) entry["sources"] = tensor.sources;
    if (!tensor.tied_to.empty()) entry.update({{"tied_to", tensor.tied_to}, {"transposed", tensor.transposed}});
    tensors.push_back(std::move(entry));
  }
  for (const PatternReach& reach : step.reached)
    patterns.push_back({{"option", option_of(reach.setting)}, {"pattern", reach.pattern}, {"names", reach.names}});
  return {{"tensors", tensors}, {"patterns", patterns}};
}

}  // namespace tessera::cli
