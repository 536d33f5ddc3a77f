#include "tessera/cost/machine_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.h"
#include "tessera/cost/kernels.h"
#include "tessera/cost/shipped_machines.h"

namespace tessera::cost {
namespace {

using testing::HasSubstr;

constexpr std::string_view kMachine = R"({"name": "m", "kernel": 1e-6, "memory": 8e10,
  "products": {"float32": {"flops": 1e12, "half": [64, 32, 16], "multiple": 8, "otherwise": 0.5}}, "rates": {"Attention": 0.25},
  "bandwidths": [{"up_to": 1e6, "bytes_per_second": 1e12}, {"bytes_per_second": 1e11}],
  "links": [{"name": "near", "size": 8, "alpha": 1e-6, "bandwidth": 1e11}, {"name": "far", "alpha": 1e-5, "bandwidth": 1e10}],
  "slows_computation": 1.5, "overlaps": {"gloo": {"slowed_by_computation": 2}},
  "kernels": {"MatMul a": {"seconds": 1e-3, "flops": 1e9, "bytes": 100, "uncertain": true}},
  "collectives": [{"engine": "threads", "kind": "all_reduce", "members": 2, "points": [[1024, 1e-6], [4096, 2e-6]]}]})";

std::string topology(std::string_view machine, const std::string& mesh) {
  std::string text;
  for (const Topology::Axis& axis : MachineModel::from_json(machine).topology(Mesh::parse(mesh)).axes) {
    text += (text.empty() ? "" : "; ") + axis.name + ":";
    for (const LinkLevel& level : axis.levels) text += " " + std::to_string(level.size) + " " + level.name;
  }
  return text;
}

TEST(MachineModel, ReadsWhatItWrites) {
  const MachineModel machine = MachineModel::from_json(kMachine);
  const MachineModel again = MachineModel::from_json(machine.to_json());
  EXPECT_EQ(machine.to_json(), again.to_json());
  EXPECT_EQ(again.links, machine.links);
  EXPECT_EQ(again.rates, machine.rates);
  EXPECT_EQ(again.products, machine.products);
  EXPECT_EQ(again.kernels, machine.kernels);
  EXPECT_TRUE(machine.kernels.at("MatMul a").uncertain);
  EXPECT_EQ(again.overlap_on("gloo"), (MachineModel::Overlap{1, 2}));
  EXPECT_EQ(again.overlap_on("threads"), (MachineModel::Overlap{1.5, 1}));
  EXPECT_EQ(again.collectives, machine.collectives);
}

TEST(MachineModel, ThoseThatComeWithTesseraAreValidAndSayTheirSources) {
  ASSERT_FALSE(shipped_machines().empty());
  for (const ShippedMachine& shipped : shipped_machines()) {
    SCOPED_TRACE(shipped.name);
    const MachineModel machine = MachineModel::from_json(shipped.text, shipped.name);
    EXPECT_FALSE(machine.sources.empty());
    EXPECT_FALSE(machine.products.empty());
    EXPECT_FALSE(machine.links.empty());
  }
}

TEST(MachineModel, DividesTheMeshAmongLevelsFromTheLastAxis) {
  EXPECT_EQ(topology(kMachine, "dp=4,tp=8"), "dp: 4 far; tp: 8 near");
  EXPECT_EQ(topology(kMachine, "dp=4,tp=2"), "dp: 4 near; tp: 2 near");
  EXPECT_EQ(topology(kMachine, "dp=16,tp=2"), "dp: 4 near 4 far; tp: 2 near");
  EXPECT_EQ(topology(kMachine, "tp=16"), "tp: 8 near 2 far");
  EXPECT_EQ(topology(kMachine, "dp=2,tp=6"), "dp: 2 far; tp: 6 near");  // hosts with six ranks
  EXPECT_EQ(topology(kMachine, "dp=1,tp=8"), "dp: 1 ; tp: 8 near");
}

TEST(MachineModel, NamesWhatIsWrongAndWhere) {
  const auto refused = [](std::string_view text) {
    return test::error_of([&] { MachineModel::from_json(text, "m.json"); });
  };
  const std::string memory = R"("bandwidths": [{"bytes_per_second": 1e9}])";
  EXPECT_THAT(refused("{"), HasSubstr("m.json is not JSON"));
  EXPECT_THAT(refused(R"({"kernel": 1, "kernel": 2})"), HasSubstr("'kernel' is given twice"));
  EXPECT_THAT(refused("[]"), HasSubstr("m.json has type array, but must be an object"));
  EXPECT_THAT(refused("{}"), HasSubstr("m.json has no 'bandwidths'"));
  EXPECT_THAT(refused("{" + memory + R"(, "speed": 1})"), HasSubstr("has no key 'speed'; its keys are: "));
  EXPECT_THAT(refused("{" + memory + R"(, "kernel": -1})"),
              HasSubstr("'kernel' is -1, but must be a number of at least 0"));
  EXPECT_THAT(refused("{" + memory + R"(, "device": "gpu"})"), HasSubstr("'device' is 'gpu'"));
  EXPECT_THAT(refused("{" + memory + R"(, "products": {"float33": {"flops": 1}}})"),
              HasSubstr("no element type 'float33'"));
  EXPECT_THAT(refused("{" + memory + R"(, "products": {"float32": {"flops": 1, "half": [1]}}})"),
              HasSubstr("'half' has three numbers"));
  EXPECT_THAT(refused("{" + memory + R"(, "links": [{"alpha": 0, "bandwidth": 1}, {"alpha": 0, "bandwidth": 1}]})"),
              HasSubstr("the level before it has no 'size'"));
  EXPECT_THAT(refused(R"({"bandwidths": [{"bytes_per_second": 1e9}, {"up_to": 5, "bytes_per_second": 1e9}]})"),
              HasSubstr("must be in ascending order of 'up_to'"));
  EXPECT_THAT(test::error_of([] { topology(kMachine, "dp=2,tp=12"); }),
              HasSubstr("axis 'tp' of the mesh dp=2,tp=12 crosses"));
}

