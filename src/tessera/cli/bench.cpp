#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "tessera/cli/bench_comm.h"
#include "tessera/cli/command.h"
#include "tessera/cli/details.h"
#include "tessera/cli/help.h"
#include "tessera/cli/latency.h"
#include "tessera/cli/load_program.h"
#include "tessera/cli/models.h"
#include "tessera/cli/options.h"
#include "tessera/cli/overlap_report.h"
#include "tessera/cli/path_options.h"
#include "tessera/cli/program_tables.h"
#include "tessera/cli/progress.h"
#include "tessera/cli/recorded_command.h"
#include "tessera/cli/resident_memory.h"
#include "tessera/cli/time_options.h"
#include "tessera/cli/trace.h"
#include "tessera/files.h"
#include "tessera/profile.h"
#include "tessera/what_if.h"

namespace tessera::cli {
namespace {

/// The cost of one program's runs, per run; times in milliseconds.
struct Costs {
  struct Rank {
    double compute = 0, overlapped = 0, exposed = 0, idle = 0;
  };
  struct Operator {
    double count = 0;  // on rank 0
    double time = 0;   // mean over ranks
  };
  std::vector<Rank> ranks;
  std::map<std::string, Operator> by_type, by_name;
  std::map<std::pair<std::string, std::vector<std::string>>, double> collectives;  // mean over ranks, without waiting
  int64_t resident_bytes = 0;  // by which this process had grown at its peak since before the session

  void add(const Profile& profile, double weight) {
    ranks.resize(profile.ranks.size());
    const double share = weight * 1e-3 / static_cast<double>(profile.ranks.size());
    for (size_t r = 0; r < ranks.size(); ++r) {
      const RankProfile& rank = profile.ranks[r];
      ranks[r].compute += rank.compute * weight * 1e-3;
      ranks[r].overlapped += rank.overlapped * weight * 1e-3;
      ranks[r].exposed += rank.exposed * weight * 1e-3;
      ranks[r].idle += rank.idle * weight * 1e-3;
      for (const ProfileEvent& event : rank.events) {
        if (event.communication) {
          collectives[{event.op, event.axes}] += (event.duration - event.waiting) * share;
          continue;
        }
        for (Operator* entry : {&by_type[event.op], &by_name[event.op + " " + event.name]}) {
          entry->count += r == 0 ? weight : 0;
          entry->time += event.duration * share;
        }
      }
    }
  }
};

/// Operators by decreasing time.
std::vector<std::pair<std::string, Costs::Operator>> slowest(const std::map<std::string, Costs::Operator>& operators) {
  std::vector<std::pair<std::string, Costs::Operator>> list(operators.begin(), operators.end());
  std::stable_sort(list.begin(), list.end(),
                   [](const auto& a, const auto& b) { return a.second.time > b.second.time; });
  return list;
}

/// The shortest possible time of a model on this machine: its FLOPs at the peak rate, or the bytes of weights, inputs
/// and outputs that it reads or writes, each once, at the memory's bandwidth. A model that fits into the caches can
/// beat the second.
struct Floor {
  MachinePeak peak;
  int cores = 1;
  std::optional<DType> dtype;  ///< of the matrix products; none for a written program
  double flops = 0, bytes = 0;

