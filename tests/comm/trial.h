#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "reference.h"
#include "tessera/comm/communicator.h"
#include "tessera/comm/operation.h"

namespace tessera::comm {

/// One communication with made-up inputs.
struct Trial {
  Kind kind = Kind::all_reduce;
  int64_t size = 0;  ///< elements per member; of blocked kinds: of the split dimension
  uint64_t seed = 0;
  DType dtype = DType::float32;
  Reduction reduction = Reduction::sum;
  bool in_place = false;

  /// Floats are whole numbers whose sums are exact, for backends that do not sum in member order.
  static inline bool whole_numbers = false;
};

/// A trial among so many members. Everything follows from its seed, so that each rank knows every member's input and
/// its own expected result without asking anybody.
class Case {
 public:
  /// Draws everything that the seed decides: root, counts (uneven, some zero), who sends to whom.
  Case(const Trial& trial, int members) : Case(trial, members, std::mt19937_64(trial.seed)) {}

  std::string str() const {
    return fmt::format("{} of {} {} elements, {}, {} members, seed {}", name_of(trial_.kind), trial_.size,
                       name_of(trial_.dtype), name_of(trial_.reduction), members_, trial_.seed);
  }

  /// Member `me`'s operation; the buffers are given by bind().
  Operation operation(int me) const {
    Operation result;
    result.kind = trial_.kind;
    result.dtype = trial_.dtype;
    result.reduction = trial_.reduction;
    result.count = trial_.size;
    result.outer = outer_;
    result.inner = inner_;
    result.root = root_;
    result.label = "trial";
    result.counts = counts_;
    if (trial_.kind == Kind::all_to_all) {
      receives_.resize(members_);
      for (int j = 0; j < members_; ++j) receives_[j] = sends_[j][me];
      result.counts = sends_[me];
      result.recv_counts = receives_;
    }
    if (trial_.kind == Kind::permute) {
      result.to = to_[me];
      result.from = from(me);
    }
    return result;
  }

  Bytes input(int member) const {
    size_t bytes = in_bytes(operation(member), member);
    return random_elements(trial_.dtype, static_cast<int64_t>(bytes * 8 / bits_of(trial_.dtype)),
                           trial_.seed * 1000 + member, Trial::whole_numbers);
  }

  /// The expected `out` of member `me`.
  Bytes expected(int me) const {
    switch (trial_.kind) {
      case Kind::all_reduce:
        return reference_reduction(trial_.dtype, trial_.reduction, inputs());
      case Kind::reduce:
        return me == root_ ? reference_reduction(trial_.dtype, trial_.reduction, inputs()) : Bytes{};
      case Kind::broadcast:
        return input(root_);
      case Kind::all_gather:
        return joined();
      case Kind::gather:
        return me == root_ ? joined() : Bytes{};
      case Kind::reduce_scatter:
        return block(reference_reduction(trial_.dtype, trial_.reduction, inputs()), me);
      case Kind::scatter:
        return block(input(root_), me);
      case Kind::all_to_all:
        return received(me);
      case Kind::permute:
        return from(me) < 0 ? Bytes(width() * static_cast<size_t>(trial_.size)) : input(from(me));
      default:
        return {};
    }
  }

 private:
  Case(const Trial& trial, int members, std::mt19937_64 random) : trial_(trial), members_(members) {
    auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
    root_ = static_cast<int>(below(members_));
    outer_ = trial_.size > 10'000 ? 1 : 1 + below(3);
    inner_ = trial_.size > 10'000 ? 1 : 1 + below(4);
    counts_ = shares(random);
    for (int i = 0; i < members_; ++i) sends_.push_back(shares(random));
    to_.resize(members_);
    std::iota(to_.begin(), to_.end(), 0);
    std::shuffle(to_.begin(), to_.end(), random);
    if (members_ > 2) to_[below(members_)] = -1;
  }

  size_t width() const { return bytes_of(trial_.dtype, 1); }

  int from(int me) const {
    auto found = std::find(to_.begin(), to_.end(), me);
    return found == to_.end() ? -1 : static_cast<int>(found - to_.begin());
  }

