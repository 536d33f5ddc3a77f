#include "tessera/cli/bench_comm.h"

#include "tessera/cli/options.h"
#include "tessera/cli/progress.h"
#include "tessera/io/atomic_file.h"

namespace tessera::cli {

void BenchComm::declare(CLI::App& bench) {
  app_ = bench.add_subcommand("comm", "time collectives over the axes of a mesh, and fit latency and bandwidth");
  app_->add_option("--mesh", mesh_, "named axes of ranks, as dp=2,tp=4")->required();
  app_->add_option("--collectives", options_.kinds,
                   "which, as all_reduce,all_gather; else all: all_reduce, all_gather, reduce_scatter, all_to_all, "
                   "broadcast, reduce, gather, scatter, permute, barrier")
      ->delimiter(',');
  const CLI::AsSizeValue bytes(false);
  app_->add_option("--min", options_.least, "bytes of the smallest tensor, as 1KiB")->transform(bytes);
  app_->add_option("--max", options_.most, "bytes of the largest, as 256MiB; sizes between grow by four")
      ->transform(bytes);
  app_->add_option("--seconds", options_.seconds, "of measuring at each point, at least")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  app_->add_option("--per-host", options_.per_host,
                   "ranks of one host, where links change; else what the launcher says, or all")
      ->check(CLI::Range(1, 1 << 24));
  app_->add_option("-o,--output", output_, "a topology file to write, for --topology");
  app_->add_option("--timeout", timeout_, "longest wait of one rank for another, in seconds")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
}

int BenchComm::run(Console& console) {
  if (!output_.empty()) require_writable(output_);
  const Mesh mesh = Mesh::parse(mesh_);
  options_.timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout_ * 1e3 + 0.5));
  const CollectiveTimes found = [&] {
    Progress progress(console, "measuring");
    return measure_collectives(mesh, options_);
  }();
  if (!output_.empty()) write_file(output_, found.topology().to_json());
  if (console.json)
    emit(console, mesh, found);
  else
    print(console, mesh, found);
  return kGood;
}

void BenchComm::print(const Console& console, const Mesh& mesh, const CollectiveTimes& found) const {
  console.say("mesh " + mesh_text(mesh));
  console.say(
      "times of the slowest rank, medians; bus bandwidth as nccl-tests has it; the floor is copying what ranks get");
  Table table({"collective", "axes", "ranks", "bytes", "time", "bus bandwidth", "floor", "floor / time"});
  for (const CollectiveTime& entry : found.times) {
    const bool moves = entry.bytes > 0;
    table.add({entry.kind, joined(entry.axes, ","), std::to_string(entry.members),
               moves ? bytes_text(static_cast<double>(entry.bytes)) : "", time_text(entry.seconds),
               moves ? bytes_text(entry.bus_bandwidth) + "/s" : "", moves ? time_text(entry.floor) : "",
               moves ? ratio_text(entry.floor / entry.seconds) : ""});
  }
  table.print(console);
  Table fits({"links of", "", "latency", "bandwidth", "error"});
  for (const LinkFit& fit : found.fits)
    fits.add({fit.axes, fit.level.name, time_text(fit.level.alpha),
              fit.level.bandwidth > 0 ? bytes_text(fit.level.bandwidth) + "/s" : "unknown",
              ratio_text(100 * fit.error) + " %"});
  if (!fits.empty()) fits.print(console);
  if (!output_.empty()) console.say("wrote " + output_);
}

void BenchComm::emit(const Console& console, const Mesh& mesh, const CollectiveTimes& found) const {
  Json times = Json::array(), fits = Json::array();
  for (const CollectiveTime& entry : found.times)
    times.push_back({{"collective", entry.kind},
                     {"axes", entry.axes},
                     {"ranks", entry.members},
                     {"bytes", entry.bytes},
                     {"seconds", entry.seconds},
                     {"bandwidth", entry.bandwidth},
                     {"bus_bandwidth", entry.bus_bandwidth},
                     {"floor_seconds", entry.floor}});
  for (const LinkFit& fit : found.fits)
    fits.push_back({{"axes", fit.axes},
                    {"name", fit.level.name},
                    {"size", fit.level.size},
                    {"alpha", fit.level.alpha},
                    {"bandwidth", fit.level.bandwidth > 0 ? Json(fit.level.bandwidth) : Json()},
                    {"error", fit.error}});
  Json object = {{"mesh", mesh_json(mesh)}, {"times", times}, {"fits", fits}};
  if (!output_.empty()) object["written"] = output_;
  console.emit(object);
}

}  // namespace tessera::cli