  double compute_ms() const { return peak.flops > 0 ? flops / peak.flops * 1e3 : 0; }
  double memory_ms() const { return peak.bandwidth > 0 ? bytes / peak.bandwidth * 1e3 : 0; }
  double ms() const { return std::max(compute_ms(), memory_ms()); }
};

/// The time before the first run, in milliseconds.
struct Preparation {
  double compile = 0;          ///< reading the model and making the program
  double load = 0;             ///< cutting and packing the weights, and the plan for the inputs' shapes
  std::optional<double> bind;  ///< the plan for other shapes, if there are any
};

/// The time of a plan for other shapes, with the first symbol one greater. Nullopt if nothing is symbolic, for a
/// written program, and if the model does not take such a size.
std::optional<double> time_to_bind(Session& session, const Loaded& loaded, size_t memory_limit) {
  if (!loaded.model || loaded.model->symbols().empty()) return std::nullopt;
  SymbolSizes sizes = loaded.model->complete(loaded.plan.shapes);
  ++sizes[loaded.model->symbols().front()];
  try {
    const Tensors inputs = random_inputs(*loaded.model, sizes, 0, memory_limit);
    const Clock::time_point start = Clock::now();
    session.peak_bytes(inputs);
    return milliseconds_since(start);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::user) throw;
    return std::nullopt;
  }
}

/// The inputs of each run: the same ones or, with --grow, inputs whose size of that name grows by one each time, like
/// the cache of a text that is decoded. The model has a size of that name: see require_size.
class RunInputs {
 public:
  RunInputs(const Loaded& loaded, const std::string& grown, const InputOptions& random)
      : loaded_(loaded), grown_(grown), random_(random) {
    if (grown.empty()) return;
    if (!loaded.model) fail_asked("--grow needs a model, not a written program; name the ONNX file");
    sizes_ = loaded.plan.shapes;
    sizes_ = loaded.model->complete(sizes_);
    if (!sizes_.contains(grown))
      fail_asked("the size '" + grown +
                 "' decides how many tensors a sequence has, so that each has a program of its own; grow another size");
  }

  /// Refuses to grow given inputs.
  static void require_random(const InputOptions& inputs, const std::string& grown) {
    if (!grown.empty() && inputs.from_file())
      fail_asked(
          "--inputs fixes the sizes of its arrays, so that they cannot grow; leave it out, and give with --shapes the "
          "first size of '" +
          grown + "'");
  }

  /// Refuses a size that no input of the model has, unless it is empty.
  static void require_size(const Model& model, const std::string& grown) {
    const std::vector<std::string> symbols = model.symbols();
    if (grown.empty() || std::find(symbols.begin(), symbols.end(), grown) != symbols.end()) return;
    fail_asked("no input has a size '" + grown + "'" + (symbols.empty() ? "" : "; the sizes are: " + joined(symbols)));
  }

  const Tensors& next() {
    if (grown_.empty()) return loaded_.inputs;
    ++sizes_[grown_];
    made_.clear();  // before the next ones take memory
    made_ = random_inputs(*loaded_.model, loaded_.model->complete(sizes_), random_.seed, random_.memory_limit);
    return made_;
  }

 private:
  [[noreturn]] static void fail_asked(const std::string& message) {
    throw Error(ErrorKind::user, "bench", "--grow: " + message);
  }

