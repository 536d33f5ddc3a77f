#include "tessera/bind/kernel_cache.h"

#include <gtest/gtest.h>

namespace tessera::bind {
namespace {

class NoKernel : public kernels::Kernel {
 public:
  void run(const kernels::KernelArgs&) override {}
};

class SharedKernels : public testing::Test {
 protected:
  std::shared_ptr<kernels::Kernel> asked(const kernels::PrepareContext& context) {
    return cache.kernel(&result, context, [&] {
      ++prepared;
      return std::make_unique<NoKernel>();
    });
  }

  KernelCache cache;
  Value result;
  Node node, follower;
  int weight = 0, other_weight = 0, prepared = 0;
  kernels::PrepareContext context{node, {{DType::float32, {1, 8}}}, {{DType::float32, {1, 4}}}, {&weight}};
};

TEST_F(SharedKernels, the_same_preparation_is_one_kernel) {
  auto kernel = asked(context);
  EXPECT_EQ(asked(context), kernel);
  EXPECT_EQ(prepared, 1);
}

TEST_F(SharedKernels, whatever_differs_is_another_kernel) {
  auto kernel = asked(context);
  std::vector<std::shared_ptr<kernels::Kernel>> held;
  auto expect_another = [&](auto change) {
    kernels::PrepareContext changed = context;
    change(changed);
    held.push_back(asked(changed));
    EXPECT_NE(held.back(), kernel);
    EXPECT_EQ(prepared, static_cast<int>(held.size()) + 1);
  };
  using Context = kernels::PrepareContext;
  expect_another([](Context& changed) { changed.inputs[0].dims = {2, 8}; });
  expect_another([](Context& changed) { changed.inputs[0].strides = {16, 1}; });
  expect_another([](Context& changed) { changed.inputs[0].dtype = DType::bfloat16; });
  expect_another([](Context& changed) { changed.outputs[0].block = 8; });
  expect_another([&](Context& changed) { changed.known = {&other_weight}; });
  expect_another([&](Context& changed) { changed.followers.push_back({&follower, {~0}}); });
  EXPECT_EQ(asked(context), kernel);
}

TEST_F(SharedKernels, a_kernel_that_no_plan_holds_is_gone) {
  asked(context);
  asked(context);
  EXPECT_EQ(prepared, 2);
}

}  // namespace
}  // namespace tessera::bind
