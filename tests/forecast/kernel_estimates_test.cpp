#include "tessera/forecast/kernel_estimates.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::forecast {
namespace {

using testing::IsEmpty;
using Kernels = KernelEstimates::Kernels;

constexpr const char* kProduct = "MatMul  a -> b @1 of 1 threads";

cost::KernelWork work(const std::string& signature, double flops = 1e6) {
  cost::KernelWork made;
  made.signature = signature;
  made.flops = flops;
  return made;
}

// Rounds of one step that takes these seconds.
std::vector<RoundTimes> rounds(const std::vector<double>& seconds) {
  std::vector<RoundTimes> made;
  for (double time : seconds) made.push_back({time});
  return made;
}

TEST(KernelEstimates, AreMeansOfUsualRounds) {
  KernelEstimates estimates({work(kProduct), work(kProduct)}, {});
  estimates.add_series({{1, 3}, {1, 3}, {9, 3}, {1, 3}, {1, 50}, {1, 3}, {1, 3}, {1, 3}});
  EXPECT_TRUE(estimates.is_settled());
  const MachineModel::Kernel found = estimates.found().at(kProduct);
  EXPECT_DOUBLE_EQ(found.seconds, 2) << "the mean over both steps, without the two disturbed rounds";
  EXPECT_FALSE(found.uncertain);
}

TEST(KernelEstimates, AskForASecondSeriesIfDisturbancesRaiseTheMean) {
  KernelEstimates estimates({work(kProduct), work("Sub  a -> b @1 of 1 threads", 0)}, {});
  // Usual rounds take 10; in two of them, the product took far more of it.
  estimates.add_series({{1, 9}, {1, 9}, {1, 9}, {4, 6}, {4, 6}, {1, 9}, {1, 9}, {1, 9}});
  EXPECT_FALSE(estimates.is_settled());
}

TEST(KernelEstimates, AskForASecondSeriesIfTheHalvesOfOneDiffer) {
  KernelEstimates estimates({work(kProduct)}, {});
  estimates.add_series(rounds({2, 2, 2, 2, 1, 1, 1, 1}));
  EXPECT_FALSE(estimates.is_settled());
  EXPECT_TRUE(estimates.found().at(kProduct).uncertain);
  estimates.add_series(rounds({1, 1, 1, 1}));
  EXPECT_FALSE(estimates.is_settled()) << "2 and 1";
  estimates.add_series(rounds({1.02, 1.02, 1.02, 1.02}));
  EXPECT_TRUE(estimates.is_settled());
  EXPECT_NEAR(estimates.found().at(kProduct).seconds, 1.01, 1e-12);
}

TEST(KernelEstimates, AskForASecondSeriesIfTimesScatter) {
  KernelEstimates estimates({work(kProduct)}, {});
  estimates.add_series(rounds({1, 2, 1, 2, 1, 2, 1, 2}));
  EXPECT_FALSE(estimates.is_settled());
}

TEST(KernelEstimates, AskForASecondSeriesIfAKernelIsFarSlowerThanOthersOfItsOperator) {
  const auto signature = [](int n) { return fmt::format("Conv  a{} -> b @1 of 2 threads", n); };
  const std::vector<cost::KernelWork> works = {work(signature(0)), work(signature(1), 2e6), work(signature(2), 3e6),
                                               work(signature(3))};
  KernelEstimates even(works, {});
  even.add_series({{1, 2, 3, 1.5}, {1, 2, 3, 1.5}});
  EXPECT_TRUE(even.is_settled());
  KernelEstimates estimates(works, {});
  estimates.add_series({{1, 2, 3, 2.5}, {1, 2, 3, 2.5}});
  EXPECT_FALSE(estimates.is_settled());
  estimates.add_series({{1, 2, 3, 2.5}, {1, 2, 3, 2.5}});
  EXPECT_TRUE(estimates.is_settled()) << "it is slow";
  EXPECT_FALSE(estimates.found().at(signature(3)).uncertain);
}

TEST(KernelEstimates, CompareWithKnownKernelsOfTheSameConditionsOnly) {
  Kernels known;
  for (int n = 0; n < 3; ++n) known[fmt::format("MatMul  k{} -> b @1 of 1 threads", n)] = {1, 0, 1e6, 0};
  KernelEstimates slow({work(kProduct)}, known);
  slow.add_series(rounds({3, 3}));
  EXPECT_FALSE(slow.is_settled());
  KernelEstimates other({work("MatMul  a -> b @2 of 1 threads")}, known);
  other.add_series(rounds({3, 3}));
  EXPECT_TRUE(other.is_settled());
}

TEST(KernelEstimates, NeedNoSecondSeriesForWhatHardlyCounts) {
  KernelEstimates estimates({work(kProduct), work("Relu  a -> b @1 of 1 threads", 0)}, {});
  estimates.add_series({{1000, 1}, {1000, 2}, {1000, 1}, {1000, 2}});
  EXPECT_TRUE(estimates.is_settled());
  EXPECT_EQ(estimates.found().size(), 2U);
}

TEST(KernelEstimates, MeasureUncertainKernelsAgainAndKeepTheFasterTime) {
  Kernels known = {{kProduct, {5, 0, 1e6, 0, true}}};
  EXPECT_TRUE(KernelEstimates::is_wanted(work(kProduct), known));
  KernelEstimates estimates({work(kProduct)}, known);
  estimates.add_series(rounds({1, 1, 1, 1}));
  EXPECT_FALSE(estimates.is_settled());
  estimates.add_series(rounds({1, 1, 1, 1}));
  EXPECT_TRUE(estimates.is_settled());
  const MachineModel::Kernel found = estimates.found().at(kProduct);
  EXPECT_DOUBLE_EQ(found.seconds, 1);
  EXPECT_FALSE(found.uncertain);
  known[kProduct] = found;
  EXPECT_FALSE(KernelEstimates::is_wanted(work(kProduct), known));
  EXPECT_THAT(KernelEstimates({work(kProduct)}, known).found(), IsEmpty());
}

TEST(KernelEstimates, LeaveOutKernelsThatDidNotRun) {
  KernelEstimates estimates({work(kProduct), work("Gather  a -> b @1 of 1 threads", 0)}, {});
  estimates.add_series({{1, std::nullopt}, {1, std::nullopt}});
  EXPECT_TRUE(estimates.is_settled());
  EXPECT_EQ(estimates.found().size(), 1U);
}

}  // namespace
}  // namespace tessera::forecast
