#include "tessera/kernels/cpu/elementwise/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <cmath>
#include <cstring>
#include <deque>

#include "kernels/random_tensors.h"
#include "tessera/kernels/cpu/elementwise/parts.h"
#include "tessera/kernels/library.h"

namespace tessera::kernels {
namespace {

using testing::ElementsAre;

#ifdef TESSERA_THREAD_SANITIZER
constexpr int kTeam = 1;  // libgomp is not instrumented
#else
constexpr int kTeam = 3;
#endif

int pick(std::mt19937& engine, int count) {
  return std::uniform_int_distribution(0, count - 1)(engine);
}

// Nodes of float32 with operands that broadcast, and what each node's own kernel makes of them alone.
struct Group {
  explicit Group(Dims dims) : dims(std::move(dims)) {}

  int add_operand(const Dims& extents, std::mt19937& engine, bool condition = false) {
    RandomTensors random(engine());
    Tensor numbers = random.normal_floats(extents, 2);
    operands.push_back(condition ? converted<uint8_t>(DType::boolean, random.integer_floats(extents, 1)) : numbers);
    return static_cast<int>(operands.size()) - 1;
  }

  int add_member(const std::string& op_type, const std::vector<int>& places, bool is_stored) {
    Value& result = values.emplace_back();
    result.type.dtype = DType::float32;
    Node& node = nodes.emplace_back();
    node.op_type = op_type;
    node.outputs = {&result};
    node.inputs.resize(places.size());
    std::vector<Tensor> inputs;
    for (int place : places) inputs.push_back(place < 0 ? expected[~place] : operands[place]);
    expected.push_back(run_kernel_one(op_type, inputs, DType::float32, dims));
    followers.push_back({&node, places});
    stored.push_back(is_stored);
    return ~(static_cast<int>(expected.size()) - 1);
  }

  std::string text() const {
    std::string all;
    for (const Follower& member : followers) {
      all += member.node->op_type + "(";
      for (int place : member.operands) all += " " + (place < 0 ? "~" + std::to_string(~place) : std::to_string(place));
      all += stored[&member - followers.data()] ? " ) stored; " : " ); ";
    }
    return all;
  }

  bool may_take_over(size_t maker, size_t operand) const {
    if (operands[operand].dims != dims || operands[operand].dtype != DType::float32) return false;
    for (size_t m = maker + 1; m < followers.size(); ++m)
      for (int place : followers[m].operands)
        if (place == static_cast<int>(operand)) return false;
    return true;
  }

