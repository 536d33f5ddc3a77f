#include "tessera/ops/examples/examples.h"

namespace tessera::ops {
namespace {

using namespace example;

struct Cell {
  int64_t gates = 1, hidden = 3;

  // X [steps, batch, inputs], W [directions, gates·hidden, inputs], R [directions, gates·hidden, hidden] and, if it is
  // biased, B.
  std::vector<ExampleOperand> operands(std::string x, int64_t directions, bool biased) const {
    const std::string rows = std::to_string(directions) + " " + std::to_string(gates * hidden);
    std::vector<ExampleOperand> all = {input(x, unit), weight(rows + " 2", unit),
                                       weight(rows + " " + std::to_string(hidden), unit)};
    if (biased) all.push_back(weight(std::to_string(directions) + " " + std::to_string(2 * gates * hidden), unit));
    return all;
  }
};

}  // namespace

std::vector<Example> recurrent_examples(std::string_view type) {
  const bool is_lstm = type == "LSTM";
  const Cell cell{.gates = is_lstm ? 4 : type == "GRU" ? 3 : 1};
  // Lengths of the sequences, and the states before the first step; an LSTM's peepholes.
  const auto with_states = [&](std::string x, std::string states) {
    std::vector<ExampleOperand> all = cell.operands(x, 1, true);
    all.push_back(indices("n=5", 0, 5, DType::int32));
    all.push_back(input(states, unit));
    if (!is_lstm) return all;
    all.push_back(input(states, unit));
    all.push_back(weight("1 9", unit));
    return all;
  };
  const Attribute hidden{"hidden_size", cell.hidden};
  const auto directed = [](std::string direction) { return Attribute{"direction", direction}; };
  const std::vector<ExampleOperand> steps = with_states("t=4 n=5 2", "1 n=5 3");
  std::vector<Example> all = {
      {"forward", cell.operands("4 5 2", 1, false), {hidden}},
      {"both directions, biased", cell.operands("4 5 2", 2, true), {hidden, directed("bidirectional")}},
      {"lengths and initial states", steps, {hidden}},
      {"the batch first", with_states("n=5 t=4 2", "n=5 1 3"), {hidden, {"layout", int64_t{1}}}},
      {"from the end, clipped", steps, {hidden, directed("reverse"), {"clip", 0.5F}}},
  };
  if (type != "RNN")
    all.push_back({is_lstm ? "coupled gates" : "reset after the product",
                   Cell{cell.gates, 4}.operands("3 2 2", 1, true),
                   {{"hidden_size", int64_t{4}}, {is_lstm ? "input_forget" : "linear_before_reset", int64_t{1}}}});
  for (Example& example : all) {
    example.rounding = chained;
    example.results = is_lstm ? 3 : 2;
  }
  return all;
}

}  // namespace tessera::ops