  const Loaded& loaded_;
  std::string grown_;
  const InputOptions& random_;
  SymbolSizes sizes_;
  Tensors made_;
};

/// An operator's type, with its time as predicted and measured: means over ranks, in milliseconds.
struct Difference {
  std::string op;
  double predicted = 0, measured = 0;
};

/// Those that differ most come first.
std::vector<Difference> differences(const Prediction& prediction, const Costs& costs) {
  std::map<std::string, Difference> by_op;
  double ranks = 0;
  for (size_t c = 0; c < prediction.classes.size(); ++c) {
    const auto count = static_cast<double>(prediction.classes[c].count);
    ranks += count;
    for (const ProfileEvent& event : prediction.profile.ranks[c].events)
      by_op[event.op].predicted += (event.duration - event.waiting) * 1e-3 * count;
  }
  for (auto& [op, difference] : by_op) difference.predicted /= ranks;
  for (const auto& [op, measured] : costs.by_type) by_op[op].measured += measured.time;
  for (const auto& [collective, time] : costs.collectives) by_op[collective.first].measured += time;
  std::vector<Difference> all;
  for (auto& [op, difference] : by_op) {
    difference.op = op;
    all.push_back(difference);
  }
  std::stable_sort(all.begin(), all.end(), [](const Difference& a, const Difference& b) {
    return std::abs(a.predicted - a.measured) > std::abs(b.predicted - b.measured);
  });
  return all;
}

Json differences_json(const Prediction& prediction, const Costs& costs) {
  Json all = Json::array();
  for (const Difference& each : differences(prediction, costs))
    all.push_back({{"op", each.op}, {"predicted_ms", each.predicted}, {"measured_ms", each.measured}});
  return all;
}

void print_compared(const Console& console, const Forecast& forecast, const Latency& latency, const Costs& costs) {
  print_forecast(console, forecast);
  console.say(compared_text(forecast.prediction, latency.median));
  constexpr size_t kMost = 6;
  Table table({"differ most", "predicted", "measured"});
  const std::vector<Difference> all = differences(forecast.prediction, costs);
  for (size_t i = 0; i < all.size() && i < kMost; ++i)
    table.add({all[i].op, time_text(all[i].predicted * 1e-3), time_text(all[i].measured * 1e-3)});
  table.print(console);
}

class Bench : public Command {
 public:
  void declare(CLI::App& app) override {
    app_ = &app;
    comm_.declare(app);
    app.add_option("model", model_, kModelHelp);
    plan_.declare(app);
    plan_.declare_own(app);
    inputs_.declare(app);
    under(app, Heading::measurement);
    app.add_option("--iterations", iterations_, "the number of runs that are measured")
        ->check(number_in(Bounds::between(1, 10'000'000)))
        ->capture_default_str();
    app.add_option("--warmup", warmup_, "the number of runs before those")
        ->check(number_in(Bounds::between(0, 10'000'000)))
        ->capture_default_str();
    app.add_option("--grow", grown_,
                   "a symbolic size that grows by one at each run, like the length of a cache of keys and values")
        ->type_name("SYMBOL");
    app.add_option("--profile", trace_,
                   "a file for a trace of the last runs, which Perfetto and Chrome's trace viewer show");
    time_.declare(app);
    details_.declare(app);
    run_.declare(app, plan_.overlap);
    declare_paths(app, {{"model", PathUse::reads, files_of_model}, {"--profile", PathUse::writes}});
  }

