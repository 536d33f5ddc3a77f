#include "tessera/comm/reduce.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "tessera/base/error.h"
#include "tessera/base/float16.h"
#include "tessera/base/multiversion.h"

namespace tessera::comm {
namespace {

/// Elements that are accumulated together: the accumulators stay in the L1 cache, and the loops' constant length lets
/// the compiler vectorise them.
constexpr int64_t kBlock = 128;
/// The processor prefetches up to two inputs by itself. With more, of which it reads a block each in turn, it loses
/// track, and four inputs of 1 MiB take twice the time unless the next blocks are prefetched.
constexpr size_t kReadAhead = 2;

struct Bool {
  uint8_t value;
};

/// How an element is widened, combined and rounded. Integers are combined as unsigned, where overflow wraps.
template <typename T>
struct Element {
  using Wide = T;
  static Wide widen(T value) { return value; }
  static T narrow(Wide value) { return value; }
};

template <>
struct Element<BFloat16> {
  using Wide = float;
  static float widen(BFloat16 value) { return static_cast<float>(value); }
  static BFloat16 narrow(float value) { return BFloat16(value); }
};

template <>
struct Element<Float16> {
  using Wide = float;
  static float widen(Float16 value) { return static_cast<float>(value); }
  static Float16 narrow(float value) { return Float16(value); }
};

template <>
struct Element<Bool> {
  using Wide = uint8_t;
  static uint8_t widen(Bool value) { return value.value != 0; }
  static Bool narrow(uint8_t value) { return {value}; }
};

struct Sum {
  template <typename W>
  static W combine(W a, W b) {
    if constexpr (std::is_integral_v<W>) {
      using Unsigned = std::make_unsigned_t<W>;
      return static_cast<W>(static_cast<Unsigned>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)));
    } else {
      return a + b;
    }
  }
};
struct Max {
  template <typename W>
  static W combine(W a, W b) {
    return a > b || a != a ? a : b;
  }
};
struct Min {
  template <typename W>
  static W combine(W a, W b) {
    return a < b || a != a ? a : b;
  }
};
struct Mean : Sum {};

template <typename T>
using WideOf = typename Element<T>::Wide;

// One loop each, so that the restricted pointers' scope ends before `out`, which may be an input, is written.
template <typename T>
inline void load(const T* __restrict input, WideOf<T>* __restrict sum, int64_t length) {
  for (int64_t i = 0; i < length; ++i) sum[i] = Element<T>::widen(input[i]);
}

template <typename T, typename R>
inline void accumulate(const T* __restrict input, WideOf<T>* __restrict sum, int64_t length) {
  for (int64_t i = 0; i < length; ++i) sum[i] = R::combine(sum[i], Element<T>::widen(input[i]));
}

/// Prefetches the block that follows this one.
template <typename T>
inline void prefetch_next(const T* block) {
  for (int64_t i = kBlock; i < 2 * kBlock; i += 64 / sizeof(T)) __builtin_prefetch(block + i);
}

template <typename Wide>
inline void divide(Wide* sum, int64_t length, size_t members) {
  // An integer's mean divides in 64 bits: the number of members need not fit the element.
  auto divisor = static_cast<std::conditional_t<std::is_integral_v<Wide>, int64_t, Wide>>(members);
  for (int64_t i = 0; i < length; ++i) sum[i] = static_cast<Wide>(sum[i] / divisor);
}

template <typename T>
inline void store(const WideOf<T>* __restrict sum, T* __restrict out, int64_t length) {
  for (int64_t i = 0; i < length; ++i) out[i] = Element<T>::narrow(sum[i]);
}

template <typename T, typename R>
inline void reduce_block(std::span<const void* const> inputs, std::span<void* const> outputs, int64_t first,
                         int64_t length) {
  alignas(64) std::array<WideOf<T>, kBlock> sum;
  for (size_t member = 0; member < inputs.size(); ++member) {
    const T* input = static_cast<const T*>(inputs[member]) + first;
    if (inputs.size() > kReadAhead) prefetch_next(input);
    if (member == 0)
      load<T>(input, sum.data(), length);
    else
      accumulate<T, R>(input, sum.data(), length);
  }
  if constexpr (std::is_same_v<R, Mean>) divide(sum.data(), length, inputs.size());
  T* result = static_cast<T*>(outputs[0]) + first;
  store<T>(sum.data(), result, length);
  for (void* other : outputs.subspan(1)) std::memcpy(static_cast<T*>(other) + first, result, length * sizeof(T));
}

