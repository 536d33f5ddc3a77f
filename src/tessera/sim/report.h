#pragma once

#include "tessera/sim/predict.h"
#include "tessera/time.h"

namespace tessera::sim {

/// The public form of a prediction.
Prediction report(const Predicted& predicted);

}  // namespace tessera::sim