  const Dims dims;
  std::deque<Value> values;
  std::deque<Node> nodes;
  std::vector<Tensor> operands, expected;
  std::vector<Follower> followers;  // the root first
  std::vector<bool> stored;         // the last one is
};

void expect_results_of_single_nodes(const Group& group, int threads, bool in_place) {
  PrepareContext context{*group.followers[0].node};
  context.threads = threads;
  std::vector<Tensor> memory;
  std::vector<const void*> in;
  for (const Tensor& operand : group.operands) {
    context.inputs.push_back({operand.dtype, operand.dims});
    context.known.push_back(nullptr);
    memory.push_back(Tensor::copy_of(operand.dtype, operand.dims, operand.data, operand.bytes));
    in.push_back(memory.back().data);
  }
  const size_t members = group.followers.size();
  context.followers.assign(group.followers.begin() + 1, group.followers.end());
  std::vector<void*> out(members, nullptr);
  std::vector<bool> taken(memory.size(), false);
  context.outputs.resize(members);
  memory.reserve(memory.size() + members);
  for (size_t m = 0; m < members; ++m) {
    if (!group.stored[m]) continue;
    const size_t result = result_of_member(m, members);
    context.outputs[result] = {DType::float32, group.dims};
    for (size_t i = 0; in_place && i < group.operands.size() && !out[result]; ++i)
      if (!taken[i] && group.may_take_over(m, i)) {
        taken[i] = true;
        out[result] = memory[i].mutable_data();
      }
    if (!out[result]) out[result] = memory.emplace_back(Tensor::zeros(DType::float32, group.dims)).mutable_data();
  }
  const auto kernel = elementwise_group(context);
  std::vector<std::max_align_t> scratch(kernel->scratch_bytes() / sizeof(std::max_align_t) + 8);
  kernel->run({in, out, scratch.data()});
  for (size_t m = 0; m < members; ++m) {
    if (!group.stored[m]) continue;
    const auto* made = static_cast<const float*>(out[result_of_member(m, members)]);
    const auto wanted = group.expected[m].as<float>();
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (std::isnan(wanted[i]) && std::isnan(made[i])) continue;
      ASSERT_EQ(std::memcmp(&made[i], &wanted[i], sizeof(float)), 0)
          << "element " << i << " of member " << m << ": " << made[i] << " instead of " << wanted[i];
    }
  }
}

Group random_group(std::mt19937& engine) {
  const int64_t rows = 1 + pick(engine, 4), columns = 1 + pick(engine, pick(engine, 2) == 0 ? 200 : 9000);
  Group group({rows, columns});
  std::vector<int> whole, any, conditions;
  // The root's operands are the group's first ones, in their order.
  const auto value_of = [&](std::vector<int>& places, bool condition, bool spread) {
    if (!group.followers.empty() && !places.empty() && pick(engine, 4) != 0)
      return places[pick(engine, static_cast<int>(places.size()))];
    const std::vector<Dims> extents{{rows, columns}, {columns}, {rows, 1}, {}};
    const int kind = spread ? pick(engine, 4) : 0;
    const int place = group.add_operand(extents[kind], engine, condition);
    if (kind == 0 && !condition) whole.push_back(place);
    if (&places != &whole) places.push_back(place);
    return place;
  };
  const int members = 2 + pick(engine, 10);
  for (int m = 0; m < members; ++m) {
    const std::vector<std::pair<const char*, int>> operators{{"Add", 2},   {"Mul", 2},  {"Sub", 2}, {"Div", 2},
                                                             {"Where", 3}, {"Sqrt", 1}, {"Abs", 1}, {"Tanh", 1},
                                                             {"Exp", 1},   {"Max", 2},  {"Neg", 1}, {"PRelu", 2}};
    const auto [op_type, count] = operators[pick(engine, static_cast<int>(operators.size()))];
    std::vector<int> places;
    for (int i = 0; i < count; ++i) {
      const bool condition = i == 0 && count == 3;
      places.push_back(value_of(condition ? conditions : count == 1 ? whole : any, condition, count > 1));
    }
    const int made = group.add_member(op_type, places, m + 1 == members || pick(engine, 4) == 0);
    any.push_back(made);
    whole.push_back(made);
  }
  return group;
}

TEST(ElementwiseGroup, random_groups_have_the_bits_of_single_nodes) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    std::mt19937 engine(seed);
    const Group group = random_group(engine);
    if (group.operands.size() > 24) continue;  // as many as a group has
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + group.text());
    for (int threads : {1, kTeam})
      for (bool in_place : {false, true}) expect_results_of_single_nodes(group, threads, in_place);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Begin and end of each part, and whether it is a function.
std::vector<std::tuple<size_t, size_t, bool>> division_of(const std::vector<const char*>& op_types) {
  std::deque<Node> nodes;
  std::vector<GroupMember> members;
  for (const char* op_type : op_types) {
    nodes.emplace_back().op_type = op_type;
    const int before = members.empty() ? 0 : ~static_cast<int>(members.size() - 1);
    members.push_back({&nodes.back(), {before}, DType::float32, -1});
  }
  std::vector<std::tuple<size_t, size_t, bool>> division;
  for (const GroupPart& part : parts_of(members, {{DType::float32, false}}))
    division.emplace_back(part.begin, part.end, part.function != nullptr);
  return division;
}

TEST(ElementwiseGroup, neighbours_that_the_compiler_knows_become_one_function) {
  if (jit::best_target() == jit::Target::none) GTEST_SKIP() << "the compiler writes no code for this processor";
  using Part = std::tuple<size_t, size_t, bool>;
  EXPECT_THAT(division_of({"Abs", "Sqrt", "Neg"}), ElementsAre(Part(0, 3, true)));
  EXPECT_THAT(division_of({"Abs", "Tanh", "Neg", "Sqrt", "Exp"}),
              ElementsAre(Part(0, 1, false), Part(1, 2, false), Part(2, 4, true), Part(4, 5, false)));
  EXPECT_THAT(division_of({"Tanh"}), ElementsAre(Part(0, 1, false)));
}

// Linux 6.3 and later: a process may ask that none of its pages becomes executable any more.
constexpr int kSetNoMoreCode = 65, kGetNoMoreCode = 66;

TEST(ElementwiseGroup, nodes_keep_their_kernels_where_the_system_refuses_executable_memory) {
  if (prctl(kGetNoMoreCode, 0, 0, 0, 0) < 0) GTEST_SKIP() << "this system cannot be asked to refuse it";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto divide = [] {
    prctl(kSetNoMoreCode, 1, 0, 0, 0);
    using Part = std::tuple<size_t, size_t, bool>;
    const std::vector<Part> single{{0, 1, false}, {1, 2, false}};
    std::_Exit(division_of({"Abs", "Sqrt"}) == single ? 0 : 1);
  };
  EXPECT_EXIT(divide(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tessera::kernels
