#include "tessera/onnx/export_record.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "tessera/ir/glob.h"
#include "tessera/onnx/metadata.h"

namespace tessera {
namespace {

constexpr std::string_view kSignature = "pkg.torch.export.ExportedProgram.graph_signature";
constexpr std::string_view kKind = "pkg.torch.export.graph_signature.InputSpec.kind";
constexpr std::string_view kFoldedFrom = "pkg.onnxscript.optimizer.folded_from";
constexpr std::string_view kProgramNode = "pkg.torch.onnx.fx_node";
constexpr std::string_view kScopes = "pkg.torch.onnx.name_scopes";

// Operators that an exported program may name its tensors by.
constexpr std::string_view kMovements[] = {"t",       "transpose", "permute",  "movedim",   "view",       "reshape",
                                           "flatten", "unflatten", "squeeze",  "unsqueeze", "contiguous", "clone",
                                           "alias",   "detach",    "_to_copy", "stack",     "cat"};
constexpr std::string_view kLookups[] = {"embedding", "index",  "index_select", "gather", "slice",
                                         "select",    "narrow", "expand",       "repeat"};
// What computes the indices of lookups.
constexpr std::string_view kIndexing[] = {"arange", "add", "sub", "cumsum", "expand", "repeat"};

template <typename Names>
bool contains(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// The strings of "['a', 'b']", Python's form of a list.
std::vector<std::string> words_of(std::string_view list) {
  std::vector<std::string> words;
  for (size_t at = list.find_first_of("'\""); at != std::string_view::npos; at = list.find_first_of("'\"", at)) {
    const size_t end = list.find(list[at], at + 1);
    if (end == std::string_view::npos) break;
    words.emplace_back(list.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return words;
}

// A tensor that the exported program takes, and the model's name of it.
struct Entry {
  std::string placeholder, target;
};

// A signature's entries of that kind: "p_w: PARAMETER target='w'", or, as PyTorch wrote it before 2.6,
// "InputSpec(kind=<InputKind.PARAMETER: 2>, arg=TensorArgument(name='p_w'), target='w', …)".
std::vector<Entry> entries_of(std::string_view signature, std::string_view kind) {
  const auto quoted_after = [&](std::string_view key, size_t from, size_t to) {
    const size_t at = signature.find(key, from);
    if (at >= to) return std::string();
    const size_t begin = at + key.size();
    return std::string(signature.substr(begin, signature.find('\'', begin) - begin));
  };
  std::vector<Entry> entries;
  for (size_t at = signature.find(kind); at != std::string_view::npos; at = signature.find(kind, at + 1)) {
    const size_t end = std::min({signature.find('\n', at), signature.find("kind=", at), signature.size()});
    Entry entry = {quoted_after("name='", at, end), quoted_after("target='", at, end)};
    if (const size_t line = signature.rfind('\n', at) + 1; entry.placeholder.empty())
      entry.placeholder = signature.substr(line, signature.find(':', line) - line);
    if (!entry.target.empty()) entries.push_back(std::move(entry));
  }
  return entries;
}

// "permute_12" without its number.
std::string_view operator_of(std::string_view name) {
  const size_t last = name.find_last_not_of("0123456789");
  return last != std::string_view::npos && last + 1 < name.size() && name[last] == '_' ? name.substr(0, last) : name;
}

// A tensor within the decomposition of an operator of the exported program, which has no name there.
bool is_inner(std::string_view name) {
  return operator_of(name) == "val" && name != "val";
}

// Whether a tensor of that name, made of parameters and of `others`, holds elements of the parameters as they are.
bool is_moved(std::string_view name, const std::vector<std::string>& others) {
  const auto moves = [](std::string_view other) { return is_inner(other) || contains(kMovements, operator_of(other)); };
  if (moves(name)) return std::all_of(others.begin(), others.end(), moves);
  return contains(kLookups, operator_of(name)) && std::all_of(others.begin(), others.end(), [&](const auto& other) {
           return moves(other) || contains(kLookups, operator_of(other)) || contains(kIndexing, operator_of(other));
         });
}

// Whether a lookup gave some row twice: then each row of the parameter has several copies here.
bool repeats_rows(const Tensor& data) {
  if (data.dims.size() < 2 || data.dims.back() <= 0 || data.count() == data.dims.back()) return false;
  const size_t row = data.bytes / static_cast<size_t>(data.count() / data.dims.back());
  std::set<std::string_view> rows;
  for (size_t at = 0; at + row <= data.bytes; at += row)
    if (!rows.emplace(reinterpret_cast<const char*>(data.data) + at, row).second) return true;
  return false;
}

Provenance folded(const Value& value, const std::vector<std::string>& from, const std::set<std::string>& parameters,
                  const std::set<std::string>& buffers) {
  Provenance provenance;
  std::vector<std::string> others;
  for (const std::string& name : from) {
    if (parameters.contains(name))
      provenance.sources.push_back(name);
    else if (!buffers.contains(name))
      others.push_back(name);
  }
  if (provenance.sources.empty()) {
    provenance.role = Role::constant;
    return provenance;
  }
  const bool is_copy =
      is_moved(value.name, others) && !(contains(kLookups, operator_of(value.name)) && repeats_rows(value.data));
  provenance.role = is_copy ? Role::copy : Role::computed;
  return provenance;
}

std::string_view module_of(std::string_view parameter) {
  return parameter.substr(0, std::min(parameter.rfind('.'), parameter.size()));
}
std::string_view last_of(std::string_view parameter) {
  return parameter.substr(parameter.rfind('.') + 1);
}

// The modules of the exported model whose nodes read a value, innermost ones.
std::set<std::string> readers_of(const Value& value) {
  std::set<std::string> modules;
  for (const Use& use : value.uses)
    if (const auto scopes = get_metadata(*use.node, kScopes))
      if (const std::vector<std::string> words = words_of(*scopes); words.size() > 1)
        modules.insert(words[words.size() - 2]);
  return modules;
}

// What nodes of the exported program take that nodes of the file come from: "%p_w" of "add(%x, %p_w)".
std::set<std::string> placeholders_in(const Graph& graph) {
  constexpr std::string_view kWord = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  std::set<std::string> found;
  for (const auto& node : graph.nodes()) {
    const std::string text = get_metadata(*node, kProgramNode).value_or("");
    for (size_t at = text.find('%'); at != std::string::npos; at = text.find('%', at + 1))
      found.insert(text.substr(at + 1, text.find_first_not_of(kWord, at + 1) - at - 1));
  }
  return found;
}

}  // namespace

ExportRecord::ExportRecord(const Graph& graph) {
  std::set<std::string> parameters, buffers;
  const auto signature = get_metadata(graph, kSignature);
  if (signature) {
    for (const Entry& entry : entries_of(*signature, "PARAMETER")) parameters.insert(entry.target);
    for (const Entry& entry : entries_of(*signature, "BUFFER")) buffers.insert(entry.target);
  }
  std::map<const Value*, std::vector<std::string>> made_of;
  for (const auto& value : graph.values()) {
    if (!value->has_data() || value->extra.empty()) continue;
    const auto metadata = all_metadata(*value);
    if (const auto from = metadata.find(std::string(kFoldedFrom)); from != metadata.end()) {
      made_of[value.get()] = words_of(from->second);
    } else if (const auto kind = metadata.find(std::string(kKind)); kind != metadata.end()) {
      const bool is_parameter = kind->second == "PARAMETER";
      known_[value.get()] = {is_parameter ? Role::parameter : Role::buffer, {value->name}};
      (is_parameter ? parameters : buffers).insert(value->name);
    }
  }
  for (const auto& [value, from] : made_of) {
    // Without a list of the parameters, what was folded from one name alone may be made of one.
    if (!signature && from.size() == 1 && !buffers.contains(from[0])) parameters.insert(from[0]);
    const Provenance provenance = folded(*value, from, parameters, buffers);
    if (signature || provenance.role == Role::copy) known_[value] = provenance;
  }
  std::set<std::string> absent = parameters;
  for (const auto& [value, provenance] : known_)
    if (provenance.role == Role::parameter || provenance.role == Role::copy)
      for (const std::string& source : provenance.sources) absent.erase(source);
  // A parameter that a module reads under another's name is that one: the model ties them, or they were equal.
  if (!absent.empty())
    for (auto& [value, provenance] : known_) {
      if (provenance.role != Role::parameter) continue;
      const std::set<std::string> readers = readers_of(*value);
      for (const std::string& name : std::vector<std::string>(absent.begin(), absent.end()))
        if (last_of(name) == last_of(value->name) && readers.contains(std::string(module_of(name)))) {
          provenance.sources.push_back(name);
          absent.erase(name);
        }
    }
  missing_.assign(absent.begin(), absent.end());
  if (absent.empty() || !signature) return;
  const std::set<std::string> used = placeholders_in(graph);
  for (const Entry& entry : entries_of(*signature, "PARAMETER"))
    if (absent.contains(entry.target) && used.contains(entry.placeholder)) merged_.push_back(entry.target);
}

void copy_export_record(Graph& to, const Graph& from) {
  if (const auto signature = get_metadata(from, kSignature)) set_metadata(to, kSignature, *signature);
}

const Provenance& ExportRecord::of(const Value& value) const {
  static const Provenance unknown;
  const auto found = known_.find(&value);
  return found == known_.end() ? unknown : found->second;
}

std::vector<std::string_view> ExportRecord::names_of(const Value& value) const {
  std::vector<std::string_view> names = {value.name};
  for (const std::string& source : of(value).sources)
    if (source != value.name) names.push_back(source);
  return names;
}

bool ExportRecord::matches(std::string_view pattern, const Value& value) const {
  if (glob_matches(pattern, value.name)) return true;
  const std::vector<std::string>& sources = of(value).sources;
  return std::any_of(sources.begin(), sources.end(),
                     [&](const std::string& source) { return glob_matches(pattern, source); });
}

}  // namespace tessera
