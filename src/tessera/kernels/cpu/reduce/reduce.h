#pragma once

#include "tessera/base/function_ref.h"
#include "tessera/kernels/axes.h"
#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/cpu/reduce/loops.h"

namespace tessera::kernels {

std::vector<KernelEntry> scanning_kernels();  // cpu/scan.cpp: ArgMax, ArgMin, CumSum

/// A tensor's dimensions as alternating groups of kept and reduced ones. Neighbours of one kind merge; extents of one
/// keep their kind, so that a shard sums in the order of the whole.
///
/// Example: [8, 3, 5, 7] over axes {1, 3}: kept {8, 5} with strides {105, 7}, reduced {3, 7} with strides {35, 1}; the
/// last group is reduced, so a result element reduces rows of 7.
class ReducePlan {
 public:
  ReducePlan(const Dims& dims, const std::vector<bool>& reduced);

  int64_t results() const { return results_; }
  int64_t reduced() const { return reduced_; }  ///< elements per result

  /// Takes the totals of `n` results from the `first` on.
  template <typename C>
  using Finish = FunctionRef<void(int64_t first, const C* totals, int64_t n)>;

  /// Calls finish() so that every result comes once. `shifts`, one per result, may be null.
  template <typename Op, typename C, typename T>
  void run(const T* in, const C* shifts, int threads, Finish<C> finish) const;

 private:
  template <typename Op, typename C, typename T>
  void run_rows(const T* in, const C* shifts, int threads, Finish<C> finish) const;
  template <typename Op, typename C, typename T>
  void run_columns(const T* in, const C* shifts, int threads, Finish<C> finish) const;

  static int64_t offset(int64_t flat, const Dims& dims, const Dims& strides) {
    int64_t at = 0;
    for (size_t d = dims.size(); d-- > 0; flat /= dims[d]) at += flat % dims[d] * strides[d];
    return at;
  }

  // The group that is last in memory is `row_`; the others are outer.
  Dims kept_dims_, kept_strides_, reduced_dims_, reduced_strides_;
  int64_t row_ = 1;
  bool reduces_rows_ = false;
  int64_t results_ = 1, reduced_ = 1;
};

template <typename Op, typename C, typename T>
void ReducePlan::run(const T* in, const C* shifts, int threads, Finish<C> finish) const {
  if (results_ == 0) return;
  if (reduced_ == 0) {
    const C total = Op::template identity<C>();
    for (int64_t i = 0; i < results_; ++i) finish(i, &total, 1);
    return;
  }
  if (reduces_rows_)
    run_rows<Op, C>(in, shifts, threads, finish);
  else
    run_columns<Op, C>(in, shifts, threads, finish);
}

template <typename Op, typename C, typename T>
void ReducePlan::run_rows(const T* in, const C* shifts, int threads, Finish<C> finish) const {
  const int64_t rows = reduced_ / row_;
  if (row_ >= kLongRow) {
    for (int64_t i = 0; i < results_; ++i) {
      const T* start = in + offset(i, kept_dims_, kept_strides_);
      C total = Op::template identity<C>();
      for (int64_t r = 0; r < rows; ++r)
        reduce_long_row<Op>(start + offset(r, reduced_dims_, reduced_strides_), row_, shifts ? shifts[i] : C(0),
                            threads, total);
      finish(i, &total, 1);
    }
    return;
  }
  for_ranges(results_, results_ * reduced_, threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* start = in + offset(i, kept_dims_, kept_strides_);
      C total = Op::template identity<C>();
      const C shift = shifts ? shifts[i] : C(0);
      for (int64_t r = 0; r < rows; ++r)
        reduce_row<Op>(start + offset(r, reduced_dims_, reduced_strides_), row_, shift, total);
      finish(i, &total, 1);
    }
  });
}

template <typename Op, typename C, typename T>
void ReducePlan::run_columns(const T* in, const C* shifts, int threads, Finish<C> finish) const {
  constexpr int64_t width = narrow_chunk, block = 64;
  const int64_t chunks = (row_ + width - 1) / width;
  for_ranges(results_ / row_ * chunks, results_ * reduced_, threads, [&](int64_t begin, int64_t end) {
    alignas(64) C totals[width], sums[width], shift[width];
    for (int64_t at = begin; at < end; ++at) {
      const int64_t column = at % chunks * width, n = std::min(width, row_ - column);
      const int64_t first = at / chunks * row_ + column;  // result index
      const T* start = in + offset(at / chunks, kept_dims_, kept_strides_) + column;
      std::fill(totals, totals + n, Op::template identity<C>());
      if (shifts)
        std::copy(shifts + first, shifts + first + n, shift);
      else
        std::fill(shift, shift + n, C(0));
      for (int64_t from = 0; from < reduced_; from += block) {
        std::fill(sums, sums + n, Op::template identity<C>());
        for (int64_t r = from; r < std::min(reduced_, from + block); ++r) {
          const T* x = start + offset(r, reduced_dims_, reduced_strides_);
          if constexpr (is_narrow_float<T>) {
            alignas(64) float wide[width];
            widen_row(x, wide, n);
            accumulate<Op, float, C>(wide, shift, sums, n);
          } else {
            accumulate<Op, T, C>(x, shift, sums, n);
          }
        }
        for (int64_t i = 0; i < n; ++i) totals[i] = Op::combine(totals[i], sums[i]);
      }
      finish(first, totals, n);
    }
  });
}

}  // namespace tessera::kernels
