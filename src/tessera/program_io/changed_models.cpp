#include "tessera/check.h"
#include "tessera/program_io/manifest.h"

namespace tessera {
inline namespace v1 {

std::vector<std::string> changed_models(const std::filesystem::path& folder) {
  std::vector<std::string> changed;
  program_io::Manifest manifest = program_io::read_manifest(folder);
  for (const program_io::FileStamp* stamp : manifest.model_stamps())
    if (program_io::stamp_of(folder, stamp->file) != *stamp) changed.push_back(stamp->file);
  return changed;
}

}  // namespace v1
}  // namespace tessera
