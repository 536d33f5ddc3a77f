#include "tessera/train/initialize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/bounds.h"
#include "tessera/ir/on_demand.h"
#include "tessera/ir/random.h"
#include "tessera/ops/op.h"

namespace tessera::train {
namespace {

struct Fans {
  double inputs = 1, outputs = 1;
};

[[noreturn]] void no_fans(const Value& parameter, std::string_view why) {
  fail("train", "`init`: '{}' {}, so the number of its inputs is unknown; use normal or uniform for it", parameter.name,
       why);
}

// Through operators that move all elements, as Transpose, to the operator that computes with the parameter.
Fans fans_of(const Value& parameter) {
  const Value* value = &parameter;
  std::vector<int64_t> extents = parameter.data.dims;
  while (true) {
    if (value->uses.empty()) no_fans(parameter, "is not used");
    const Use& use = value->uses.front();
    const ops::Rule rule = ops::op_of(*use.node).rule(*use.node);
    if (ops::moves_of(*use.node) == ops::Moves::all) {
      // Each dimension goes to the one of its factor.
      std::vector<int64_t> moved(use.node->output()->rank(), 1);
      for (size_t d = 0; d < extents.size(); ++d)
        for (size_t r = 0; r < moved.size(); ++r)
          if (rule.operands[use.index][d] == rule.results[0][r]) moved[r] = extents[d];
      extents = std::move(moved);
      value = use.node->output();
      continue;
    }
    Fans fans;
    bool sums = false;
    for (size_t d = 0; d < extents.size(); ++d) {
      const ops::DimFactors& factors = rule.operands[use.index][d];
      const auto extent = static_cast<double>(extents[d]);
      if (factors.empty()) {  // taps of a window
        fans.inputs *= extent;
        fans.outputs *= extent;
      } else if (rule.factors[factors[0]].makes_partial()) {
        fans.inputs *= extent;
        sums = true;
      } else {
        fans.outputs *= extent;
      }
    }
    if (!sums) no_fans(parameter, fmt::format("is summed over by no dimension in {}", use.node->label()));
    return fans;
  }
}

// "normal:0.02,1": a word, and numbers.
struct Words {
  std::string_view name;
  std::vector<double> numbers;

  Words(const std::string& text) : name(text) {
    const size_t colon = text.find(':');
    if (colon == std::string::npos) return;
    name = name.substr(0, colon);
    std::string_view rest = std::string_view(text).substr(colon);
    while (!rest.empty()) {
      rest.remove_prefix(1);
      const std::string_view word = rest.substr(0, rest.find(','));
      const std::optional<double> number = Bounds().parse(word);
      if (!number) fail("train", "`init` '{}': write numbers after ':', separated by ',', as normal:0.02", text);
      numbers.push_back(*number);
      rest.remove_prefix(word.size());
    }
  }
};

/// What a parameter is filled with, element by element: ranks fill their shards.
class Filling : public ElementMaker {
 public:
  Filling(const std::string& rule, const Value& parameter, int64_t key) : dtype_(parameter.dtype()), key_(key) {
    const Words words(rule);
    const auto& given = words.numbers;
    const auto takes = [&](size_t least, size_t most) {
      if (given.size() < least || given.size() > most)
        fail("train", "`init` '{}': {} takes {} numbers, but there are {}", rule, words.name,
             least == most ? std::to_string(least) : fmt::format("{} or {}", least, most), given.size());
    };
    if (words.name == "normal") {
      takes(1, 2);
      normal_ = true;
      scale_ = given[0];
      if (scale_ < 0) fail("train", "`init` '{}': a deviation of {}; it must be at least 0", rule, scale_);
      if (given.size() == 2) base_ = given[1];
    } else if (words.name == "uniform") {
      takes(2, 2);
      base_ = given[0];
      scale_ = given[1] - given[0];
    } else if (words.name == "zeros" || words.name == "ones") {
      takes(0, 0);
      base_ = words.name == "ones" ? 1 : 0;
    } else if (words.name == "constant") {
      takes(1, 1);
      base_ = given[0];
    } else if (words.name == "xavier") {
      takes(0, 0);
      const Fans fans = fans_of(parameter);
      const double bound = std::sqrt(6 / (fans.inputs + fans.outputs));
      base_ = -bound;
      scale_ = 2 * bound;
    } else if (words.name == "kaiming") {
      takes(0, 0);
      normal_ = true;
      scale_ = std::sqrt(2 / fans_of(parameter).inputs);
    } else {
      fail("train",
           "`init` '{}' is not a rule; the rules are normal:0.02, uniform:-0.1,0.1, zeros, ones, constant:0.5, xavier "
           "and kaiming",
           rule);
    }
  }

