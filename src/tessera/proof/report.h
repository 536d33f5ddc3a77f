#pragma once

#include "tessera/check.h"

namespace tessera::proof {

using Finding = CheckFinding;
using Place = CheckFinding::Place;
using Report = CheckReport;

}  // namespace tessera::proof
