#pragma once

#include <string>
#include <vector>

#include "tessera/ops/library/node_builder.h"
#include "tessera/rules.h"

namespace tessera::train {

/// How the learning rate moves with the step t = 0, 1, ….
///
/// "3e-4" is constant. "warmup=W,peak=P,cosine=N,min=M": rises as P·(t+1)/W for the first W steps, then falls within N
/// steps from P to M along a cosine, and stays there; "linear=N" falls along a line; "stable=S" stays at P for S steps
/// before it falls; without cosine and linear it stays at P. A list gives the rate of each step; its last one stays.
class Schedule {
 public:
  /// Throws a user error for text of another form, and for numbers out of bounds.
  explicit Schedule(const LearningRateRule& rule);
  explicit Schedule(std::vector<float> rates);

  /// The rate at a step, a float32 scalar; `step` is an int64 scalar.
  Value* at(ops::NodeBuilder& build, Value* step) const;

 private:
  void read(const std::string& text);
  void take(const LearningRate& rate);

  double warmup_ = 0, peak_ = 0, stable_ = 0, fall_ = 0, least_ = 0;
  bool cosine_ = false;
  std::vector<float> rates_;
};

}  // namespace tessera::train