  int run(Console& console) override {
    if (comm_.asked()) return comm_.run(console);
    details_.check(console);
    if (model_.empty())
      throw Error(
          ErrorKind::user, "bench",
          "no model is named; name an ONNX file, or a folder that tessera shard wrote; or comm, for collectives");
    RunInputs::require_random(inputs_, grown_);
    if (std::optional<int> ended = run_.begin(
            console, "bench --iterations " + std::to_string(iterations_) + " --warmup " + std::to_string(warmup_)))
      return *ended;
    inputs_.memory_limit = run_.memory.bytes();
    if (!trace_.empty() && console.speaks()) require_writable(trace_);
    const Loaded loaded = load_program(model_, plan_, inputs_, time_, console, nullptr, {},
                                       [this](const Model& model) { RunInputs::require_size(model, grown_); });
    if (!trace_.empty() && console.speaks()) require_writable(trace_);  // the program's files are known now
    const Program& program = loaded.program;
    SessionOptions options = run_.session(console);
    options.profile = true;
    Preparation prepared;
    prepared.compile = loaded.compile_ms;
    ResidentPeak resident;
    const Clock::time_point start = Clock::now();
    Progress progress(console, "loading weights");
    Session session(program, options);
    const std::vector<int64_t> peaks = session.peak_bytes(loaded.inputs);
    prepared.load = milliseconds_since(start);
    progress.next("planning for other shapes");
    prepared.bind = time_to_bind(session, loaded, inputs_.memory_limit);
    progress.end();
    RunInputs given(loaded, grown_, inputs_);
    const int threads = session.threads_per_rank() * static_cast<int>(program.mesh().size());
    Floor floor = floor_of(loaded);
    floor.cores = std::min(threads, machine().cores);
    resident.pause();
    if (floor.flops > 0 && console.speaks()) {
      progress.next("measuring the machine");
      const bool narrow = floor.dtype == DType::bfloat16 || floor.dtype == DType::float16;
      floor.peak = measure_peak(narrow ? *floor.dtype : DType::float32, floor.cores);
      // If there are no products of 16-bit floats, float32 products replace them.
      if (floor.peak.flops == 0) floor.peak = measure_peak(DType::float32, floor.cores);
    }

    resident.go_on();
    std::vector<double> times;
    progress.next("running");
    for (int i = 0; i < warmup_; ++i) session.run(given.next());
    for (int i = 0; i < iterations_; ++i) {
      const Tensors& inputs = given.next();
      const Clock::time_point start = Clock::now();
      session.run(inputs);
      times.push_back(milliseconds_since(start));
    }
    constexpr int kProfiled = 20;
    const int profiled = std::min(iterations_, kProfiled);
    Costs costs;
    OverlapRows overlap;
    Trace trace("measured"), last_runs("measured");
    constexpr int kDetailed = 3;  // runs of last_runs, for --details
    double at = 0, at_last = 0;
    SymbolSizes sizes;
    for (int i = 0; i < profiled; ++i) {
      const Tensors& inputs = given.next();
      sizes = sizes_of(program.inputs(), inputs);
      const Tensors outputs = session.run(inputs);
      if (i == 0)
        for (const auto& [name, tensor] : outputs) floor.bytes += static_cast<double>(tensor.bytes);
      const Profile profile = session.profile();
      costs.add(profile, 1.0 / profiled);
      overlap.measure(profile);
      if (!trace_.empty()) trace.add(profile, at);
      at += profile.duration;
      if (!details_.asked || i + kDetailed < profiled) continue;
      last_runs.add(profile, at_last);
      at_last += profile.duration;
    }
    resident.pause();
    costs.resident_bytes = resident.bytes();
    progress.end();
    const std::optional<Forecast> forecast = time_.predict_run(
        console, program, session.threads_per_rank(), plan_.topology(), sizes_of(program.inputs(), loaded.inputs),
        run_.overlaps());  // with all ranks
    if (!console.speaks()) return kGood;
    if (forecast) overlap.predict(forecast->prediction);
    if (!trace_.empty()) {
      SymbolSizes all = loaded.plan.shapes;
      for (const auto& [symbol, size] : sizes) all[symbol] = size;
      trace.record(recorded_program(program, sizes, options, plan_.topology()), recorded_command(*app_, all));
      trace.write(trace_);
    }
    const Latency latency(times);
    if (console.json)
      emit(console, program, session, latency, costs, peaks, floor, prepared, forecast, overlap,
           details_.of(program, sizes_of(program.inputs(), loaded.inputs), forecast, &last_runs));
    else
      print(console, program, session, latency, costs, peaks, floor, prepared, forecast, overlap);
    return kGood;
  }

 private:
  /// Prints no peaks and, for a written program, no FLOPs and bytes either, since it does not state the model's.
  static Floor floor_of(const Loaded& loaded) {
    Floor floor;
    if (!loaded.model) return floor;
    const Inspection inspection = inspect(*loaded.model, loaded.model->complete(loaded.plan.shapes));
    const DType lowered = loaded.plan.dtype.value_or(DType::float32);
    const bool narrowed = inspection.compute == DType::float32 && bits_of(lowered) == 16;
    floor.dtype = narrowed ? lowered : inspection.compute;
    floor.flops = static_cast<double>(inspection.flops);
    floor.bytes = static_cast<double>(inspection.parameter_bytes_read) * (narrowed ? 0.5 : 1);
    for (const auto& [name, tensor] : loaded.inputs) floor.bytes += static_cast<double>(tensor.bytes);
    return floor;
  }

