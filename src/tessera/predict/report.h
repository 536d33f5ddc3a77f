#pragma once

#include "tessera/sim/predict.h"
#include "tessera/time.h"

namespace tessera::predict {

/// The public form of a prediction.
Prediction report(const sim::Predicted& predicted);

}  // namespace tessera::predict
