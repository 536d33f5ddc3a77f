#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>
#include <thread>

#include "kernels/run_kernel.h"
#include "tessera/base/float16.h"
#include "tessera/kernels/cpu/elementwise/jit/function.h"
#include "tessera/kernels/cpu/elementwise/jit/registers.h"

namespace tessera::kernels::jit {
namespace {

using testing::ElementsAre;

std::vector<Target> targets() {
  std::vector<Target> all;
  for (Target target : {Target::avx2, Target::avx512})
    if (target <= best_target()) all.push_back(target);
  return all;
}

int pick(std::mt19937& engine, int count) {
  return std::uniform_int_distribution(0, count - 1)(engine);
}

// Ordinary numbers, and those at which kernels differ if they can.
Tensor elements(DType dtype, int64_t count, std::mt19937& engine) {
  static constexpr uint32_t special[] = {0x00000000, 0x7f800000, 0x7fc00000, 0x7fc12345, 0x7f812345, 0x00000001,
                                         0x00400000, 0x007fffff, 0x00800000, 0x7f7fffff, 0x3f800000, 0x3f808000,
                                         0x3f818000, 0x477fefff, 0x477ff000, 0x33000000, 0x33000001, 0x38801000};
  std::vector<uint32_t> bits(count);
  for (uint32_t& element : bits) switch (pick(engine, 4)) {
      case 0:
        element = special[pick(engine, std::size(special))] | static_cast<uint32_t>(pick(engine, 2)) << 31;
        break;
      case 1:
        element = static_cast<uint32_t>(engine());
        break;
      default:
        element = std::bit_cast<uint32_t>(std::normal_distribution<float>(0, 4)(engine));
    }
  if (dtype == DType::float32) return Tensor::of(dtype, {count}, bits);
  if (dtype == DType::boolean) {
    std::vector<uint8_t> bytes;
    for (uint32_t element : bits) bytes.push_back(pick(engine, 2) == 0 ? 0 : element & 0xff);
    return Tensor::of(dtype, {count}, bytes);
  }
  std::vector<uint16_t> narrow;
  for (uint32_t element : bits)
    narrow.push_back(pick(engine, 2) == 0 ? static_cast<uint16_t>(element >> 16)
                                          : (dtype == DType::bfloat16 ? BFloat16(std::bit_cast<float>(element)).bits
                                                                      : Float16(std::bit_cast<float>(element)).bits));
  return Tensor::of(dtype, {count}, narrow);
}

Tensor repeated(const Tensor& one, int64_t count) {
  Tensor all = Tensor::zeros(one.dtype, {count});
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(static_cast<std::byte*>(all.mutable_data()) + i * one.bytes, one.data, one.bytes);
  return all;
}

uint32_t bits_at(const void* elements, DType dtype, int64_t at) {
  const size_t size = bytes_of(dtype, 1);
  uint32_t bits = 0;
  std::memcpy(&bits, static_cast<const std::byte*>(elements) + static_cast<size_t>(at) * size, size);
  return bits;
}

bool is_nan(DType dtype, uint32_t bits) {
  if (dtype == DType::float16) return (bits & 0x7fffu) > 0x7c00u;
  return ((dtype == DType::bfloat16 ? bits << 16 : bits) & 0x7fffffffu) > 0x7f800000u;
}

// A chain, its operands, and what each step's own kernel makes of them.
struct Trial {
  int64_t count;
  Chain chain;
  std::vector<std::string> op_types;
  std::vector<Tensor> operands, expected;
  std::vector<std::vector<bool>> either;  // of each step's elements: which NaN it is depends on the kernel's compiler

  int add_operand(DType dtype, bool fixed, std::mt19937& engine) {
    chain.operands.push_back({dtype, fixed});
    operands.push_back(elements(dtype, fixed ? 1 : count, engine));
    return static_cast<int>(operands.size()) - 1;
  }

