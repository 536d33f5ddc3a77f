// Gradients on several ranks are those on one: every case of every operator with one of its operands split over 2 and
// over 3 ranks. What is linear in integers has the same bits.
#include <gtest/gtest.h>

#include <cmath>

#include "property/shardings.h"
#include "property/trial.h"
#include "sample.h"
#include "tessera/base/error.h"
#include "train/differentiated.h"
#include "train/gradient_cases.h"

namespace tessera::train {
namespace {

using property::Subject;

/// Integers so small that their sums have no rounding, whatever the order.
bool are_small_integers(const Tensor& tensor) {
  const std::vector<double> values = doubles_of(tensor);
  return std::all_of(values.begin(), values.end(),
                     [](double value) { return value == std::round(value) && std::abs(value) < 0x1p16; });
}

void expect_the_same_on_meshes(const Subject& subject) {
  Differentiated made;
  try {
    made = differentiate(subject, float_outputs(subject), DType::float32, Elements::given);
  } catch (const Error& error) {
    EXPECT_TRUE(is_refused(error.what())) << error.what();
    return;
  }
  const auto results = run_on_one(made.backward);
  const bool exact =
      std::all_of(results.begin(), results.end(), [](const auto& result) { return are_small_integers(result.second); });
  constexpr double kScale = 4;  // loss weights are up to 5, and sums of them may cancel
  made.backward.bound = exact ? property::kExact : property::Bound{property::kChain.relative, kScale};
  property::Trials trials(made.backward);
  for (const Mesh& mesh : {Mesh::parse("x=2"), Mesh::parse("x=3")})
    // Among them the loss's weights, which lie as the results do.
    for (const Value* value : made.backward.graph->inputs)
      for (const Sharding& sharding : property::single_shardings(value->shape(), AxisRef::whole(mesh.axes()[0]), 1))
        trials.run(mesh, {{value, sharding, "test"}});
}

class GradientsOnMeshes : public testing::TestWithParam<OperatorKey> {};

TEST_P(GradientsOnMeshes, are_those_on_one_rank) {
  static const std::vector<Subject> all = gradient_cases();
  size_t seen = 0;
  for (const Subject& subject : all) {
    if (key_of(subject) != GetParam() || float_outputs(subject).empty()) continue;
    // A sample of many.
    constexpr size_t kFew = 6, kEvery = 5;
    if (++seen > kFew && seen % kEvery != 0 && !test::tries_all()) continue;
    SCOPED_TRACE(subject.name);
    expect_the_same_on_meshes(subject);
  }
  EXPECT_GT(seen, 0u);
}

INSTANTIATE_TEST_SUITE_P(Train, GradientsOnMeshes, testing::ValuesIn(with_gradient()),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace tessera::train
