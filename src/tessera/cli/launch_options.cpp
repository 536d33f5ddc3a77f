#include "tessera/cli/launch_options.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>

#include "tessera/cli/command.h"
#include "tessera/cli/help.h"
#include "tessera/cli/interrupt.h"
#include "tessera/cli/options.h"
#include "tessera/cli/path_options.h"
#include "tessera/inspect.h"

namespace tessera::cli {
namespace {

/// This process' arguments, the program's name first.
std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3 + 0.5));
}

}  // namespace

void LaunchOptions::declare(CLI::App& app) {
  under(app, Heading::ranks);
  app.add_option("--spawn", spawn, "start this many processes, one for each rank of the mesh; else ranks are threads")
      ->check(number_in(Bounds::between(1, 256)));
  takes_one_of(app.add_option("--engine", engine,
                              "what carries bytes between ranks: threads; processes (with --spawn); mpi; gloo; or "
                              "auto, what the launcher uses (mpirun, srun, torchrun; without one, threads). See "
                              "tessera info"),
               {"auto", "threads", "processes", "mpi", "gloo"})
      ->capture_default_str();
  app.add_flag("--share-memory", share_memory,
               "ranks of one host meet in shared memory, and the engine (mpi, gloo) connects hosts only");
  app.add_option("--timeout", timeout, "the longest wait of one rank for another")
      ->check(number_in(Bounds::between(0.001, 1e6)))
      ->type_name("SECONDS")
      ->capture_default_str();
  app.add_option("--join-timeout", join_timeout,
                 "the longest wait for all ranks to join, before the first run; by default 60, or --timeout if longer")
      ->check(number_in(Bounds::between(0.001, 1e6)))
      ->type_name("SECONDS");
  under(app, Heading::output);
  app.add_option("--flight-record", flight_record,
                 "a file for what ranks did last, written when a run fails; '': none. By default, a file in the "
                 "system's temporary folder, which the error names");
  declare_paths(app, {{"--flight-record", PathUse::writes}});
}

std::optional<int> LaunchOptions::begin(Console& console, int threads, const std::string& command) const {
  const bool spawns = spawn > 0;
  if (spawns != (engine == "processes") && engine != "auto")
    throw Error(ErrorKind::user, "launch",
                spawns ? "--spawn starts ranks of engine processes, not " + engine + "; leave one of them out"
                       : "ranks of engine processes are started by --spawn N; give it the size of the mesh");
  const std::optional<Launch> launch = Launch::find(spawns ? "processes" : engine);
  if (!launch && spawn == 0) return std::nullopt;
  if (!launch) {
    SpawnOptions options;
    options.ranks = spawn;
    options.arguments = command_line();
    options.grace = std::min(options.grace, waits());
    options.flight_record = flight_record_path();
    options.done = {kGood, kStopped};
    const Spawned spawned = tessera::spawn(options);
    if (!spawned.note.empty()) std::fprintf(stderr, "tessera: %s\n", spawned.note.c_str());
    return spawned.code;
  }
  const int here =
      std::max(1, launch->local_size > 0 ? launch->local_size : launch->size);  // at most, if not known yet
  const int cores = machine().cores, each = threads > 0 ? threads : std::max(1, cores / here);
  console.connection = Connection::make(
      *launch,
      {.timeout = waits(), .join_timeout = joins(), .spin = each * here <= cores, .share_memory = share_memory});
  console.connection->require_same("the command", command);
  // Launchers end the other ranks when one has died.
  say_when_interrupted([connection = std::weak_ptr<Connection>(console.connection),
                        file = flight_record_of(console)](const std::string& signal) -> std::string {
    const auto alive = connection.lock();
    if (!alive || alive->launch().engine == "processes") return "";  // the parent process reports for all
    const std::string words = alive->last_words(signal, file);
    return words.empty() ? "" : signal + ": " + words;
  });
  // It tells the ranks that a rank has died as it would tell them to stop, and kills them a second later. A rank that
  // waits for one of another host hears of its death from nobody else.
  if (launch->engine == "mpi")
    say_when_stuck([connection = std::weak_ptr<Connection>(console.connection)]() -> std::string {
      const auto alive = connection.lock();
      return alive ? alive->waits_at() : "";
    });
  return std::nullopt;
}

std::string LaunchOptions::flight_record_path() const {
  if (flight_record) return *flight_record;
  std::error_code error;
  std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  if (error) folder = "/tmp";  // TMPDIR names no folder
  // Nobody else can guess the name and put a link there.
  static const std::string chance = std::to_string(std::random_device()());
  return folder / ("tessera-flight-" + std::to_string(getpid()) + "-" + chance + ".json");
}

std::string LaunchOptions::flight_record_of(const Console& console) const {
  const std::string all = flight_record_path();
  if (!console.connection || all.empty()) return all;
  const Launch& launch = console.connection->launch();
  if (launch.engine == "processes") return "";
  if (launch.rank == 0) return all;
  const std::filesystem::path path = all;
  const std::string name = path.stem().string() + ".rank" + std::to_string(launch.rank) + path.extension().string();
  return (path.parent_path() / name).string();
}

std::chrono::milliseconds LaunchOptions::waits() const {
  return milliseconds_of(timeout);
}

std::optional<std::chrono::milliseconds> LaunchOptions::joins() const {
  return join_timeout ? std::optional(milliseconds_of(*join_timeout)) : std::nullopt;
}

}  // namespace tessera::cli
