#pragma once

#include "tessera/sim/predict.h"

/// What events of a simulation were.
namespace tessera::forecast {

constexpr double kMillis = 1e3;  ///< of a second

inline const bind::Enqueued& enqueued(const sim::PredictedClass& each, const sim::Event& event) {
  return each.actions[static_cast<size_t>(event.action)];
}

inline const bind::StepInfo& info_of(const sim::PredictedClass& each, const sim::Event& event) {
  return (*each.infos)[static_cast<size_t>(event.action)];
}

}  // namespace tessera::forecast
