#pragma once

#include <string_view>

/// Operators that draw random numbers (docs/random.md). All are of our own domain: rewriting gives each of ONNX's a
/// key, so that nodes are functions of their operands and attributes, and may be repeated, moved and split as any
/// other.
///
///   Dropout (data, ratio?, training_mode?, counter?, index?) → data, mask?
///   RandomUniform (shape, counter?, index?)   low, high, dtype
///   RandomNormal (shape, counter?, index?)    mean, scale, dtype
///
/// `counter` is an int64 scalar that tells runs apart; without it, it is 0. `index` says which elements of the whole
/// result a shard holds: the global index of its first element, then, major to minor, extents and strides (in elements
/// of the whole) of the box that it is. Without it, the result is whole. Example: the second half of the columns of a
/// [4, 6] tensor is [3, 4, 6, 3, 1].
namespace tessera::ops {

inline constexpr std::string_view kRandomDomain = "tessera";

}  // namespace tessera::ops