  int add_step(const std::string& op_type, DType dtype, const std::vector<int>& places, bool stored) {
    Node node;
    node.op_type = op_type;
    std::vector<DType> types;
    std::vector<Tensor> inputs;
    for (int place : places) {
      const bool fixed = place >= 0 && chain.operands[place].fixed;
      inputs.push_back(place < 0 ? expected[~place] : fixed ? repeated(operands[place], count) : operands[place]);
      types.push_back(inputs.back().dtype);
    }
    const auto operation = operation_of(node, types, dtype);
    EXPECT_TRUE(operation) << op_type;
    chain.steps.push_back({operation.value_or(Operation::cast), dtype, places, stored});
    op_types.push_back(op_type);
    expected.push_back(run_kernel_one(op_type, inputs, dtype, {count}));
    const bool moves = op_type == "Where";
    either.emplace_back(count, false);
    for (int64_t i = 0; i < count; ++i) {
      int nans = places.size() > 2 && !moves ? 2 : 0;  // on the way, too
      for (size_t k = 0; k < places.size(); ++k) {
        nans += !moves && is_nan(types[k], bits_at(inputs[k].data, types[k], i));
        nans += places[k] < 0 && either[~places[k]][i] ? 2 : 0;
      }
      either.back()[i] = nans > 1 && is_nan(dtype, bits_at(expected.back().data, dtype, i));
    }
    return ~(static_cast<int>(expected.size()) - 1);
  }

