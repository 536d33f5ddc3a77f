#include "tessera/onnx/external_files.h"

#include "tessera/base/error.h"
#include "tessera/base/path_within.h"

namespace tessera::codec {
namespace fs = std::filesystem;

fs::path resolve_location(const std::vector<fs::path>& folders, const std::string& location, const std::string& tensor,
                          std::string_view stage) {
  fs::path relative(location);
  if (location.empty() || location.find('\0') != std::string::npos)
    fail(stage, "tensor '{}': the external data has no usable location; it must name a file", tensor);
  if (relative.is_absolute())
    fail(stage, "tensor '{}': the external data location '{}' is absolute; it must be relative to the model's folder",
         tensor, location);
  std::optional<fs::path> full;
  try {
    full = path_within(folders, relative);
  } catch (const fs::filesystem_error& error) {
    fail(stage, "tensor '{}': cannot examine '{}': {}", tensor, location, error.code().message());
  }
  if (!full)
    fail(stage, "tensor '{}': the external data location '{}' leads out of the model's folder; move the file into it",
         tensor, location);
  return *full;
}

ExternalFiles ExternalFiles::beside(const fs::path& file) {
  std::error_code error;
  const fs::path target = fs::canonical(file, error);
  return ExternalFiles(error ? std::vector{file.parent_path()} : std::vector{file.parent_path(), target.parent_path()});
}

MappedRange ExternalFiles::read(const ExternalRange& range, const std::string& tensor) {
  auto found = opened_.find(range.location);
  if (found == opened_.end()) {
    fs::path path = resolve_location(folders_, range.location, tensor, "import");
    std::error_code error;
    if (!fs::exists(path, error))
      fail("import", "tensor '{}': its external data file '{}' is missing; put it at '{}'", tensor, range.location,
           path.string());
    found = opened_.emplace(range.location, MappedFile::open(path, "import")).first;
  }
  const auto& file = found->second;
  uint64_t size = file->size();
  uint64_t length = range.length.value_or(range.offset <= size ? size - range.offset : 0);
  if (range.offset > size || length > size - range.offset)
    fail("import",
         "tensor '{}': its external data are {} bytes at offset {} of '{}', which has only {} bytes; the file is "
         "truncated or belongs to another model",
         tensor, length, range.offset, range.location, size);
  return {file, {file->data() + range.offset, static_cast<size_t>(length)}};
}

void ExternalFiles::append_identities(std::vector<uint64_t>& identities) const {
  for (const auto& [location, file] : opened_) identities.push_back(file->identity());
}

}  // namespace tessera::codec
