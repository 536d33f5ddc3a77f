// Gradients are what the functions' difference quotients say: for every operator that has one, in every case of the
// property tests and in those of gradient_cases.cpp, on one rank in float64.
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/kernels/kernel.h"
#include "tessera/ops/op.h"
#include "train/closeness.h"
#include "train/gradient_cases.h"

namespace tessera::train {
namespace {

using property::Subject;

const property::CasesByOperator& cases() {
  static const property::CasesByOperator all = property::by_operator(gradient_cases());
  return all;
}

// Statistics are float32 whatever they are made of.
bool gives_float32(const Differentiated& made, const Subject& subject, const std::vector<size_t>& results) {
  return std::any_of(results.begin(), results.end(), [&](size_t r) {
    return made.forward.graph->find(subject.graph->outputs[r]->name)->dtype() == DType::float32;
  });
}

class Gradients : public testing::TestWithParam<OperatorKey> {};

TEST_P(Gradients, are_the_difference_quotients) {
  const auto found = cases().find(GetParam());
  ASSERT_NE(found, cases().end()) << GetParam().second << " has a gradient and no case";
  const Closeness& closeness = without_float64().contains(GetParam()) ? kFloat32 : kFloat64;
  int compared = 0;
  for (const Subject& subject : found->second) {
    SCOPED_TRACE(subject.name);
    const std::vector<size_t> all = float_outputs(subject);
    if (all.empty()) continue;
    std::vector<std::vector<size_t>> choices = {all};
    if (all.size() > 1)
      for (size_t r : all) choices.push_back({r});
    for (const std::vector<size_t>& results : choices) {
      try {
        Differentiated made = differentiate(subject, results, closeness.type, Elements::smooth);
        if (made.sources.empty()) continue;
        const bool is_narrow = gives_float32(made, subject, results);
        if (is_narrow) made = differentiate(subject, results, DType::float32, Elements::smooth);
        expect_close(made, is_narrow ? kFloat32 : closeness);
        ++compared;
      } catch (const Error& error) {
        EXPECT_TRUE(is_refused(error.what())) << error.what();
      }
    }
  }
  EXPECT_GT(compared, 0);
}

INSTANTIATE_TEST_SUITE_P(Train, Gradients, testing::ValuesIn(with_gradient()),
                         [](const auto& info) { return name_of(info.param); });

TEST(GradientRecords, say_why_there_is_none) {
  for (const ops::OpDef* op : ops::all_ops())
    EXPECT_EQ(op->gradient != nullptr, op->no_gradient.empty()) << op->domain << " " << op->type;
}

}  // namespace
}  // namespace tessera::train
