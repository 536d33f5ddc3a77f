#include "tessera/comm/measure.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <functional>
#include <iterator>
#include <map>
#include <thread>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/base/error_kind.h"
#include "tessera/collectives.h"
#include "tessera/cost/fit.h"
#include "tessera/cost/prices.h"
#include "tessera/launch/engines.h"
#include "tessera/mesh/group.h"

namespace tessera {
inline namespace v1 {
namespace {

using comm::Kind;

// Those that can be measured: a send with its recv.
std::vector<Kind> measured_kinds() {
  std::vector<Kind> kinds;
  for (const CollectiveTraits& collective : collectives())
    if (collective.kind != Kind::recv) kinds.push_back(collective.kind);
  return kinds;
}

std::vector<Kind> kinds_of(const std::vector<std::string>& names) {
  const std::vector<Kind> all = measured_kinds();
  std::vector<Kind> kinds;
  std::vector<std::string_view> known;
  for (Kind kind : all) known.push_back(comm::name_of(kind));
  for (const std::string& name : names) {
    auto found = std::find(known.begin(), known.end(), name);
    if (found == known.end())
      fail("bench", "there is no collective '{}' to measure; the collectives are: {}", name, fmt::join(known, ", "));
    kinds.push_back(all[static_cast<size_t>(found - known.begin())]);
  }
  if (kinds.empty())
    std::copy_if(all.begin(), all.end(), std::back_inserter(kinds), [](Kind kind) { return !traits_of(kind).message; });
  return kinds;
}

// The average part of the whole tensor that a rank receives.
double share_received(Kind kind, int64_t members) {
  const auto n = static_cast<double>(members);
  const CollectiveTraits& traits = traits_of(kind);
  if (traits.block == BlockSide::result || traits.root == RootRole::gets) return 1 / n;
  return traits.root == RootRole::gives ? (n - 1) / n : 1;
}

// Groups to measure, and the level of links that their times describe.
struct Groups {
  std::vector<AxisRef> axes;
  std::optional<LinkLevel> level;                     // without alpha and bandwidth
  int64_t sharing = 1;                                // ranks of a unit
  std::optional<std::pair<AxisRef, AxisRef>> pieces;  // inside hosts and between them, of an axis that crosses
};

// An axis inside hosts or between them describes one level; an axis that crosses hosts is measured in its pieces, too.
std::vector<Groups> groups_of(const Mesh& mesh, int64_t per_host, const std::string& engine) {
  constexpr const char* kBetween = "network";
  std::vector<Groups> all;
  std::vector<AxisRef> together;
  int64_t nearer = mesh.size();
  for (const MeshAxis& axis : mesh.axes()) {
    nearer /= axis.size;
    if (axis.size == 1) continue;
    together.push_back(AxisRef::whole(axis));
    if (nearer * axis.size <= per_host || nearer >= per_host) {
      const bool inside = nearer < per_host;
      all.push_back(
          {{AxisRef::whole(axis)}, LinkLevel{axis.size, 0, 0, inside ? engine : kBetween}, nearer, std::nullopt});
      continue;
    }
    const int64_t inside = per_host / nearer;
    if (per_host % nearer != 0 || axis.size % inside != 0)
      fail("bench", "hosts of {} ranks do not divide axis '{}' of the mesh {}; name another `mesh` or `per_host`",
           per_host, axis.name, mesh.str());
    const int64_t hosts = axis.size / inside;
    const AxisRef near{axis.name, hosts, inside}, far{axis.name, 1, hosts};
    all.push_back({{AxisRef::whole(axis)}, std::nullopt, nearer, std::pair{near, far}});
    all.push_back({{near}, LinkLevel{inside, 0, 0, engine}, nearer, std::nullopt});
    all.push_back({{far}, LinkLevel{hosts, 0, 0, kBetween}, nearer * inside, std::nullopt});
  }
  if (together.size() > 1) all.push_back({together, std::nullopt, 1, std::nullopt});
  return all;
}

std::string text_of(const std::vector<AxisRef>& axes, const Mesh& mesh) {
  std::string text;
  for (const AxisRef& axis : axes) text += (text.empty() ? "" : ",") + axis.str(mesh);
  return text;
}

void require_memory(int64_t ranks, int64_t most) {
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  const double needed = 2.0 * static_cast<double>(ranks) * static_cast<double>(most);
  if (needed > 0.8 * memory)
    fail("bench", "{} ranks need {:.1f} GiB for messages of {} MiB, and the machine has {:.1f}; give a smaller `most`",
         ranks, needed / (1 << 30), most >> 20, memory / (1 << 30));
}

// Keeps the calling thread on the core of that index among those that it may use. Otherwise the system may leave two
// ranks that wait for each other on one core, where they are ten times as slow.
void hold_core(size_t index) {
  cpu_set_t may, one;
  if (sched_getaffinity(0, sizeof may, &may) != 0) return;
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &may) || index-- != 0) continue;
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

// The measurements of one rank; all ranks find the same.
class Measurement {
 public:
  Measurement(const Mesh& mesh, const MeasureOptions& options, const std::vector<Kind>& kinds,
              const std::vector<Groups>& groups, bool has_cores, bool in_background)
      : mesh_(mesh),
        options_(options),
        kinds_(kinds),
        groups_(groups),
        has_cores_(has_cores),
        in_background_(in_background) {}

  CollectiveTimes on_rank(comm::World& world, int rank) const {
    comm::Meter meter(world, rank, options_.most, {.seconds = options_.seconds}, options_.writes);
    const bool tells = options_.begins && rank == world.local_ranks().front();
    CollectiveTimes found;
    std::vector<double> shares;  // of the copied bytes, by time
    std::map<int64_t, comm::Timing> copies;
    time_copies(meter, copies);
    for (const auto& [bytes, timing] : copies) {
      found.times.push_back(point("copy", {}, 1, bytes, timing, 1));
      shares.push_back(1);
    }
    for (const Groups& group : groups_) {
      const std::vector<int> members = group_of(rank, group.axes, mesh_);
      const auto size = static_cast<int64_t>(members.size());
      std::vector<std::string> axes;
      for (const AxisRef& axis : group.axes) axes.push_back(axis.str(mesh_));
      const std::string over = text_of(group.axes, mesh_);
      const auto begins = [&](std::string_view kind) {
        if (tells) options_.begins(fmt::format("{} over {}", kind, over));
      };
      Series series = time_kinds(meter, members, begins);
      std::optional<cost::Fit> fit;
      if (group.level) fit = fit_of(size, series);
      // If something else kept the machine busy, measure again; the fastest times of several rounds count.
      for (int round = 1; fit && !is_good(*fit) && round < kMostRounds; ++round) {
        keep_fastest(series, time_kinds(meter, members, begins));
        fit = fit_of(size, series);
      }
      double scatter = 0;
      for (const auto& [kind, bytes, timing] : series) {
        found.times.push_back(point(comm::name_of(kind), axes, size, bytes, timing, cost::bus_factor(kind, size)));
        shares.push_back(kind == Kind::barrier ? 0 : share_received(kind, size));
        scatter += timing.scatter * timing.scatter;
      }
      const bool sums = std::find(kinds_.begin(), kinds_.end(), Kind::all_reduce) != kinds_.end();
      if (group.pieces && sums) {
        constexpr const char* kByLevels = "all_reduce by levels";
        begins(kByLevels);
        for_sizes([&](int64_t bytes) {
          const comm::Timing timing = meter.time_by_levels(group_of(rank, {group.pieces->first}, mesh_),
                                                           group_of(rank, {group.pieces->second}, mesh_), bytes);
          found.times.push_back(point(kByLevels, axes, size, bytes, timing, cost::bus_factor(Kind::all_reduce, size)));
          shares.push_back(1);
          return timing;
        });
      }
      time_copies(meter, copies);
      if (!fit) continue;
      LinkFit entry{over, *group.level, fit->error,
                    series.empty() ? 0 : std::sqrt(scatter / static_cast<double>(series.size()))};
      entry.level.alpha = fit->alpha;
      entry.level.bandwidth = fit->beta > 0 ? static_cast<double>(group.sharing) / fit->beta : 0;
      found.fits.push_back(std::move(entry));
    }
    if (mesh_.size() > 1) {
      if (tells && options_.kernel) options_.begins("kernels beside transfers");
      const comm::Slowdown slowdown = slowdown_of(meter);
      found.slows_computation = slowdown.computation;
      found.slowed_by_computation = slowdown.communication;
    }
    for (size_t i = 0; i < shares.size(); ++i)
      if (shares[i] > 0) found.times[i].floor = copies.at(found.times[i].bytes).seconds * shares[i];
    return found;
  }

 private:
  struct Timed {
    Kind kind;
    int64_t bytes;
    comm::Timing timing;
  };
  using Series = std::vector<Timed>;

  static constexpr int kMostRounds = 3;

  static bool is_good(const cost::Fit& fit) {
    constexpr double kMostError = 0.2;
    return fit.beta > 0 && fit.error <= kMostError;
  }

  // Calls `time` with one size after the other, until the next would take too long. All ranks know the same times.
  template <typename Time>
  void for_sizes(Time&& time) const {
    for (int64_t bytes = options_.least; bytes <= options_.most; bytes *= 4)
      if (4 * time(bytes).seconds > options_.longest) return;
  }

  // Ranks may differ in what they have, so all ask.
  comm::Slowdown slowdown_of(comm::Meter& meter) const {
    constexpr int64_t kMostBytes = int64_t{4} << 20;
    return meter.slowdown(options_.kernel && has_cores_ ? options_.kernel() : nullptr,
                          std::min(options_.most, kMostBytes), in_background_);
  }

  Series time_kinds(comm::Meter& meter, const std::vector<int>& members,
                    const std::function<void(std::string_view)>& begins) const {
    Series series;
    for (Kind kind : kinds_) {
      begins(comm::name_of(kind));
      if (kind == Kind::barrier)
        series.push_back({kind, 0, meter.time(kind, members, 0)});
      else
        for_sizes([&](int64_t bytes) {
          return series.emplace_back(Timed{kind, bytes, meter.time(kind, members, bytes)}).timing;
        });
    }
    return series;
  }

  // Of sizes that both have.
  static void keep_fastest(Series& series, const Series& again) {
    for (Timed& known : series)
      for (const Timed& one : again)
        if (one.kind == known.kind && one.bytes == known.bytes && one.timing.seconds < known.timing.seconds)
          known.timing = one.timing;
  }

  static cost::Fit fit_of(int64_t size, const Series& series) {
    std::vector<cost::TimedCollective> timed;
    for (const auto& [kind, bytes, timing] : series)
      timed.push_back({kind, static_cast<double>(bytes), timing.seconds});
    return cost::fit(size, timed);
  }

  // For each size, the fastest so far.
  void time_copies(comm::Meter& meter, std::map<int64_t, comm::Timing>& copies) const {
    for (int64_t bytes = options_.least; bytes <= options_.most; bytes *= 4) {
      const comm::Timing timing = meter.time_of_copy(bytes);
      const auto [known, fresh] = copies.emplace(bytes, timing);
      if (!fresh && timing.seconds < known->second.seconds) known->second = timing;
    }
  }

  static CollectiveTime point(std::string_view kind, const std::vector<std::string>& axes, int64_t members,
                              int64_t bytes, const comm::Timing& timing, double bus_factor) {
    const double bandwidth = timing.seconds > 0 ? static_cast<double>(bytes) / timing.seconds : 0;
    return {std::string(kind),      axes, members, bytes, timing.seconds, timing.scatter, bandwidth,
            bandwidth * bus_factor, 0};
  }

  const Mesh& mesh_;
  const MeasureOptions& options_;
  const std::vector<Kind>& kinds_;
  const std::vector<Groups>& groups_;
  bool has_cores_;      // for each rank of a machine
  bool in_background_;  // transfers go on while ranks compute
};

}  // namespace

Topology CollectiveTimes::topology() const {
  Topology topology;
  for (const LinkFit& fit : fits) {
    if (fit.level.bandwidth <= 0)
      fail("bench", "times over {} do not grow with the bytes, so the bandwidth cannot be fitted; give a larger `most`",
           fit.axes);
    const std::string axis = fit.axes.substr(0, fit.axes.find(':'));
    if (topology.axes.empty() || topology.axes.back().name != axis) topology.axes.push_back({axis, {}});
    topology.axes.back().levels.push_back(fit.level);
  }
  return topology;
}

CollectiveTimes measure_collectives(const Mesh& mesh, const MeasureOptions& options) {
  const std::vector<Kind> kinds = kinds_of(options.kinds);
  if (options.least < 4 || options.least > options.most)
    fail("bench", "sizes from {} to {} bytes are invalid; start with at least 4 bytes, and end with at least as many",
         options.least, options.most);
  std::shared_ptr<comm::World> world;
  std::string engine = "threads";
  int64_t per_host = mesh.size(), machine_ranks = mesh.size();
  size_t first_core = 0;
  const auto cores = static_cast<int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  if (options.connection) {
    const Launch& launch = options.connection->launch();
    world = options.connection->impl().world;
    engine = launch.engine;
    per_host = machine_ranks = launch.local_size;
    first_core = static_cast<size_t>(launch.local_rank);
    if (mesh.size() != launch.size)
      fail("bench", "the mesh '{}' has {}, but {} were started; name a `mesh` of that size", mesh.str(),
           counted(mesh.size(), "rank"), launch.size);
  } else {
    if (mesh.size() > 256) fail("bench", "{} ranks are too many threads; name a `mesh` of at most 256", mesh.size());
    world = comm::make_local_world(static_cast<int>(mesh.size()),
                                   {.timeout = options.timeout, .spin = mesh.size() <= cores});
  }
  if (options.per_host > 0) per_host = options.per_host;
  const std::vector<Groups> groups = groups_of(mesh, per_host, engine);
  const std::vector<int> ranks = world->local_ranks();
  require_memory(machine_ranks, options.most);

  const Measurement measurement(mesh, options, kinds, groups, machine_ranks <= cores,
                                cost::moves_in_background(engine));
  std::vector<CollectiveTimes> found(ranks.size());
  std::vector<std::exception_ptr> errors(ranks.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        if (machine_ranks <= cores) hold_core(first_core + r);
        found[r] = measurement.on_rank(*world, ranks[r]);
      } catch (const std::exception& error) {
        errors[r] = std::current_exception();
        world->abort(ranks[r], error.what(), error_kind(error));
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  return std::move(found.front());
}

}  // namespace v1
}  // namespace tessera
