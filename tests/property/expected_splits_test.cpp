// Along which dimensions operators can be split, and which operands they take partial: a table, so that a rule that
// needs something whole where it did not is seen. TESSERA_UPDATE_GOLDENS=1 writes it anew; then read the difference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "property/cases.h"
#include "property/shardings.h"
#include "tessera/ops/op.h"
#include "tessera/spmd/decide/decide.h"
#include "tessera/spmd/layout/propagate.h"
#include "tessera/spmd/partition/halo.h"

namespace tessera::property {
namespace {

const std::string kPath = std::string(TESSERA_TEST_DATA) + "/property/expected_splits.txt";

constexpr std::string_view kHeader =
    "# What of each property case can be split over ranks: its rule (a name alone passes, 1 is whole), then the sets "
    "of\n"
    "# operands that may be partial together, and which others must be finite for that.\n";

std::string partials_of(const ops::Rule& rule) {
  std::string text;
  for (const ops::PartialSet& set : rule.partials) {
    text += fmt::format("; partial {} of {}", name_of(set.reduction), fmt::join(set.operands, "+"));
    if (!set.finite.empty()) text += fmt::format(" if finite {}", fmt::join(set.finite, "+"));
  }
  return text;
}

std::vector<std::string> lines_now() {
  std::vector<std::string> lines;
  for (const Subject& subject : all_cases()) {
    const Node& node = *subject.graph->nodes().front();
    const ops::Rule rule = ops::op_of(node).rule(node);
    lines.push_back(fmt::format("{}: {}{}", subject.name, rule.str(), partials_of(rule)));
  }
  return lines;
}

TEST(ExpectedSplits, AreWhatRulesSay) {
  const std::vector<std::string> lines = lines_now();
  if (std::getenv("TESSERA_UPDATE_GOLDENS")) {
    std::ofstream out(kPath);
    out << kHeader;
    for (const std::string& line : lines) out << line << "\n";
  }
  std::ifstream in(kPath);
  ASSERT_TRUE(in) << kPath;
  std::vector<std::string> expected;
  for (std::string line; std::getline(in, line);)
    if (!line.starts_with('#')) expected.push_back(line);
  ASSERT_EQ(lines.size(), expected.size()) << "TESSERA_UPDATE_GOLDENS=1 writes the table anew";
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i], expected[i]);
}

// Whether no rank receives as much of the others' parts, for all operands that are read in windows, as a gather of one
// operand would give it.
bool is_worth_its_halo(const Node& node, const ops::Rule& rule, int along, size_t gathered, const AxisRef& axis,
                       const spmd::Hints& hints) {
  const ops::Factor& factor = rule.factors[along];
  const auto elements = [&](size_t operand, const Expr& of_dim) {
    double count = spmd::hinted(of_dim, hints);
    for (size_t d = 0; d < rule.operands[operand].size(); ++d)
      if (rule.operands[operand][d] != ops::DimFactors{along})
        count *= spmd::hinted(node.inputs[operand]->shape()[d], hints);
    return count;
  };
  const auto extent = [&](size_t operand) {
    for (size_t d = 0; d < rule.operands[operand].size(); ++d)
      if (rule.operands[operand][d] == ops::DimFactors{along}) return node.inputs[operand]->shape()[d];
    return Expr(1);
  };
  for (int64_t member = 0; member < axis.size; ++member) {
    double received = 0;
    for (const auto& [operand, window] : factor.windows) {
      const spmd::Halo halo(window, extent(static_cast<size_t>(operand)), factor.size, {axis});
      received += elements(static_cast<size_t>(operand), halo.received(member));
    }
    if (2 * received >= elements(gathered, extent(gathered) - 1)) return false;
  }
  return true;
}

// The compiler splits every dimension that the rule allows: an operand that is annotated as split along only one such
// dimension is not gathered for the operator.
TEST(ExpectedSplits, AreDone) {
  const Mesh mesh({{"x", 2}});
  const AxisRef axis = AxisRef::whole(mesh.axes()[0]);
  int split = 0;
  for (const Subject& subject : all_cases()) {
    const Node& node = *subject.graph->nodes().front();
    const ops::Rule rule = ops::op_of(node).rule(node);
    const spmd::Hints hints(subject.symbols.begin(), subject.symbols.end());
    for (size_t t = 0; t < node.inputs.size(); ++t)
      for (size_t d = 0; d < rule.operands[t].size(); ++d) {
        const Value* operand = node.inputs[t];
        if (!operand || (operand->kind != ValueKind::input && operand->kind != ValueKind::state)) continue;
        const ops::DimFactors& factors = rule.operands[t][d];
        if (operand->shape()[d].is(1) || factors.size() != 1) continue;
        const ops::Factor& factor = rule.factors[factors[0]];
        const ops::FactorTraits& traits = ops::traits_of(factor.kind);
        if (!factor.can_be_split() || traits.communicates() || traits.priced) continue;  // which has a price
        if (traits.by_window && !is_worth_its_halo(node, rule, factors[0], t, axis, hints)) continue;
        Sharding wanted = Sharding::replicated(operand->shape());
        wanted.dims[d].parts[0].axes = {axis};
        const std::vector<spmd::Annotation> annotations = {{operand, wanted, "test"}};
        spmd::Layout layout(*subject.graph, hints, {{operand, wanted}});
        spmd::propagate(layout, annotations, mesh);
        const spmd::Decisions decisions = spmd::decide(*subject.graph, layout, mesh, hints, annotations);
        EXPECT_TRUE(decisions.nodes[0].operands[t].dims[d].is_split())
            << subject.name << ": operand " << t << ", dimension " << d << " is gathered";
        ++split;
      }
  }
  EXPECT_GT(split, 0);
}

}  // namespace
}  // namespace tessera::property
