#include "tessera/ir/einsum.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"

namespace tessera {
namespace {

std::vector<std::string> labels_of(std::string_view term, size_t ellipsis_rank, std::string_view label) {
  std::vector<std::string> labels;
  for (size_t i = 0; i < term.size(); ++i) {
    if (term[i] == ' ') continue;
    if (term.substr(i, 3) == "...") {
      for (size_t d = ellipsis_rank; d-- > 0;) labels.push_back("e" + std::to_string(d));
      i += 2;
    } else if (std::isalpha(static_cast<unsigned char>(term[i]))) {
      labels.emplace_back(1, term[i]);
    } else {
      fail("shape", "{}: the equation has a '{}'; it may contain letters, ',', '->', '...' and spaces", label, term[i]);
    }
  }
  return labels;
}

// Without an arrow: the ellipsis, then every letter that occurs once, in ASCII order.
std::vector<std::string> implied_result(const EinsumEquation& equation, size_t ellipsis_rank, std::string_view label) {
  std::vector<std::string> result = labels_of("...", ellipsis_rank, label);
  std::map<std::string, int> count;
  for (const auto& labels : equation.operands)
    for (const std::string& each : labels) ++count[each];
  for (const auto& [each, times] : count)
    if (times == 1 && each.size() == 1) result.push_back(each);
  return result;
}

}  // namespace

EinsumEquation EinsumEquation::read(std::string_view text, const std::vector<size_t>& ranks, std::string_view label) {
  size_t arrow = text.find("->");
  std::string_view left = text.substr(0, arrow);
  EinsumEquation equation;
  size_t ellipsis_rank = 0;
  for (size_t start = 0; start <= left.size();) {
    size_t end = std::min(left.find(',', start), left.size());
    std::string_view term = left.substr(start, end - start);
    size_t index = equation.operands.size();
    if (index >= ranks.size())
      fail("shape", "{}: the equation '{}' has more terms than the {} operands", label, text, ranks.size());
    size_t named = labels_of(term, 0, label).size(), own = 0;
    if (term.find("...") != std::string_view::npos && ranks[index] > named) own = ranks[index] - named;
    ellipsis_rank = std::max(ellipsis_rank, own);
    equation.operands.push_back(labels_of(term, own, label));
    if (equation.operands[index].size() != ranks[index])
      fail("shape", "{}: the term '{}' has {}, operand {} has {}", label, term,
           counted(equation.operands[index].size(), "dimension"), index, ranks[index]);
    start = end + 1;
  }
  if (equation.operands.size() != ranks.size())
    fail("shape", "{}: the equation '{}' has {} for {}", label, text, counted(equation.operands.size(), "term"),
         counted(ranks.size(), "operand"));
  if (arrow == std::string_view::npos) {
    equation.result = implied_result(equation, ellipsis_rank, label);
    return equation;
  }
  equation.result = labels_of(text.substr(arrow + 2), ellipsis_rank, label);
  for (const std::string& each : equation.result) {
    bool known = std::any_of(equation.operands.begin(), equation.operands.end(), [&](const auto& labels) {
      return std::find(labels.begin(), labels.end(), each) != labels.end();
    });
    if (!known) fail("shape", "{}: the result of '{}' has a label '{}' that no operand has", label, text, each);
    if (std::count(equation.result.begin(), equation.result.end(), each) > 1)
      fail("shape", "{}: the result of '{}' has the label '{}' twice; name each once", label, text, each);
  }
  return equation;
}

}  // namespace tessera