  std::string text() const {
    std::string all;
    for (size_t s = 0; s < op_types.size(); ++s) {
      all += "~" + std::to_string(s) + " = " + op_types[s] + " " + std::string(name_of(chain.steps[s].dtype)) + "(";
      for (int place : chain.steps[s].operands)
        all += " " + (place < 0 ? "~" + std::to_string(~place) : std::to_string(place));
      all += chain.steps[s].stored ? " ) stored; " : " ); ";
    }
    return all;
  }
};

constexpr std::byte kUnwritten{0xAB};

// Memory that begins `skip` elements behind an aligned address, and margins.
struct Unaligned {
  Unaligned(DType dtype, int64_t count, int64_t skip)
      : skipped(64 + bytes_of(dtype, skip)), bytes(bytes_of(dtype, count)), storage(skipped + bytes + 64, kUnwritten) {}
  std::byte* data() { return storage.data() + skipped; }
  bool is_margin_whole() const {
    for (size_t i = 0; i < storage.size(); ++i)
      if ((i < skipped || i >= skipped + bytes) && storage[i] != kUnwritten) return false;
    return true;
  }
  size_t skipped, bytes;
  std::vector<std::byte> storage;
};

// Whether a result of step `maker` may lie in the operand's memory.
bool may_take_over(const Chain& chain, size_t maker, size_t operand) {
  if (chain.operands[operand].fixed) return false;
  if (bytes_of(chain.operands[operand].dtype, 1) != bytes_of(chain.steps[maker].dtype, 1)) return false;
  for (size_t s = maker + 1; s < chain.steps.size(); ++s)
    for (int place : chain.steps[s].operands)
      if (place == static_cast<int>(operand)) return false;
  return true;
}

void expect_same_bits(const Trial& trial, Target target, std::mt19937& engine, bool in_place) {
  const auto function = compile(trial.chain, target);
  ASSERT_TRUE(function);
  std::vector<Unaligned> memory;
  for (const Tensor& operand : trial.operands) {
    memory.emplace_back(operand.dtype, operand.count(), pick(engine, 16));
    std::memcpy(memory.back().data(), operand.data, operand.bytes);
  }
  std::vector<size_t> place_of_result;
  std::vector<bool> taken(trial.operands.size(), false);
  for (size_t s = 0; s < trial.chain.steps.size(); ++s) {
    if (!trial.chain.steps[s].stored) continue;
    size_t place = memory.size();
    for (size_t i = 0; in_place && i < trial.operands.size(); ++i)
      if (!taken[i] && may_take_over(trial.chain, s, i) && place == memory.size()) place = i;
    if (place == memory.size())
      memory.emplace_back(trial.chain.steps[s].dtype, trial.count, pick(engine, 16));
    else
      taken[place] = true;
    place_of_result.push_back(place);
  }
  std::vector<const void*> operands;
  std::vector<void*> results;
  for (size_t i = 0; i < trial.operands.size(); ++i) operands.push_back(memory[i].data());
  for (size_t place : place_of_result) results.push_back(memory[place].data());
  function->run(operands.data(), results.data(), trial.count);

  size_t result = 0;
  for (size_t s = 0; s < trial.chain.steps.size(); ++s) {
    if (!trial.chain.steps[s].stored) continue;
    const DType dtype = trial.chain.steps[s].dtype;
    const std::byte* made = memory[place_of_result[result++]].data();
    for (int64_t i = 0; i < trial.count; ++i) {
      const uint32_t got = bits_at(made, dtype, i), want = bits_at(trial.expected[s].data, dtype, i);
      if (trial.either[s][i] && is_nan(dtype, got)) continue;
      ASSERT_EQ(got, want) << "element " << i << " of step " << s;
    }
  }
  for (const Unaligned& block : memory) ASSERT_TRUE(block.is_margin_whole());
}

const std::vector<DType> kFloats{DType::float32, DType::bfloat16, DType::float16};

struct Case {
  const char* op_type;
  int operands;
};
const std::vector<Case> kCases{{"Add", 2},  {"Sub", 2},  {"Mul", 2},        {"Div", 2},   {"Min", 1},
                               {"Min", 2},  {"Min", 3},  {"Max", 1},        {"Max", 2},   {"Max", 4},
                               {"Sum", 1},  {"Sum", 2},  {"Sum", 5},        {"Neg", 1},   {"Abs", 1},
                               {"Sqrt", 1}, {"Relu", 1}, {"Reciprocal", 1}, {"Where", 3}, {"Cast", 1}};

class Jit : public testing::Test {
 protected:
  void SetUp() override {
    if (targets().empty()) GTEST_SKIP() << "the compiler writes no code for this processor";
  }
};

TEST_F(Jit, each_operation_has_the_bits_of_its_kernel_at_every_length) {
  std::mt19937 engine(1);
  for (const Case& tested : kCases)
    for (DType dtype : kFloats)
      for (DType from : kFloats)
        for (int64_t count = 1; count <= 200; ++count) {
          const std::string op_type = tested.op_type;
          if (op_type == "Where" && dtype == DType::float16) continue;
          if (op_type != "Cast" && from != dtype) continue;
          Trial trial{count};
          std::vector<int> operands;
          for (int i = 0; i < tested.operands; ++i)
            operands.push_back(trial.add_operand(op_type == "Where" && i == 0 ? DType::boolean : from,
                                                 tested.operands > 1 && pick(engine, 3) == 0, engine));
          trial.add_step(op_type, dtype, operands, true);
          for (Target target : targets()) {
            SCOPED_TRACE(trial.text() + "elements: " + std::to_string(count));
            expect_same_bits(trial, target, engine, false);
            if (HasFatalFailure()) return;
          }
        }
}

Trial random_trial(std::mt19937& engine) {
  Trial trial{1 + pick(engine, 200)};
  std::vector<std::pair<DType, int>> values;  // and their places
  const int steps = 1 + pick(engine, 14);
  const auto value_of = [&](DType dtype) {
    std::vector<int> places;
    for (const auto& [type, place] : values)
      if (type == dtype) places.push_back(place);
    if (!places.empty() && pick(engine, 4) != 0) return places[pick(engine, static_cast<int>(places.size()))];
    const int place = trial.add_operand(dtype, pick(engine, 3) == 0, engine);
    values.emplace_back(dtype, place);
    return place;
  };
  const int types = 1 + pick(engine, 3);
  for (int s = 0; s < steps; ++s) {
    const Case& chosen = kCases[pick(engine, static_cast<int>(kCases.size()))];
    const std::string op_type = chosen.op_type;
    DType dtype = kFloats[pick(engine, types)];
    if (op_type == "Where" && dtype == DType::float16) dtype = DType::float32;
    std::vector<int> operands;
    for (int i = 0; i < chosen.operands; ++i)
      operands.push_back(value_of(op_type == "Where" && i == 0 ? DType::boolean
                                  : op_type == "Cast"          ? kFloats[pick(engine, types)]
                                                               : dtype));
    values.emplace_back(dtype, trial.add_step(op_type, dtype, operands, s + 1 == steps || pick(engine, 4) == 0));
  }
  return trial;
}

TEST_F(Jit, random_chains_have_the_bits_of_their_kernels) {
  int compiled = 0;
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    std::mt19937 engine(seed);
    const Trial trial = random_trial(engine);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + trial.text());
    for (Target target : targets()) {
      if (!fits(trial.chain, target)) continue;
      ++compiled;
      for (bool in_place : {false, true}) expect_same_bits(trial, target, engine, in_place);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(compiled, 1000);
}

const Chain kSum{{{DType::float32, false}, {DType::float32, true}}, {{Operation::add, DType::float32, {0, 1}, true}}};

TEST_F(Jit, equal_chains_share_a_function_while_somebody_holds_it) {
  const Target target = best_target();
  const auto first = compile(kSum, target);
  EXPECT_EQ(compile(kSum, target), first);
  Chain other = kSum;
  other.operands[1].fixed = false;
  EXPECT_NE(compile(other, target), first);
}

TEST_F(Jit, threads_compile_at_once) {
  std::vector<std::thread> threads;
  std::vector<float> results(8, 0);
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([t, &results] {
      for (int round = 0; round < 100; ++round) {
        const auto function = compile(kSum, best_target());
        const float a = static_cast<float>(t), b = 1;
        const void* operands[] = {&a, &b};
        void* result = &results[t];
        function->run(operands, &result, 1);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(results, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

TEST_F(Jit, chains_with_more_values_than_registers_do_not_fit) {
  Chain chain{{{DType::float32, false}}, {}};
  for (int s = 0; s < 40; ++s) chain.steps.push_back({Operation::neg, DType::float32, {0}, false});
  std::vector<int> all;
  for (int s = 0; s < 40; ++s) all.push_back(~s);
  chain.steps.push_back({Operation::add, DType::float32, all, true});
  for (Target target : targets()) EXPECT_FALSE(fits(chain, target));
}

TEST(Registers, are_free_after_the_last_reader) {
  const Chain chain{{{DType::float32, false}, {DType::float32, false}},
                    {{Operation::mul, DType::float32, {0, 0}, false}, {Operation::add, DType::float32, {~0, 1}, true}}};
  const Registers registers(chain);
  EXPECT_THAT(registers.of_operand, ElementsAre(0, 0));
  EXPECT_THAT(registers.of_step, ElementsAre(1, 2));
  EXPECT_EQ(registers.count, 3);
}

TEST(Operations, are_those_that_the_compiler_knows) {
  Node node;
  node.op_type = "Add";
  EXPECT_EQ(operation_of(node, {DType::float32, DType::float32}, DType::float32), Operation::add);
  EXPECT_FALSE(operation_of(node, {DType::int32, DType::int32}, DType::int32));
  EXPECT_FALSE(operation_of(node, {DType::float32, DType::float64}, DType::float32));
  node.domain = "com.example";
  EXPECT_FALSE(operation_of(node, {DType::float32, DType::float32}, DType::float32));
  node.domain.clear();
  node.op_type = "Tanh";
  EXPECT_FALSE(operation_of(node, {DType::float32}, DType::float32));
  node.op_type = "Where";
  EXPECT_TRUE(operation_of(node, {DType::boolean, DType::bfloat16, DType::bfloat16}, DType::bfloat16));
  EXPECT_FALSE(operation_of(node, {DType::boolean, DType::float16, DType::float16}, DType::float16));
}

}  // namespace
}  // namespace tessera::kernels::jit
