#pragma once

#include "tessera/sim/predict.h"
#include "tessera/time.h"

namespace tessera::forecast {

/// The public form of a prediction.
Prediction report(const sim::Predicted& predicted);

}  // namespace tessera::forecast