  void make(int64_t first, int64_t count, std::byte* to) const override {
    if (dtype_ == DType::float32)
      fill<float>(first, count, to);
    else
      fill<double>(first, count, to);
  }

 private:
  template <typename T>
  void fill(int64_t first, int64_t count, std::byte* to) const {
    auto* out = reinterpret_cast<T*>(to);
    const int64_t words = normal_ ? 4 : 2;
    const random::Stream stream{static_cast<uint64_t>(key_), 0};
    constexpr int64_t kAtOnce = 64;
    std::array<uint32_t, 4 * kAtOnce> drawn{};
    for (int64_t begin = 0; begin < count; begin += kAtOnce) {
      const int64_t n = std::min(kAtOnce, count - begin);
      if (scale_ != 0) stream.words(static_cast<uint64_t>((first + begin) * words), n * words, drawn.data());
      for (int64_t i = 0; i < n; ++i) {
        const double element = base_ + scale_ * number(&drawn[static_cast<size_t>(i * words)]);
        out[begin + i] = static_cast<T>(element);
      }
    }
  }

  double number(const uint32_t* word) const {
    const double first = random::fraction(word[0], word[1], 53);
    return normal_ ? random::normal(first + 0x1p-53, random::fraction(word[2], word[3], 53)) : first;
  }

  DType dtype_;
  int64_t key_;
  bool normal_ = false;
  double base_ = 0, scale_ = 0;
};

// Statistics and tables, which operators read as given.
bool is_read_as_given(const Value& parameter) {
  return !parameter.uses.empty() && std::all_of(parameter.uses.begin(), parameter.uses.end(), [](const Use& use) {
    const std::vector<size_t>& untrained = ops::op_of(*use.node).untrained;
    return std::find(untrained.begin(), untrained.end(), use.index) != untrained.end();
  });
}

}  // namespace

void initialize(Graph& graph, const InitRules& rules, uint64_t seed, const std::set<std::string>& given,
                const std::function<bool(std::string_view pattern, const std::string& parameter)>& matches) {
  std::vector<bool> matched(rules.size());
  for (Value* parameter : graph.values_of(ValueKind::state)) {
    if (!parameter->changing || is_read_as_given(*parameter) || given.contains(parameter->name)) continue;
    bool first = true;
    for (size_t r = 0; r < rules.size(); ++r) {
      if (!matches(rules[r].first, parameter->name)) continue;
      matched[r] = true;
      if (!std::exchange(first, false)) continue;
      const DType type = parameter->dtype();
      if (type != DType::float32 && type != DType::float64)
        fail("train", "`init`: '{}' is {}; only floats can start with random numbers", parameter->name, name_of(type));
      const int64_t key = random::seeded(seed, random::key_of_name("init." + parameter->name));
      parameter->data =
          on_demand(type, parameter->data.dims, std::make_shared<Filling>(rules[r].second, *parameter, key));
    }
  }
  for (size_t r = 0; r < rules.size(); ++r)
    if (!matched[r]) fail("train", "`init` '{}={}' matches no parameter that trains", rules[r].first, rules[r].second);
}

}  // namespace tessera::train