  std::vector<Bytes> inputs() const {
    std::vector<Bytes> all;
    for (int member = 0; member < members_; ++member) all.push_back(input(member));
    return all;
  }

  /// `trial_.size` split into one uneven share per member, in about a quarter of the cases none.
  std::vector<int64_t> shares(std::mt19937_64& random) const {
    std::vector<int64_t> weights(members_), result;
    for (int64_t& weight : weights) weight = static_cast<int64_t>(random() % 4);
    int64_t total = std::max<int64_t>(1, std::accumulate(weights.begin(), weights.end(), int64_t{0}));
    for (int64_t weight : weights) result.push_back(trial_.size * weight / total);
    return result;
  }

  /// Calls visit(index in the whole, member, index in its block) for every element of [outer, Σ counts, inner].
  template <typename Visit>
  void each_element(Visit visit) const {
    size_t whole = 0;
    std::vector<size_t> next(members_, 0);
    for (int64_t o = 0; o < outer_; ++o)
      for (int member = 0; member < members_; ++member)
        for (int64_t i = 0; i < counts_[member] * inner_; ++i) visit(whole++, member, next[member]++);
  }

  Bytes joined() const {
    std::vector<Bytes> blocks = inputs();
    Bytes result;
    each_element([&](size_t, int member, size_t index) {
      const std::byte* element = blocks[member].data() + index * width();
      result.insert(result.end(), element, element + width());
    });
    return result;
  }

  Bytes block(const Bytes& whole, int me) const {
    Bytes result;
    each_element([&](size_t index, int member, size_t) {
      const std::byte* element = whole.data() + index * width();
      if (member == me) result.insert(result.end(), element, element + width());
    });
    return result;
  }

  Bytes received(int me) const {
    Bytes result;
    for (int j = 0; j < members_; ++j) {
      Bytes sent = input(j);
      int64_t before = std::accumulate(sends_[j].begin(), sends_[j].begin() + me, int64_t{0}) * inner_;
      auto first = sent.begin() + static_cast<int64_t>(width()) * before;
      result.insert(result.end(), first, first + static_cast<int64_t>(width()) * sends_[j][me] * inner_);
    }
    return result;
  }

  Trial trial_;
  int members_;
  int root_ = 0;
  int64_t outer_ = 1, inner_ = 1;
  std::vector<int64_t> counts_;
  std::vector<std::vector<int64_t>> sends_;  // [from][to]
  mutable std::vector<int64_t> receives_;    // of the last operation()
  std::vector<int> to_;
};

/// A started trial and its buffers, on one member.
class Running {
 public:
  Running(Communicator& group, const Trial& trial)
      : group_(group), in_place_(trial.in_place), case_(trial, group.size()) {
    int me = group.member();
    Operation operation = case_.operation(me);
    in_ = case_.input(me);
    out_ = Bytes(out_bytes(operation, me), std::byte{0xa5});
    if (in_place_) {
      in_.resize(std::max(in_.size(), out_.size()));
      out_.clear();
    }
    operation.in = in_.data();
    operation.out = in_place_ ? in_.data() : out_.data();
    before_ = in_;
    ticket_ = group.start(operation);
  }

  bool test() { return group_.test(ticket_); }

  void finish() {
    group_.wait(ticket_);
    Bytes expected = case_.expected(group_.member());
    if (in_place_ && expected.empty()) return;  // a reduction's result is the root's alone
    const Bytes& got = in_place_ ? in_ : out_;
    auto different = std::mismatch(got.begin(), got.end(), expected.begin(), expected.end());
    EXPECT_TRUE(got == expected) << case_.str() << ": member " << group_.member() << " has a wrong result of "
                                 << got.size() << " bytes, first at byte " << different.first - got.begin();
    if (in_place_) return;
    EXPECT_TRUE(in_ == before_) << case_.str() << ": the input has changed";
  }

 private:
  Communicator& group_;
  bool in_place_;
  Case case_;
  Bytes in_, out_, before_;
  Ticket ticket_ = 0;
};

}  // namespace tessera::comm
