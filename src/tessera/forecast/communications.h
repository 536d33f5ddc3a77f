#pragma once

#include <vector>

#include "tessera/sim/predict.h"
#include "tessera/time.h"

namespace tessera::forecast {

/// The communications of the first class of ranks, in the order of their ends: what hides each, and why the rank waits
/// for the rest of it. `predicted` may have no classes.
std::vector<PredictedCommunication> communications_of(const sim::Predicted& predicted);

}  // namespace tessera::forecast
