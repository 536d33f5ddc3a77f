#include "tessera/cli/bench_comm.h"

#include <algorithm>
#include <fstream>

#include "tessera/cli/help.h"
#include "tessera/cli/options.h"
#include "tessera/cli/path_options.h"
#include "tessera/cli/program_tables.h"
#include "tessera/cli/progress.h"
#include "tessera/files.h"

namespace tessera::cli {
namespace {

std::string percent_text(double share) {
  return ratio_text(100 * share) + " %";
}

}  // namespace

void BenchComm::declare(CLI::App& bench) {
  app_ = bench.add_subcommand("comm", "Times collectives over the axes of a mesh, and fits latency and bandwidth.");
  under(*app_, Heading::measurement);
  app_->add_option("--mesh", mesh_, "named axes of ranks with their sizes, e.g. dp=2,tp=4")
      ->required()
      ->type_name("AXES");
  app_->add_option("--collectives", options_.kinds,
                   "the collectives to time, e.g. all_reduce,all_gather; by default, all: all_reduce, all_gather, "
                   "reduce_scatter, all_to_all, broadcast, reduce, gather, scatter, permute, barrier")
      ->delimiter(',')
      ->type_name("NAMES");
  const CLI::Validator bytes = CLI::AsSizeValue(false).description("");
  app_->add_option("--min", options_.least, "bytes of the smallest tensor, e.g. 1KiB")
      ->transform(bytes)
      ->type_name("BYTES");
  app_->add_option("--max", options_.most, "bytes of the largest tensor, e.g. 256MiB; sizes grow by a factor of four")
      ->transform(bytes)
      ->type_name("BYTES");
  app_->add_option("--seconds", options_.seconds, "the least time of measuring at each point")
      ->check(number_in(Bounds::between(0, 3600)))
      ->capture_default_str();
  app_->add_option("--longest", options_.longest,
                   "seconds: the sizes of a collective stop growing when the next would take longer")
      ->check(number_in(Bounds::between(0, 3600)))
      ->capture_default_str();
  app_->add_option("--per-host", options_.per_host,
                   "ranks of one host, beyond which links change; by default, what the launcher says, or all")
      ->check(number_in(Bounds::between(1, 1 << 24)));
  repeatable(app_->add_option("--beside", beside_,
                              "NAME=FILE: times of another library to print beside, in lines of COLLECTIVE BYTES "
                              "MICROSECONDS, among all ranks"));
  under(*app_, Heading::output);
  app_->add_option("-o,--output", output_, "a topology file to write, for --topology");
  launch_.declare(*app_);
  declare_paths(*app_, {{"--beside", PathUse::reads,
                         [](const std::string& value) { return std::vector{value.substr(value.find('=') + 1)}; }},
                        {"--output", PathUse::writes}});
}

BenchComm::Peer BenchComm::Peer::read(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw Error(ErrorKind::user, "bench", "'" + text + "' names no times; write NAME=FILE, as --beside MPI=times.txt");
  Peer peer{text.substr(0, equals), {}};
  const std::string path = text.substr(equals + 1);
  std::ifstream file(path);
  if (!file)
    throw Error(ErrorKind::user, "bench",
                "cannot read '" + path + "'; name a file of times, as --beside MPI=times.txt");
  std::string kind;
  int64_t bytes = 0;
  double microseconds = 0;
  while (file >> kind >> bytes >> microseconds) peer.seconds[{kind, bytes}] = microseconds * 1e-6;
  if (peer.seconds.empty() || !file.eof())
    throw Error(ErrorKind::user, "bench",
                path + " has no lines of COLLECTIVE BYTES MICROSECONDS only; name a file that has");
  return peer;
}

std::optional<double> BenchComm::Peer::find(const CollectiveTime& entry, const Mesh& mesh) const {
  const auto found = seconds.find({entry.kind, entry.bytes});
  if (found == seconds.end() || entry.members != mesh.size()) return std::nullopt;
  return found->second;
}

int BenchComm::run(Console& console) {
  const std::string command = "bench comm --mesh " + mesh_ + " --collectives " + joined(options_.kinds, ",") +
                              " --min " + std::to_string(options_.least) + " --max " + std::to_string(options_.most) +
                              " --seconds " + std::to_string(options_.seconds) + " --longest " +
                              std::to_string(options_.longest) + " --per-host " + std::to_string(options_.per_host);
  if (std::optional<int> ended = launch_.begin(console, 1, command)) return *ended;
  if (!output_.empty() && console.speaks()) require_writable(output_);
  std::vector<Peer> peers;
  for (const std::string& text : beside_) peers.push_back(Peer::read(text));
  const Mesh mesh = Mesh::parse(mesh_);
  options_.connection = console.connection;
  options_.timeout = launch_.waits();
  const CollectiveTimes found = [&] {
    std::optional<Progress> progress;
    options_.begins = [&](const std::string& what) {
      progress.reset();
      progress.emplace(console, "measuring " + what);
    };
    return measure_collectives(mesh, options_);
  }();
  if (!console.speaks()) return kGood;
  if (!output_.empty()) write_file(output_, found.topology().to_json());
  if (console.json)
    emit(console, mesh, found, peers);
  else
    print(console, mesh, found, peers);
  return kGood;
}

void BenchComm::print(const Console& console, const Mesh& mesh, const CollectiveTimes& found,
                      const std::vector<Peer>& peers) const {
  console.say("mesh " + mesh_text(mesh));
  console.say(
      "times of the slowest rank, medians of the fastest of several rounds, and how much longer the slowest round "
      "took; "
      "bus bandwidth as nccl-tests has it; the floor is copying what ranks get");
  std::vector<std::string> header = {"collective", "axes",    "ranks",         "bytes",
                                     "time",       "scatter", "bus bandwidth", "floor / time"};
  for (const Peer& peer : peers) header.insert(header.end(), {peer.name, peer.name + " / time"});
  Table table(header);
  for (const CollectiveTime& entry : found.times) {
    const bool moves = entry.bytes > 0;
    std::vector<std::string> row = {entry.kind,
                                    joined(entry.axes, ","),
                                    std::to_string(entry.members),
                                    moves ? bytes_text(static_cast<double>(entry.bytes)) : "",
                                    time_text(entry.seconds),
                                    percent_text(entry.scatter),
                                    moves ? bytes_text(entry.bus_bandwidth) + "/s" : "",
                                    moves ? ratio_text(entry.floor / entry.seconds) : ""};
    for (const Peer& peer : peers) {
      const std::optional<double> seconds = peer.find(entry, mesh);
      row.push_back(seconds ? time_text(*seconds) : "");
      row.push_back(seconds ? ratio_text(*seconds / entry.seconds) : "");
    }
    table.add(row);
  }
  table.print(console);
  const bool all = std::all_of(found.times.begin(), found.times.end(), [&](const CollectiveTime& entry) {
    return entry.kind == "copy" || entry.bytes == 0 || 4 * entry.seconds <= options_.longest ||
           4 * entry.bytes > options_.most;
  });
  if (!all)
    console.say("larger sizes are left out where one would take longer than " + time_text(options_.longest) +
                " (--longest)");
  Table fits({"links of", "", "latency", "bandwidth", "error", "scatter of times"});
  for (const LinkFit& fit : found.fits)
    fits.add({fit.axes, fit.level.name, time_text(fit.level.alpha),
              fit.level.bandwidth > 0 ? bytes_text(fit.level.bandwidth) + "/s" : "unknown", percent_text(fit.error),
              percent_text(fit.scatter)});
  if (!fits.empty()) fits.print(console);
  if (!output_.empty()) console.note("wrote " + output_);
}

void BenchComm::emit(const Console& console, const Mesh& mesh, const CollectiveTimes& found,
                     const std::vector<Peer>& peers) const {
  Json times = Json::array(), fits = Json::array();
  for (const CollectiveTime& entry : found.times) {
    times.push_back({{"collective", entry.kind},
                     {"axes", entry.axes},
                     {"ranks", entry.members},
                     {"bytes", entry.bytes},
                     {"seconds", entry.seconds},
                     {"scatter", entry.scatter},
                     {"bandwidth", entry.bandwidth},
                     {"bus_bandwidth", entry.bus_bandwidth},
                     {"floor_seconds", entry.floor}});
    for (const Peer& peer : peers)
      if (const std::optional<double> seconds = peer.find(entry, mesh)) times.back()["beside"][peer.name] = *seconds;
  }
  for (const LinkFit& fit : found.fits)
    fits.push_back({{"axes", fit.axes},
                    {"name", fit.level.name},
                    {"size", fit.level.size},
                    {"alpha", fit.level.alpha},
                    {"bandwidth", fit.level.bandwidth > 0 ? Json(fit.level.bandwidth) : Json()},
                    {"error", fit.error},
                    {"scatter", fit.scatter}});
  Json object = {{"mesh", mesh_json(mesh)}, {"times", times}, {"fits", fits}};
  if (!output_.empty()) object["written"] = output_;
  console.emit(object);
}

}  // namespace tessera::cli
