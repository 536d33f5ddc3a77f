#include "property/cases.h"

namespace tessera::property {

using Operands = std::vector<Value*>;

// X [steps, batch, inputs], W [directions, gates·hidden, inputs], R [directions, gates·hidden, hidden].
std::vector<Subject> recurrent_cases() {
  CaseList list;
  struct Cell {
    std::string_view type;
    int64_t gates;
    size_t results;
  };
  for (const Cell& cell : {Cell{"RNN", 1, 2}, Cell{"GRU", 3, 2}, Cell{"LSTM", 4, 3}}) {
    auto operands = [&](Builder& b, int64_t directions, bool biased) -> Operands {
      const int64_t rows = cell.gates * 3;
      auto dims = [](std::initializer_list<int64_t> extents) {
        std::string text;
        for (int64_t extent : extents) text += (text.empty() ? "" : " ") + std::to_string(extent);
        return text;
      };
      Operands made{b.input("4 5 2", Fill::unit), b.weight(dims({directions, rows, 2}), Fill::unit),
                    b.weight(dims({directions, rows, 3}), Fill::unit)};
      if (biased) made.push_back(b.weight(dims({directions, 2 * rows}), Fill::unit));
      return made;
    };
    Attribute hidden{"hidden_size", int64_t{3}};
    list.add(
        cell.type, "forward", [&](Builder& b) { return operands(b, 1, false); }, {hidden}, kChain, cell.results);
    list.add(
        cell.type, "both directions, biased", [&](Builder& b) { return operands(b, 2, true); },
        {hidden, {"direction", std::string("bidirectional")}}, kChain, cell.results);
    // Lengths of the sequences, and the states before the first step; an LSTM's peepholes.
    auto with_states = [&](Builder& b, std::string_view x, std::string_view states) -> Operands {
      b.bind("n", 5).bind("t", 4);
      const std::string rows = std::to_string(cell.gates * 3), biases = std::to_string(cell.gates * 6);
      Operands made{b.input(x, Fill::unit),
                    b.weight("1 " + rows + " 2", Fill::unit),
                    b.weight("1 " + rows + " 3", Fill::unit),
                    b.weight("1 " + biases, Fill::unit),
                    b.indices("n", 0, 5, DType::int32),
                    b.input(states, Fill::unit)};
      if (cell.type == "LSTM") {
        made.push_back(b.input(states, Fill::unit));
        made.push_back(b.weight("1 9", Fill::unit));
      }
      return made;
    };
    list.add(
        cell.type, "lengths and initial states", [&](Builder& b) { return with_states(b, "t n 2", "1 n 3"); }, {hidden},
        kChain, cell.results);
    list.add(
        cell.type, "the batch first", [&](Builder& b) { return with_states(b, "n t 2", "n 1 3"); },
        {hidden, {"layout", int64_t{1}}}, kChain, cell.results);
    list.add(
        cell.type, "from the end, clipped", [&](Builder& b) { return with_states(b, "t n 2", "1 n 3"); },
        {hidden, {"direction", std::string("reverse")}, {"clip", 0.5f}}, kChain, cell.results);
  }
  for (const char* what : {"reset after the product", "coupled gates"}) {
    const bool gru = std::string(what).starts_with("reset");
    list.add(
        gru ? "GRU" : "LSTM", what,
        [&](Builder& b) -> Operands {
          const std::string rows = gru ? "1 12" : "1 16";
          return {b.input("3 2 2", Fill::unit), b.weight(rows + " 2", Fill::unit), b.weight(rows + " 4", Fill::unit),
                  b.weight(gru ? "1 24" : "1 32", Fill::unit)};
        },
        {{"hidden_size", int64_t{4}}, {gru ? "linear_before_reset" : "input_forget", int64_t{1}}}, kChain, gru ? 2 : 3);
  }
  return list.take();
}

}  // namespace tessera::property