  void print(const Console& console, const Program& program, const Session& session, const Latency& latency,
             const Costs& costs, const std::vector<int64_t>& peaks, const Floor& floor, const Preparation& prepared,
             const std::optional<Forecast>& forecast, const OverlapRows& overlap) const {
    auto ms = [](double value) { return time_text(value * 1e-3); };
    console.note(program.summary());
    console.say("mesh " + mesh_text(program.mesh()) + ", " + counted(session.threads_per_rank(), "thread") + " each, " +
                (floor.dtype ? std::string(name_of(*floor.dtype)) + ", " : "") + joined(machine().instruction_sets));
    console.say("prepared in " + ms(prepared.compile + prepared.load) + ": compile " + ms(prepared.compile) +
                ", load " + ms(prepared.load) + (prepared.bind ? ", a new shape " + ms(*prepared.bind) : ""));
    console.say("throughput " + ratio_text(1e3 / latency.mean) + " runs/s over " + counted(iterations_, "run") +
                " after " + std::to_string(warmup_));
    Table times({"latency", "min", "mean", "median", "p90", "p99"});
    times.add({"", ms(latency.min), ms(latency.mean), ms(latency.median), ms(latency.p90), ms(latency.p99)});
    times.print(console);
    if (floor.flops > 0) {
      console.say("floor " + ms(floor.ms()) + ": " + count_text(floor.flops) + "FLOP at " +
                  count_text(floor.peak.flops) + "FLOP/s are " + ms(floor.compute_ms()) + ", " +
                  bytes_text(floor.bytes) + " at " + bytes_text(floor.peak.bandwidth) + "/s are " +
                  ms(floor.memory_ms()) + " on " + counted(floor.cores, "core"));
      console.say("median / floor " + ratio_text(latency.median / floor.ms()));
    }
    Table ranks({"rank", "compute", "of that, overlapped", "exposed communication", "idle", "peak memory"});
    for (size_t r = 0; r < costs.ranks.size(); ++r)
      ranks.add({std::to_string(r), ms(costs.ranks[r].compute), ms(costs.ranks[r].overlapped),
                 ms(costs.ranks[r].exposed), ms(costs.ranks[r].idle), bytes_text(static_cast<double>(peaks[r]))});
    ranks.print(console);
    console.say(peak_text(peaks, run_.ranks_of_process(console, program.mesh()), session.process_bytes()) +
                (costs.resident_bytes > 0 ? "; this one had grown by " +
                                                bytes_text(static_cast<double>(costs.resident_bytes)) + " at its peak"
                                          : ""));
    if (!program.summary().collectives.empty()) {
      Table collectives({"collective", "axes", "count", "bytes", "time"});
      for (const CollectiveSummary& entry : program.summary().collectives)
        collectives.add({entry.kind, joined(entry.axes, ","), std::to_string(entry.count),
                         bytes_text(static_cast<double>(entry.bytes)), ms(time_of(costs, entry))});
      collectives.print(console);
    }
    print_operators(console, "operator", costs.by_type, costs.by_type.size());
    print_operators(console, "slowest", costs.by_name, 10);
    if (forecast) print_compared(console, *forecast, latency, costs);
    print_overlap(console, plan_.overlap.reports(), overlap, program.summary(), forecast);
    if (!trace_.empty()) console.note("wrote " + trace_ + "; open it at ui.perfetto.dev or chrome://tracing");
  }

  static double total_time(const std::map<std::string, Costs::Operator>& operators) {
    double total = 0;
    for (const auto& [op, entry] : operators) total += entry.time;
    return std::max(total, 1e-9);
  }

  static void print_operators(const Console& console, std::string_view what,
                              const std::map<std::string, Costs::Operator>& operators, size_t most) {
    const double total = total_time(operators);
    Table table({std::string(what), "count", "time", "share"});
    for (const auto& [name, entry] : slowest(operators)) {
      if (table.size() == most) break;
      table.add(
          {name, count_text(entry.count), time_text(entry.time * 1e-3), ratio_text(100 * entry.time / total) + " %"});
    }
    table.print(console);
  }

  static double time_of(const Costs& costs, const CollectiveSummary& summary) {
    double time = 0;
    for (const auto& [key, spent] : costs.collectives)
      if (kind_of(key.first) == summary.kind && key.second == summary.axes) time += spent;
    return time;
  }

