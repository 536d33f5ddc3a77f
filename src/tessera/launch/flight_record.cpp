#include "tessera/launch/flight_record.h"

#include <nlohmann/json.hpp>

#include "tessera/error.h"
#include "tessera/io/atomic_file.h"

namespace tessera::launch {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson json_of(const comm::FlightEntry& entry, int64_t now) {
  const auto seconds = [&](int64_t at) {
    return at == 0 ? OrderedJson() : OrderedJson(static_cast<double>(at - now) * 1e-9);
  };
  return {{"kind", comm::name_of(entry.kind)},
          {"value", entry.value.data()},
          {"dtype", name_of(entry.dtype)},
          {"bytes", entry.bytes},
          {"axes", entry.axes.data()},
          {"group", entry.group.data()},
          {"number", entry.number},
          {"state", entry.finished ? "finished"
                    : entry.waited ? "waiting"
                                   : "started"},
          {"started_s", seconds(entry.started)},
          {"finished_s", seconds(entry.finished)}};
}

}  // namespace

std::string record_flights(const std::string& path, std::string_view reason, const std::vector<comm::FlightLog>& logs) {
  if (path.empty()) return "";
  std::string note;
  // A wait that gave up has already said who arrived.
  if (logs.size() > 1 && reason.find("; arrived: ") == std::string_view::npos)
    if (const std::string arrivals = comm::arrivals_of(logs); !arrivals.empty()) note = "; " + arrivals;
  const int64_t now = comm::steady_nanoseconds();
  OrderedJson ranks = OrderedJson::array();
  for (const comm::FlightLog& log : logs) {
    OrderedJson entries = OrderedJson::array();
    for (const comm::FlightEntry& entry : log.entries) entries.push_back(json_of(entry, now));
    ranks.push_back({{"rank", log.rank},
                     {"in", log.step.empty() ? OrderedJson() : OrderedJson(log.step)},
                     {"communications_before", log.before},
                     {"communications", std::move(entries)}});
  }
  const OrderedJson record = {{"reason", reason}, {"ranks", std::move(ranks)}};
  try {
    write_file(path, record.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n", Flush::no);
  } catch (const Error& error) {
    return note + "; what ranks did last could not be written: " + error.what();
  }
  return note + "; what ranks did last is in " + path;
}

}  // namespace tessera::launch
