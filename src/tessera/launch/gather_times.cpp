#include "tessera/launch/gather_times.h"

#include <nlohmann/json.hpp>
#include <numeric>

#include "tessera/comm/hosts.h"

namespace tessera::launch {
namespace {

using Json = nlohmann::json;
using Clock = runtime::RankTimes::Clock;

int64_t number_of(Clock::time_point time) {
  return time.time_since_epoch() / std::chrono::nanoseconds(1);
}

Clock::time_point time_of(int64_t nanoseconds) {
  return Clock::time_point(std::chrono::nanoseconds(nanoseconds));
}

std::string encode(const runtime::RankTimes& times) {
  Json steps = Json::array(), done = Json::array();
  for (const runtime::StepInfo& step : *times.steps)
    steps.push_back({{"name", step.name},
                     {"op", step.op},
                     {"communication", step.communication},
                     {"axes", step.axes},
                     {"leader", step.leader},
                     {"members", step.members},
                     {"is_root", step.is_root},
                     {"started", step.started}});
  for (const auto& [step, end, bytes] : times.done) done.push_back({step, number_of(end), bytes});
  return Json({{"steps", steps},
               {"begin", number_of(times.begin)},
               {"inputs", number_of(times.inputs)},
               {"done", done},
               {"outputs", number_of(times.outputs)}})
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

runtime::RankTimes decode(std::string_view text, int64_t shift) {
  const Json object = Json::parse(text);
  auto steps = std::make_shared<std::vector<runtime::StepInfo>>();
  for (const Json& step : object["steps"])
    steps->push_back({.name = step["name"],
                      .op = step["op"],
                      .communication = step["communication"],
                      .axes = step["axes"].get<std::vector<std::string>>(),
                      .leader = step["leader"],
                      .members = step["members"],
                      .is_root = step["is_root"],
                      .started = step["started"]});
  auto time = [shift](const Json& value) { return time_of(value.get<int64_t>() + shift); };
  runtime::RankTimes times;
  times.steps = std::move(steps);
  times.begin = time(object["begin"]);
  times.inputs = time(object["inputs"]);
  for (const Json& value : object["done"])
    times.done.push_back({value[0].get<size_t>(), time(value[1]), value[2].get<size_t>()});
  times.outputs = time(object["outputs"]);
  return times;
}

std::vector<int64_t> gather_numbers(comm::Communicator& everyone, int64_t own) {
  std::vector<int64_t> all(static_cast<size_t>(everyone.size()));
  const std::vector<int64_t> counts(all.size(), 1);
  everyone.run({.kind = comm::Kind::all_gather,
                .dtype = DType::int64,
                .in = &own,
                .out = all.data(),
                .counts = counts,
                .label = "times"});
  return all;
}

}  // namespace

std::vector<runtime::RankTimes> gather_times(comm::World& world, int rank, const runtime::RankTimes& own) {
  std::vector<int> members(static_cast<size_t>(world.size()));
  std::iota(members.begin(), members.end(), 0);
  const auto everyone = world.join(rank, members);
  const std::vector<int64_t> hosts = gather_numbers(*everyone, comm::this_host());
  everyone->run({.kind = comm::Kind::barrier, .label = "times"});
  const std::vector<int64_t> met = gather_numbers(*everyone, number_of(Clock::now()));
  const std::string text = encode(own);
  const std::vector<int64_t> sizes = gather_numbers(*everyone, static_cast<int64_t>(text.size()));
  std::string texts(static_cast<size_t>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0})), ' ');
  everyone->run({.kind = comm::Kind::all_gather,
                 .dtype = DType::uint8,
                 .in = text.data(),
                 .out = texts.data(),
                 .counts = sizes,
                 .label = "times"});
  std::vector<runtime::RankTimes> all;
  std::string_view rest = texts;
  for (size_t other = 0; other < members.size(); ++other) {
    const int64_t shift = hosts[other] == hosts[0] ? 0 : met[0] - met[other];
    all.push_back(decode(rest.substr(0, static_cast<size_t>(sizes[other])), shift));
    rest.remove_prefix(static_cast<size_t>(sizes[other]));
  }
  return all;
}

}  // namespace tessera::launch