  void emit(const Console& console, const Program& program, const Session& session, const Latency& latency,
            const Costs& costs, const std::vector<int64_t>& peaks, const Floor& floor, const Preparation& prepared,
            const std::optional<Forecast>& forecast, const OverlapRows& overlap, const Json& details) const {
    Json ranks = Json::array();
    for (size_t r = 0; r < costs.ranks.size(); ++r)
      ranks.push_back({{"rank", r},
                       {"compute_ms", costs.ranks[r].compute},
                       {"overlapped_ms", costs.ranks[r].overlapped},
                       {"exposed_comm_ms", costs.ranks[r].exposed},
                       {"idle_ms", costs.ranks[r].idle},
                       {"peak_bytes", peaks[r]}});
    Json collectives = Json::array();
    for (const CollectiveSummary& entry : program.summary().collectives)
      collectives.push_back({{"kind", entry.kind},
                             {"axes", entry.axes},
                             {"count", entry.count},
                             {"bytes", entry.bytes},
                             {"ms", time_of(costs, entry)}});
    Json operators = Json::array();
    for (const auto& [name, entry] : slowest(costs.by_type))
      operators.push_back({{"op", name},
                           {"count", std::llround(entry.count)},
                           {"ms", entry.time},
                           {"share", entry.time / total_time(costs.by_type)}});
    Json object = {{"model", model_},
                   {"mesh", mesh_json(program.mesh())},
                   {"dtype", floor.dtype ? Json(name_of(*floor.dtype)) : Json()},
                   {"instruction_sets", machine().instruction_sets},
                   {"threads_per_rank", session.threads_per_rank()},
                   {"iterations", iterations_},
                   {"warmup", warmup_},
                   {"grow", grown_.empty() ? Json() : Json(grown_)},
                   {"prepare_ms",
                    {{"compile", prepared.compile},
                     {"load", prepared.load},
                     {"bind", prepared.bind ? Json(*prepared.bind) : Json()}}},
                   {"throughput", 1e3 / latency.mean},
                   {"latency_ms",
                    {{"min", latency.min},
                     {"mean", latency.mean},
                     {"median", latency.median},
                     {"p90", latency.p90},
                     {"p99", latency.p99}}},
                   {"floor_ms", floor.flops > 0 ? Json(floor.ms()) : Json()},
                   {"floor",
                    {{"flops", floor.flops},
                     {"bytes", floor.bytes},
                     {"peak_flops", floor.peak.flops},
                     {"peak_bandwidth", floor.peak.bandwidth},
                     {"cores", floor.cores}}},
                   {"ranks", ranks},
                   {"process", process_json(run_.ranks_of_process(console, program.mesh()), session.process_bytes(),
                                            costs.resident_bytes)},
                   {"collectives", collectives},
                   {"operators", operators},
                   {"notes", program.summary().notes},
                   {"warnings", program.summary().warnings}};
    if (forecast) {
      object["predicted"] = forecast_json(*forecast);
      object["predicted"]["error"] = forecast->prediction.step_ms / latency.median - 1;
      object["predicted"]["operators"] = differences_json(forecast->prediction, costs);
    }
    object["overlap"] = overlap_json(overlap, program.summary(), forecast);
    if (!inputs_.from_file()) object["seed"] = inputs_.seed;
    if (!trace_.empty()) object["profile"] = trace_;
    object.update(details);
    console.emit(object);
  }

  const CLI::App* app_ = nullptr;
  BenchComm comm_;
  std::string model_, trace_, grown_;
  int iterations_ = 50, warmup_ = 5;
  PlanOptions plan_;
  InputOptions inputs_;
  TimeOptions time_;
  DetailOptions details_;
  RunOptions run_;
};

}  // namespace

std::unique_ptr<Command> make_bench() {
  return std::make_unique<Bench>();
}

}  // namespace tessera::cli
