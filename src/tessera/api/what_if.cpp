#include "tessera/what_if.h"

#include "tessera/api/impl.h"
#include "tessera/whatif/answer.h"

namespace tessera {
inline namespace v1 {

struct RunTrace::Impl : whatif::RecordedTrace {};

std::string recorded_program(const Program& program, const SymbolSizes& sizes, const SessionOptions& options,
                             const Topology& topology) {
  runtime::DryRun run = program.impl().dry_run({sizes.begin(), sizes.end()});
  run.options.device = options.device;
  run.options.threads_per_rank = options.threads_per_rank;
  run.options.overlap = options.overlap;
  run.options.prefetch = options.prefetch;
  std::string engine = "threads";
  if (options.connection) {
    engine = options.connection->launch().engine;
    run.options.machine_ranks = options.connection->launch().local_size;
  }
  return whatif::to_json(whatif::record(run, topology, engine))
      .dump(-1, ' ', false, whatif::Json::error_handler_t::replace);
}

RunTrace RunTrace::read(const std::filesystem::path& path) {
  return RunTrace(std::make_shared<const Impl>(Impl{whatif::read_trace(path)}));
}

const Mesh& RunTrace::mesh() const {
  return impl().recording.mesh;
}

const Topology& RunTrace::topology() const {
  return impl().recording.topology;
}

SymbolSizes RunTrace::sizes() const {
  const Symbols& sizes = impl().recording.sizes;
  return {sizes.begin(), sizes.end()};
}

bool RunTrace::overlap() const {
  return impl().recording.overlap;
}

int64_t RunTrace::runs() const {
  return static_cast<int64_t>(impl().runs.size());
}

double RunTrace::step_ms() const {
  return impl().runs[impl().median_run()].seconds * 1e3;
}

std::string RunTrace::command() const {
  return impl().command.dump();
}

WhatIf what_if(const RunTrace& trace, const WhatIfChanges& changes) {
  return whatif::answer(trace.impl(), changes);
}

WhatIf what_if(const RunTrace& trace, const WhatIfChanges& changes, const OtherProgram& other) {
  runtime::DryRun run = other.program.impl().dry_run({other.sizes.begin(), other.sizes.end()});
  run.options.device = trace.impl().recording.device;
  run.options.threads_per_rank = trace.impl().recording.conditions.threads;
  run.options.overlap = trace.overlap();
  const Mesh& mesh = other.program.mesh();
  const bool asks_machine = other.topology.empty() && other.machine && !other.machine->links.empty() && mesh.size() > 1;
  return whatif::answer(trace.impl(), changes, run, other.machine,
                        asks_machine ? other.machine->topology(mesh) : other.topology);
}

}  // namespace v1
}  // namespace tessera