template <typename T, typename R>
TESSERA_MULTIVERSION void reduce_all(std::span<const void* const> inputs, std::span<void* const> outputs,
                                     int64_t count) {
  int64_t done = 0;
  for (; done + kBlock <= count; done += kBlock) reduce_block<T, R>(inputs, outputs, done, kBlock);
  if (done < count) reduce_block<T, R>(inputs, outputs, done, count - done);
}

template <typename T>
TESSERA_MULTIVERSION void widen_all(const void* from, void* to, int64_t count) {
  load<T>(static_cast<const T*>(from), static_cast<WideOf<T>*>(to), count);
}

template <typename T, typename R>
TESSERA_MULTIVERSION void narrow_all(const void* wide, void* out, int64_t count, size_t members) {
  alignas(64) std::array<WideOf<T>, kBlock> block;
  for (int64_t done = 0; done < count; done += kBlock) {
    const int64_t length = std::min(count - done, kBlock);
    std::memcpy(block.data(), static_cast<const WideOf<T>*>(wide) + done, length * sizeof block[0]);
    if constexpr (std::is_same_v<R, Mean>) divide(block.data(), length, members);
    store<T>(block.data(), static_cast<T*>(out) + done, length);
  }
}

using Reducer = void (*)(std::span<const void* const>, std::span<void* const>, int64_t);

template <typename T>
Reducer reducer_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return reduce_all<T, std::conditional_t<std::is_same_v<T, Bool>, Max, Sum>>;
    case Reduction::max:
      return reduce_all<T, Max>;
    case Reduction::min:
      return reduce_all<T, Min>;
    case Reduction::mean:
      if constexpr (std::is_same_v<T, Bool>)
        return nullptr;
      else
        return reduce_all<T, Mean>;
  }
  return nullptr;
}

/// Calls visit(T{}) with the type of an element that can be reduced; returns `otherwise` for the rest.
template <typename Result, typename Visit>
Result with_element(DType dtype, Visit visit, Result otherwise) {
  switch (dtype) {
    case DType::float32:
      return visit(float{});
    case DType::float64:
      return visit(double{});
    case DType::float16:
      return visit(Float16{});
    case DType::bfloat16:
      return visit(BFloat16{});
    case DType::int8:
      return visit(int8_t{});
    case DType::int16:
      return visit(int16_t{});
    case DType::int32:
      return visit(int32_t{});
    case DType::int64:
      return visit(int64_t{});
    case DType::uint8:
      return visit(uint8_t{});
    case DType::uint16:
      return visit(uint16_t{});
    case DType::uint32:
      return visit(uint32_t{});
    case DType::uint64:
      return visit(uint64_t{});
    case DType::boolean:
      return visit(Bool{});
    default:
      return otherwise;
  }
}

Reducer find_reducer(DType dtype, Reduction reduction) {
  return with_element<Reducer>(
      dtype, [&](auto element) { return reducer_of<decltype(element)>(reduction); }, nullptr);
}

}  // namespace

bool can_reduce(DType dtype, Reduction reduction) {
  return find_reducer(dtype, reduction) != nullptr;
}

void reduce_elements(DType dtype, Reduction reduction, std::span<const void* const> inputs,
                     std::span<void* const> outputs, int64_t count) {
  Reducer reducer = find_reducer(dtype, reduction);
  check(reducer != nullptr, "the operation was validated");
  reducer(inputs, outputs, count);
}

DType wide_type(DType dtype) {
  if (dtype == DType::float16 || dtype == DType::bfloat16) return DType::float32;
  return dtype == DType::boolean ? DType::uint8 : dtype;
}

void widen_elements(DType dtype, const void* from, void* to, int64_t count) {
  using Widen = void (*)(const void*, void*, int64_t);
  auto widen = with_element<Widen>(
      dtype, [](auto element) { return &widen_all<decltype(element)>; }, nullptr);
  check(widen != nullptr, "the operation was validated");
  widen(from, to, count);
}

void narrow_elements(DType dtype, Reduction reduction, int64_t members, const void* wide, void* out, int64_t count) {
  using Narrow = void (*)(const void*, void*, int64_t, size_t);
  auto narrow = with_element<Narrow>(
      dtype,
      [&](auto element) {
        using T = decltype(element);
        return reduction == Reduction::mean ? &narrow_all<T, Mean> : &narrow_all<T, Sum>;
      },
      nullptr);
  check(narrow != nullptr, "the operation was validated");
  narrow(wide, out, count, static_cast<size_t>(members));
}

}  // namespace tessera::comm
