#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/plan.h"

/// Rules of a Training as values: their texts are another way to write them. Entries of a Plan, made of names.
///
///     training.optimizer = tessera::AdamW{.beta2 = 0.95, .weight_decay = 0.1};
///     training.learning_rate = tessera::LearningRate{.peak = 3e-4, .warmup = 10, .cosine = 100};
///     training.loss = tessera::sum_of({tessera::CrossEntropy{}, tessera::ZLoss{.weight = 1e-4}});
///     plan.annotations = {tessera::annotate("w", {{}, {"tp"}})};
///
/// What is out of bounds is a user error where the rule is used. Each value converts to its text.
namespace tessera {
inline namespace v1 {

/// A rule: one of these values, or the text of one, which is read where the rule is used. Converts to the text that was
/// given, or to that of the value.
template <typename... Values>
class RuleOf {
 public:
  using Held = std::variant<std::string, Values...>;

  RuleOf(std::string text) : held_(std::move(text)) {}
  RuleOf(const char* text) : held_(std::string(text)) {}
  template <typename Value>
  requires(std::same_as<Value, Values> || ...) RuleOf(Value value) : held_(std::move(value)) {}

  operator std::string() const {
    return std::visit([](const auto& held) { return std::string(held); }, held_);
  }
  const Held& held() const { return held_; }
  friend std::ostream& operator<<(std::ostream& out, const RuleOf& rule) { return out << std::string(rule); }

 private:
  Held held_;
};

/// Optimizers (docs/training.md has the formulas).
struct Sgd {
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
  operator std::string() const;
};
struct Adam {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  operator std::string() const;
};
struct AdamW {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
  operator std::string() const;
};
struct Lamb {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-6, weight_decay = 0.01;
  operator std::string() const;
};
struct Lion {
  double beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  operator std::string() const;
};
struct Adafactor {
  double beta2_decay = -0.8, eps1 = 0x1p-30, eps2 = 1e-3, d = 1, weight_decay = 0;
  operator std::string() const;
};
struct Muon {
  double momentum = 0.95;
  bool nesterov = true;
  int steps = 5;                                      ///< of the iteration that makes a matrix orthogonal
  std::optional<double> weight_decay = std::nullopt;  ///< by default 0.1 for matrices, and 0.01 for others
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;      ///< for parameters other than matrices, as in AdamW
  operator std::string() const;
};

/// Training::optimizer.
using Optimizer = RuleOf<Sgd, Adam, AdamW, Lamb, Lion, Adafactor, Muon>;

/// A learning rate that rises for `warmup` steps to `peak`, stays for `stable` steps, then falls within `cosine` or
/// `linear` steps to `min`. Without both of these it stays.
struct LearningRate {
  double peak = 1e-3;
  int64_t warmup = 0, stable = 0, cosine = 0, linear = 0;
  double min = 0;
  operator std::string() const;
};

/// Training::learning_rate.
using LearningRateRule = RuleOf<LearningRate>;

/// Terms of a loss. `tensor` is what one takes (empty: Training::output), `labels` what that is compared with
/// (empty: Training::labels), `weight` its factor in a sum. A tensor may have any name; if a text cannot hold it, the
/// conversion to text throws a user error.
struct CrossEntropy {
  double label_smoothing = 0;
  int64_t ignore_index = -100;
  std::optional<int64_t> axis = std::nullopt;  ///< of the classes; may count from the end
  std::string tensor = {}, labels = {};
  double weight = 1;
  operator std::string() const;
};
struct ZLoss {
  double weight = 1;
  int64_t ignore_index = -100;
  std::optional<int64_t> axis = std::nullopt;
  std::string tensor = {}, labels = {};
  operator std::string() const;
};
/// "mse", "bce" and "bce-with-logits" by name, and, without labels, "output" and "mean".
struct OtherLoss {
  std::string name;
  std::string tensor = {}, labels = {};
  double weight = 1;
  operator std::string() const;
};
struct LossSum {
  std::vector<std::variant<CrossEntropy, ZLoss, OtherLoss>> terms;
  operator std::string() const;
};

/// Training::loss.
using Loss = RuleOf<CrossEntropy, ZLoss, OtherLoss, LossSum>;

/// The terms of all of these losses. Throws a user error for a text that is not a loss.
LossSum sum_of(const std::vector<Loss>& losses);

/// An entry of Plan::annotations or Plan::storage: for each dimension, the axes ("tp") or sub-axes ("tp:(2)2") that
/// split it, the major first; {}: it stays whole. `name` may contain '*'. Throws a user error for a name that an
/// annotation cannot hold, and for what is not the name of an axis.
Plan::Annotation annotate(const std::string& name, const std::vector<std::vector<std::string>>& dims);
/// An entry of Plan::places: the index of each axis. Throws as annotate() does, and for a negative index.
Plan::Annotation place(const std::string& name, const std::vector<std::pair<std::string, int64_t>>& axes);

}  // namespace v1
}  // namespace tessera