TEST(KernelTimes, TakesMeasurementsAndScalesTheNearestForOthers) {
  const MachineModel machine = MachineModel::from_json(kMachine);
  const KernelTimes times(machine);
  KernelWork work{"MatMul a", DType::float32, 1e9, 100, 1000, 1000, 500};
  EXPECT_EQ(times.of(work).seconds, 1e-3);
  EXPECT_TRUE(times.of(work).measured);
  const double slower = 1e-3 / times.analytic(work);
  work.signature = "MatMul b";
  work.flops = 2e9;
  EXPECT_FALSE(times.of(work).measured);
  EXPECT_NEAR(times.of(work).seconds, times.analytic(work) * slower, 1e-12);
  work.signature = "Conv b";
  EXPECT_EQ(times.of(work).seconds, times.analytic(work));
}

TEST(KernelTimes, AKernelOfAnotherTypeCountsByTheRatesOfBoth) {
  MachineModel machine = MachineModel::from_json(kMachine);
  machine.kernel = 0;
  machine.products[DType::bfloat16] = machine.products[DType::float32];
  machine.products[DType::bfloat16].flops *= 3;
  machine.kernels = {{"MatMul  float32[8,8] uint8[256]* -> float32[8,8]", {4e-3, 0, 1e9, 100}}};
  const KernelWork half{"MatMul  bfloat16[8,8] uint8[128]* -> bfloat16[8,8]", DType::bfloat16, 1e9, 50, 8, 8, 8};
  EXPECT_NEAR(KernelTimes(machine).of(half).seconds, 4e-3 / 3, 1e-9);
  // Even a kernel of another size of its own type is nearer.
  machine.kernels["MatMul {accumulate=float32} bfloat16[8,8] uint8[128]* -> float32[8,8]"] = {1e-3, 0, 2e9, 50};
  EXPECT_NEAR(KernelTimes(machine).of(half).seconds, 0.5e-3, 1e-9);
}

TEST(KernelTimes, TheTypeOfAKernelIsThatOfItsFirstFloats) {
  EXPECT_EQ(dtype_of("MatMul+Add +2,-1 bfloat16[8,8] uint8[128]* float32[8] -> float32[8,8]"), DType::bfloat16);
  EXPECT_EQ(dtype_of("Gather {axis=0} int64[4] float16[9,8] in blocks of 8 -> float16[4,8]"), DType::float16);
  EXPECT_EQ(dtype_of("Conv {kernel_shape=3,3} - float32[8]* -> float32[8]"), DType::float32);
  EXPECT_EQ(dtype_of("Cast {to=1} int64[4] -> float32[4]"), DType::undefined);
  EXPECT_EQ(dtype_of("MatMul a"), DType::undefined);
}

TEST(KernelTimes, FallsForNarrowProductsAndIsBoundedByMemory) {
  const MachineModel machine = MachineModel::from_json(kMachine);
  const KernelTimes times(machine);
  // At half of the rate along each extent.
  EXPECT_NEAR(times.analytic({"", DType::float32, 1e9, 0, 64, 32, 16}), 1e-6 + 8 * 1e-3, 1e-12);
  // At half of that where an extent is no multiple of 8.
  EXPECT_NEAR(times.analytic({"", DType::float32, 1e9, 0, 64, 32, 12}), 1e-6 + 2 * 4 * (28.0 / 12) * 1e-3, 1e-12);
  // A share of the rate of large products, whatever its extents.
  EXPECT_NEAR(times.analytic({"Attention+Add a", DType::float32, 1e9, 0, 64, 32, 16}), 1e-6 + 4 * 1e-3, 1e-12);
  EXPECT_NEAR(times.analytic({"", DType::float32, 0, 1e6, 0, 0, 0}), 1e-6 + 1e-6, 1e-12);
  EXPECT_NEAR(times.analytic({"", DType::float32, 0, 2e6, 0, 0, 0}), 1e-6 + 2e-5, 1e-12);
}

}  // namespace
}  // namespace tessera::cost
