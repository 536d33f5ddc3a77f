// Gradients of 16-bit values are those of float32 ones of the same numbers, but for rounding: types fit together, and
// sums and statistics are as wide as the operators' own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tessera/base/error.h"
#include "train/differentiated.h"
#include "train/gradient_cases.h"

namespace tessera::train {
namespace {

using property::Subject;

class SixteenBits : public testing::TestWithParam<std::tuple<OperatorKey, DType>> {};

/// Loss weights are up to 5, and sums of them may cancel: what counts as the largest gradient at least.
constexpr double kLeast = 8;
/// Products near the largest float16, 65504, may overflow on the way.
constexpr double kMost = 1e4;

/// As a part of the largest gradient: some roundings to 8 bits of mantissa, or to 11.
double bound_of(DType type) {
  return type == DType::bfloat16 ? 24 * 0x1p-9 : 24 * 0x1p-12;
}

TEST_P(SixteenBits, have_the_gradients_of_float32) {
  const auto& [key, type] = GetParam();
  static const std::vector<Subject> all = gradient_cases();
  for (const Subject& subject : all) {
    if (key_of(subject) != key || float_outputs(subject).empty()) continue;
    SCOPED_TRACE(subject.name);
    try {
      const Differentiated narrow = differentiate(subject, {float_outputs(subject).front()}, type, Elements::smooth);
      Differentiated wide = differentiate(subject, {float_outputs(subject).front()}, DType::float32, Elements::smooth);
      for (auto& [name, data] : wide.backward.inputs)
        if (data.dtype == DType::float32)
          data = tensor_of(DType::float32, data.dims, doubles_of(narrow.backward.inputs.at(name)));
      const auto made = run_on_one(narrow.backward), wanted = run_on_one(wide.backward);
      ASSERT_EQ(made.size(), wanted.size());
      for (const std::string& source : wide.sources) {
        const auto found = made.find("grad." + source);
        if (found == made.end()) continue;
        EXPECT_EQ(found->second.dtype, type) << source;
        const std::vector<double> a = doubles_of(found->second), b = doubles_of(wanted.at("grad." + source));
        double largest = kLeast;
        for (double element : b) largest = std::max(largest, std::abs(element));
        if (type == DType::float16 && largest > kMost) continue;
        for (size_t i = 0; i < b.size(); ++i)
          ASSERT_NEAR(a[i], b[i], bound_of(type) * largest) << "element " << i << " of " << source;
      }
    } catch (const Error& error) {
      EXPECT_TRUE(is_refused(error.what())) << error.what();
    }
  }
}

std::string name_of_case(const testing::TestParamInfo<std::tuple<OperatorKey, DType>>& info) {
  const OperatorKey& key = std::get<0>(info.param);
  return name_of(key) + "_" + std::string(name_of(std::get<1>(info.param)));
}

INSTANTIATE_TEST_SUITE_P(Train, SixteenBits,
                         testing::Combine(testing::ValuesIn(with_gradient()),
                                          testing::Values(DType::bfloat16, DType::float16)),
                         name_of_case);

}  // namespace
}  // namespace tessera::train
