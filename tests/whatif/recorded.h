#pragma once

#include <fmt/format.h>

#include <string>

#include "tessera/compiler/programs.h"
#include "tessera/ir/text.h"
#include "tessera/whatif/trace.h"

/// Runs that were not recorded but simulated, so that tests know what happened in them.
namespace tessera::whatif {

/// Round numbers: a byte takes a nanosecond in memory, and two on a link.
inline MachineModel round_machine(MachineModel::Progress progress, const std::string& device = "cpu") {
  MachineModel machine;
  machine.name = "round";
  machine.device = device;
  machine.progress = progress;
  machine.kernel = 1e-6;
  machine.products[DType::float32] = {1e9, {0, 0, 0}};
  machine.bandwidths = {{std::numeric_limits<double>::infinity(), 1e9}};
  machine.links = {{"near", 0, 1e-4, 5e8}};
  return machine;
}

/// Layers whose all-reduces have two sizes, and a Softmax that can run beside them.
inline std::string layers(int count) {
  std::string weights, nodes;
  for (int i = 0; i < count; ++i) {
    weights += fmt::format("{}float[64, 256] up{}, float[256, 64] down{}, float[64, 512] wide{}, float[512, 32] low{}",
                           i ? ", " : "", i, i, i, i);
    nodes += fmt::format(
        "  a{0} = MatMul (h{0}, up{0})\n  b{0} = Gelu (a{0})\n  c{0} = MatMul (b{0}, down{0})\n"
        "  s{0} = Softmax (z)\n  t{0} = MatMul (h{0}, wide{0})\n  u{0} = MatMul (t{0}, low{0})\n"
        "  v{0} = ReduceSum <keepdims = 1> (u{0}, axis)\n  r{0} = ReduceSum <keepdims = 0> (s{0})\n"
        "  w{0} = Add (c{0}, v{0})\n  x{0} = Add (w{0}, r{0})\n  h{1} = Add (h{0}, x{0})\n",
        i, i + 1);
  }
  return fmt::format(
      "<opset_import: [\"\" : 21]>\nstack (float[batch, 64] h0, float[256, 256] z) => (float[batch, 64] h{}) <{}, "
      "int64[1] axis = {{1}}> {{\n{}}}",
      count, weights, nodes);
}

inline runtime::DryRun dry_run(const std::string& mesh, const std::string& presets, bool overlap = true,
                               const std::string& device = "cpu", int count = 3) {
  compiler::ProgramOptions options;
  options.mesh = Mesh::parse(mesh);
  options.presets = presets;
  options.shapes = {{"batch", 32}};
  const auto source =
      std::make_shared<const compiler::Source>("model", parse_text(layers(count)), std::vector<uint64_t>());
  runtime::DryRun run = compiler::compile_program(source, options).dry_run({{"batch", 32}});
  run.options.overlap = overlap;
  run.options.device = device;
  return run;
}

inline sim::Predicted predicted(const runtime::DryRun& run, const MachineModel& machine, const std::string& engine) {
  sim::PredictOptions options;
  options.machine = &machine;
  options.topology = machine.topology(run.programs->mesh());
  options.engine = engine;
  options.fold = false;
  return sim::predict(run, options);
}

/// The run that a simulation made up, as profiles have it. These note when the computing queue was done with each
/// action: what starts in another queue takes it no time, and a wait begins with the end of the action before it.
inline RecordedRun run_of(const sim::Predicted& predicted) {
  using bind::Phase;
  RecordedRun run;
  run.seconds = predicted.timeline.seconds;
  std::map<int, double> complete;  // by step, which all ranks have
  for (size_t c = 0; c < predicted.classes.size(); ++c) {
    RecordedRun::Rank& rank = run.ranks.emplace_back();
    std::vector<sim::Event> events = predicted.timeline.classes[c].events;
    std::sort(events.begin(), events.end(), [](const auto& a, const auto& b) { return a.action < b.action; });
    double done = std::numeric_limits<double>::infinity();
    for (const sim::Event& event : events) done = std::min(done, event.begin);
    for (const sim::Event& event : events) {
      const bind::Enqueued& it = predicted.classes[c].actions[static_cast<size_t>(event.action)];
      const bool elsewhere = it.queue != bind::kComputing, waits = it.action.phase == Phase::wait;
      RecordedEvent& made = rank.events.emplace_back(
          RecordedEvent{event.action, waits || elsewhere ? done : event.begin, elsewhere ? done : event.end, 0});
      done = made.end;
      if (it.action.phase != Phase::start) continue;
      double& last = complete[it.action.task];
      last = std::max(last, made.end);
    }
    rank.end = rank.events.empty() ? 0 : std::max(rank.events.back().end, run.seconds);
  }
  for (size_t c = 0; c < run.ranks.size(); ++c)
    for (RecordedEvent& event : run.ranks[c].events)
      if (const bind::Action& action = predicted.classes[c].actions[static_cast<size_t>(event.action)].action;
          action.phase == Phase::wait)
        event.complete = complete.at(action.task);
  return run;
}

/// How ranks communicate: between threads nothing moves before a wait, Gloo goes on by itself, an accelerator has a
/// queue for it.
struct Way {
  std::string engine = "threads", device = "cpu";
  MachineModel::Progress progress = MachineModel::Progress::at_wait;
};
inline const std::vector<Way> kWays = {{"threads", "cpu", MachineModel::Progress::at_wait},
                                       {"gloo", "cpu", MachineModel::Progress::background},
                                       {"threads", "simulated", MachineModel::Progress::background}};

struct Recorded {
  MachineModel machine;
  runtime::DryRun run;
  sim::Predicted simulated;
  RecordedTrace trace;
};

/// `knows_links`: the trace has the topology.
inline Recorded recorded(const Way& way, const std::string& mesh, const std::string& presets, bool knows_links = true,
                         double latency = 1e-4) {
  Recorded made{round_machine(way.progress, way.device), dry_run(mesh, presets, true, way.device), {}, {}};
  made.machine.links[0].alpha = latency;
  made.simulated = predicted(made.run, made.machine, way.engine);
  const Topology topology = knows_links ? made.machine.topology(made.run.programs->mesh()) : Topology();
  made.trace.source = "trace.json";
  made.trace.recording = record(made.run, topology, way.engine);
  made.trace.recording.cores = 16;  // enough for all
  made.trace.runs = {run_of(made.simulated)};
  return made;
}

}  // namespace tessera::whatif
