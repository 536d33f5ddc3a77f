#include "tessera/generate/bind_decoder.h"

#include <optional>

#include "tessera/base/error.h"
#include "tessera/ops/library/node_builder.h"

namespace tessera::generate {
namespace {

Value* decoder_input(const Graph& graph, const std::string& name) {
  Value* input = graph.find(name);
  if (!input) fail("generate", "the model has no tensor '{}'", name);
  return input;
}

std::string symbol_of_tokens(Graph& graph, const DecoderPorts& ports, int64_t batch) {
  const Value* ids = decoder_input(graph, ports.ids);
  const Shape shape = ids->shape();
  if (shape.size() != 2 || !shape[1].as_symbol())
    fail("generate", "the input '{}' is {}; it must be [batch, sequence], with a symbol for the sequence", ids->name,
         to_string(shape));
  if (const auto symbol = shape[0].as_symbol())
    substitute(graph, *symbol, batch);
  else if (!shape[0].is(batch))
    fail("generate", "the model takes {} texts at once; give as many prompts, not {}", shape[0].str(), batch);
  return *shape[1].as_symbol();
}

std::string symbol_of_past(const Graph& graph, const DecoderPorts& ports) {
  if (ports.caches.empty()) return "";
  const Value* cache = decoder_input(graph, ports.caches.front().past);
  const Shape& past = cache->shape();
  if (past.size() != 4 || !past[2].as_symbol())
    fail("generate", "the cache '{}' is {}; it must be [batch, heads, past, width], with a symbol for the past",
         cache->name, to_string(past));
  return *past[2].as_symbol();
}

void fill_with_ones(Graph& graph, Value* input) {
  ops::NodeBuilder b(graph, "generate", graph.nodes().empty() ? nullptr : graph.nodes().front().get());
  graph.replace_uses(input, b.expand(graph.constant_scalar(input->dtype(), 1), input->shape()));
  graph.erase(input);
}

}  // namespace

std::pair<std::string, std::string> bind_decoder(Graph& graph, const DecoderPorts& ports, int64_t batch) {
  const std::string sequence = symbol_of_tokens(graph, ports, batch), past = symbol_of_past(graph, ports);
  if (!ports.mask.empty()) {
    // As long as earlier and new tokens together, whatever the model calls that.
    Value* mask = decoder_input(graph, ports.mask);
    const auto total = mask->rank() == 2 ? mask->shape()[1].as_symbol() : std::nullopt;
    const Expr tokens = past.empty() ? Expr::symbol(sequence) : Expr::symbol(past) + Expr::symbol(sequence);
    if (total && *total != sequence && *total != past) substitute(graph, *total, tokens);
    fill_with_ones(graph, mask);
  }
  if (!ports.branch.empty()) fill_with_ones(graph, decoder_input(graph, ports.branch));
  return {sequence, past};
}

void substitute(Graph& graph, const std::string& symbol, const Expr& by) {
  const auto replaced = [&](const Expr& expression) {
    return expression.substitute(
        [&](std::string_view name) { return name == symbol ? std::optional(by) : std::nullopt; });
  };
  for (const auto& value : graph.values()) {
    if (value->has_shape())
      for (Expr& extent : *value->type.shape) extent = replaced(extent);
    if (value->content)
      for (Expr& element : *value->content) element = replaced(element);
  }
}

}  // namespace tessera::generate
