#include "tessera/check.h"

#include "tessera/api/impl.h"
#include "tessera/io/atomic_file.h"
#include "tessera/program_io/manifest.h"
#include "tessera/program_io/misfit.h"
#include "tessera/proof/prove.h"

namespace tessera {
inline namespace v1 {

CheckReport check_program(const Program& program) {
  return proof::prove(*program.impl().programs);
}

CheckFinding fault_of(const Error& error) {
  const auto* misfit = dynamic_cast<const program_io::Misfit*>(&error);
  return misfit ? misfit->found() : CheckFinding{"program", error.what(), {}};
}

CheckReport accept_changed_models(const std::filesystem::path& folder) {
  program_io::Manifest manifest = program_io::read_manifest(folder);
  // Stamps are taken before the models are read, so that later changes are not accepted.
  bool changed = false;
  for (program_io::FileStamp* stamp : manifest.model_stamps()) {
    program_io::FileStamp now = program_io::stamp_of(folder, stamp->file);
    changed |= now != *stamp;
    *stamp = std::move(now);
  }
  CheckReport report;
  try {
    report = check_program(Program::read(folder, true));
  } catch (const Error& error) {
    if (!changed || error.kind() != ErrorKind::user) throw;
    report.findings.push_back(fault_of(error));
  }
  if (changed && report.good()) write_file(folder / program_io::kManifestFile, manifest.to_json());
  return report;
}

}  // namespace v1
}  // namespace tessera
