#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/flight.h"

namespace tessera::launch {

/// Writes what ranks did last before a run failed, as JSON, to `path`. Returns a clause for the error message: "; what
/// ranks did last is in FILE", or why it could not be written. Does nothing, and returns "", if `path` is empty.
///
///     {"reason": "rank 1 ended the run: …", "ranks": [{"rank": 0, "in": "AllReduce 'y'", "communications_before": 0,
///       "communications": [{"kind": "all_reduce", "value": "y", "dtype": "float32", "bytes": 4096, "axes": "tp",
///         "group": "{0,1}", "number": 1, "state": "waiting", "started_s": -1.5, "finished_s": null}]}]}
///
/// States: "started", "waiting" (for the others), "finished". Times are seconds before the record was written.
std::string record_flights(const std::string& path, std::string_view reason, const std::vector<comm::FlightLog>& logs);

}  // namespace tessera::launch
