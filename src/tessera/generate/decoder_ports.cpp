#include "tessera/generate/decoder_ports.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "tessera/base/error.h"
#include "tessera/compiler/pairing.h"
#include "tessera/ir/glob.h"

namespace tessera::generate {
namespace {

constexpr std::array<std::string_view, 8> kCaches = {
    "past_key_values.*=present.*",  // Optimum
    "past_key_values.*=present_key_values.*",
    "past_key_values_*=present_key_values_*",
    "past_key_values_*=present_*",
    "past_key_*=present_key_*",  // transformers
    "past_value_*=present_value_*",
    "past.*=present.*",
    "past_*=present_*",
};
constexpr std::array<std::string_view, 4> kIds = {"input_ids", "decoder_input_ids", "tokens", "ids"};
constexpr std::array<std::string_view, 2> kLogits = {"logits", "lm_logits"};

const Value* named(const std::vector<Value*>& values, std::string_view name) {
  const auto found =
      std::find_if(values.begin(), values.end(), [&](const Value* value) { return value->name == name; });
  return found == values.end() ? nullptr : *found;
}

template <typename Names>
const Value* first_named(const std::vector<Value*>& values, const Names& names) {
  for (std::string_view name : names)
    if (const Value* value = named(values, name)) return value;
  return nullptr;
}

// The only one for which that holds; null if there are several, or none.
template <typename Predicate>
const Value* only(const std::vector<Value*>& values, const Predicate& is) {
  const Value* found = nullptr;
  for (const Value* value : values) {
    if (!is(value)) continue;
    if (found) return nullptr;
    found = value;
  }
  return found;
}

bool is_matrix_of_ids(const Value* value) {
  return (value->dtype() == DType::int64 || value->dtype() == DType::int32) && value->has_shape() && value->rank() == 2;
}

std::string type_of(const Value& value) {
  return fmt::format("'{}' {} {}", value.name, name_of(value.dtype()),
                     value.has_shape() ? to_string(value.shape()) : "");
}

class PortFinder {
 public:
  explicit PortFinder(const Graph& graph) : graph_(graph) {}

  DecoderPorts find(const std::vector<std::string>& caches, const Tensors& constants) {
    for (const std::string& text : caches)
      if (pair(text) == 0)
        fail("generate", "'{}' pairs no input with an output; the inputs are: {}", text, names(graph_.inputs));
    for (std::string_view text : kCaches)
      if (caches.empty()) pair(std::string(text));
    find_ids();
    find_logits();
    ports_.mask = of_input("attention_mask", constants);
    ports_.positions = of_input("position_ids", constants);
    ports_.places = of_input("cache_position", constants);
    ports_.branch = of_input("use_cache_branch", constants);
    std::vector<std::string> unknown;
    for (const Value* input : graph_.inputs)
      if (!known_.contains(input->name) && !constants.contains(input->name)) unknown.push_back(type_of(*input));
    if (!unknown.empty())
      fail("generate",
           "the model has inputs that generation does not provide: {}; give their arrays with `inputs` or, if they are "
           "caches, their outputs with `states` 'INPUT=OUTPUT'",
           fmt::join(unknown, ", "));
    return ports_;
  }

 private:
  size_t pair(const std::string& text) {
    const compiler::Pairing pairing = compiler::Pairing::parse(text);
    if (!pairing.next)
      fail("generate", "'{}' names no output; write INPUT=OUTPUT, as 'past_key_values.*=present.*'", text);
    size_t pairs = 0;
    for (const Value* input : graph_.inputs) {
      if (!glob_matches(pairing.state, input->name) || known_.contains(input->name)) continue;
      const Value* output = named(graph_.outputs, pairing.next_of(input->name));
      if (!output) continue;
      require_cache(*input);
      ports_.caches.push_back({input->name, output->name});
      known_.insert(input->name);
      taken_.insert(output->name);
      ++pairs;
    }
    return pairs;
  }

  static void require_cache(const Value& input) {
    const auto is_cache = [](const Shape& shape) {
      return shape.size() == 4 && shape[1].constant() && shape[2].as_symbol() && shape[3].constant();
    };
    if (!input.has_shape() || !is_cache(input.shape()))
      fail("generate",
           "the cache {} must be [batch, heads, past, width], with a symbol for the past and numbers for heads and "
           "width; export the model with keys and values as such inputs of their own, or without caches",
           type_of(input));
  }

  void find_ids() {
    const Value* ids = first_named(graph_.inputs, kIds);
    if (!ids) ids = only(graph_.inputs, is_matrix_of_ids);
    if (!ids || !is_matrix_of_ids(ids))
      fail("generate", "the model has no input 'input_ids' of integers [batch, sequence]; its inputs are: {}",
           names(graph_.inputs));
    ports_.ids = ids->name;
    known_.insert(ids->name);
  }

  void find_logits() {
    const Value* logits = first_named(graph_.outputs, kLogits);
    if (!logits) logits = only(graph_.outputs, [&](const Value* output) { return !taken_.contains(output->name); });
    if (!logits)
      fail("generate", "the model has no output 'logits' [batch, sequence, vocabulary]; its outputs are: {}",
           names(graph_.outputs));
    ports_.logits = logits->name;
  }

  std::string of_input(const std::string& name, const Tensors& constants) {
    if (constants.contains(name) || !named(graph_.inputs, name)) return "";
    known_.insert(name);
    return name;
  }

  static std::string names(const std::vector<Value*>& values) {
    constexpr size_t kMost = 8;
    std::vector<std::string> all;
    for (size_t i = 0; i < values.size() && i < kMost; ++i) all.push_back(type_of(*values[i]));
    return fmt::format("{}{}", fmt::join(all, ", "), values.size() > kMost ? ", …" : "");
  }

  const Graph& graph_;
  DecoderPorts ports_;
  std::set<std::string> known_, taken_;
};

}  // namespace

DecoderPorts decoder_ports(const Graph& graph, const std::vector<std::string>& caches, const Tensors& constants) {
  return PortFinder(graph).find(caches, constants);
}

}  // namespace tessera::generate
