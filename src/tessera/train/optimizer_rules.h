#pragma once

#include <variant>

#include "tessera/rules.h"

namespace tessera::train {

using OptimizerRule = std::variant<Sgd, Adam, AdamW, Lamb, Lion, Adafactor, Muon>;

/// The value of a rule, whose numbers are within their bounds. A text is "NAME:key=number,…"; docs/training.md has the
/// formulas:
/// sgd (momentum, nesterov, weight_decay), adam and adamw (beta1, beta2, eps, weight_decay), lamb (the same), lion
/// (beta1, beta2, weight_decay), adafactor (beta2_decay, eps1, eps2, d, weight_decay), muon (momentum, nesterov, steps,
/// weight_decay, and adamw's keys for parameters other than matrices). Throws a user error for an unknown name or key.
OptimizerRule value_of(const tessera::Optimizer& rule);

}  // namespace tessera::train
