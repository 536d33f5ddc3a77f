#include "tessera/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <set>

#include "tessera/base/error.h"
#include "tessera/io/crc32.h"
#include "tessera/mesh/box.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<const MappedFile> map_file(const fs::path& path) {
  try {
    return MappedFile::open(path, "checkpoint");
  } catch (const Error& error) {
    constexpr std::string_view kStage = "[checkpoint] ";
    throw Defect(std::string(error.what()).substr(kStage.size()));
  }
}

// A file that another run has written, whatever its checksums say, is not part of this one's checkpoint.
void require_run(const MappedFile& file, const fs::path& path, const Facts& facts) {
  const std::string header = rank_header(facts.run);
  if (file.size() >= header.size() && !file.view().starts_with(header))
    throw Defect(fmt::format("{}: belongs to another run than '{}', which wrote {} (or its first bytes are damaged)",
                             path.string(), facts.run, kManifestFile));
}

std::string text_of(const TensorType& tensor) {
  return fmt::format("{} [{}]", name_of(tensor.dtype), fmt::join(tensor.dims, ", "));
}

}  // namespace

std::vector<int64_t> steps_in(const fs::path& folder) {
  std::vector<int64_t> steps;
  std::error_code ignored;  // a folder that is missing has none
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (const auto step = step_of(entry.path().filename().string()); step && entry.is_directory(ignored))
      steps.push_back(*step);
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

struct Checkpoint::Verified {
  std::mutex mutex;
  std::set<const StoredPiece*> pieces;
};

Checkpoint Checkpoint::load(const fs::path& path, Verify verify) {
  Checkpoint checkpoint;
  checkpoint.path_ = path;
  checkpoint.verified_ = std::make_shared<Verified>();
  const fs::path table = path / kManifestFile;
  checkpoint.manifest_ = parse_manifest(map_file(table)->view(), table.string());
  for (const auto& [name, tensor] : checkpoint.manifest_.tensors) {
    if (const auto wrong = wrong_cover(tensor))
      throw Defect(fmt::format("{}: tensor '{}': {}", table.string(), name, *wrong));
    for (const StoredPiece& piece : tensor.pieces) {
      auto& file = checkpoint.files_[piece.file];
      if (!file) {
        file = map_file(path / piece.file);
        require_run(*file, path / piece.file, checkpoint.facts());
      }
      if (piece.offset + piece.bytes > file->size())
        throw Defect(fmt::format("{}: is truncated: it has {} bytes, but tensor '{}' reaches to {}",
                                 (path / piece.file).string(), file->size(), name, piece.offset + piece.bytes));
      if (verify == Verify::all) checkpoint.verify(name, piece);
    }
  }
  return checkpoint;
}

Checkpoint Checkpoint::open(const fs::path& path, Verify verify) {
  try {
    return load(path, verify);
  } catch (const Defect& defect) {
    fs::path full = fs::absolute(path).lexically_normal();
    if (!full.has_filename()) full = full.parent_path();
    for (int64_t step : steps_in(full.parent_path())) {
      if (folder_name(step) == full.filename()) continue;
      try {
        const Checkpoint other = load(full.parent_path() / folder_name(step), Verify::all);
        fail("checkpoint", "{}; '{}' is good, resume from it", defect.what(), other.path().string());
      } catch (const Defect&) {
        continue;
      }
    }
    fail("checkpoint", "{}; no other checkpoint in its folder is good", defect.what());
  }
}

std::optional<Checkpoint> Checkpoint::latest(const fs::path& folder, std::vector<std::string>& passed_over,
                                             Verify verify) {
  const std::vector<int64_t> steps = steps_in(folder);
  for (int64_t step : steps) {
    try {
      return load(folder / folder_name(step), verify);
    } catch (const UnknownVersion& later) {
      fail("checkpoint", "{}", later.what());
    } catch (const Defect& defect) {
      passed_over.push_back(defect.what());
    }
  }
  if (steps.empty()) return std::nullopt;
  fail("checkpoint", "{}: none of its {} checkpoints is good: {}", folder.string(), steps.size(),
       fmt::join(passed_over, "; "));
}

std::vector<TensorType> Checkpoint::tensors() const {
  std::vector<TensorType> all;
  for (const auto& [name, tensor] : manifest_.tensors) all.push_back({name, tensor.dtype, tensor.dims});
  return all;
}

void Checkpoint::require_model(const std::string& model, std::span<const TensorType> tensors) const {
  std::set<std::string_view> known;
  for (const TensorType& tensor : tensors) {
    known.insert(tensor.name);
    const auto found = manifest_.tensors.find(tensor.name);
    if (found == manifest_.tensors.end())
      fail("checkpoint",
           "{}: was saved by another model: it has no '{}', {} in this one; name a checkpoint of this model",
           path_.string(), tensor.name, text_of(tensor));
    const TensorType stored{tensor.name, found->second.dtype, found->second.dims};
    if (stored != tensor)
      fail("checkpoint",
           "{}: was saved by another model: '{}' is {} there, but {} in this one; name a checkpoint of this model",
           path_.string(), tensor.name, text_of(stored), text_of(tensor));
  }
  for (const auto& [name, tensor] : manifest_.tensors)
    if (!known.contains(name))
      fail("checkpoint",
           "{}: was saved by another model: it has '{}', which this one lacks; name a checkpoint of this "
           "model",
           path_.string(), name);
  if (model != facts().model)
    fail("checkpoint",
         "{}: was saved by another model or training step with tensors of the same names and shapes (fingerprint {}, "
         "this one's is {}); name a checkpoint of this one",
         path_.string(), facts().model, model);
}

void Checkpoint::verify(const std::string& name, const StoredPiece& piece) const {
  {
    const std::lock_guard lock(verified_->mutex);
    if (verified_->pieces.contains(&piece)) return;
  }
  if (update_crc32(0, files_.at(piece.file)->data() + piece.offset, piece.bytes) != piece.crc32)
    throw Defect(fmt::format("{}: is damaged: the checksum of tensor '{}' at bytes {} to {} does not match",
                             (path_ / piece.file).string(), name, piece.offset, piece.offset + piece.bytes));
  const std::lock_guard lock(verified_->mutex);
  verified_->pieces.insert(&piece);
}

void Checkpoint::read(const std::string& name, const Region& region, void* to) const {
  const auto found = manifest_.tensors.find(name);
  check(found != manifest_.tensors.end(), "a tensor that is read is in the checkpoint");
  const StoredTensor& tensor = found->second;
  check(region.begin.size() == tensor.dims.size() && common(region, Region::whole(tensor.dims)) == region,
        "a region that is read lies in its tensor");
  const auto within = [](const Region& part, const Region& all) {  // a box of the dense array of `all`
    Box box{all.extent, part.begin, part.extent};
    for (size_t d = 0; d < all.begin.size(); ++d) box.offsets[d] -= all.begin[d];
    return box;
  };
  for (const StoredPiece& piece : tensor.pieces) {
    const Region both = common(region, piece.region);
    if (both.count() == 0) continue;
    try {
      verify(name, piece);
    } catch (const Defect& defect) {
      fail("checkpoint", "{}; resume from an earlier checkpoint", defect.what());
    }
    copy_box(to, within(both, region), files_.at(piece.file)->data() + piece.offset, within(both, piece.region),
             static_cast<size_t>(bits_of(tensor.dtype)) / 8);
  }
}

Tensor Checkpoint::read(const std::string& name, const Region& region) const {
  const auto found = manifest_.tensors.find(name);
  check(found != manifest_.tensors.end(), "a tensor that is read is in the checkpoint");
  Tensor tensor = Tensor::uninitialized(found->second.dtype, region.extent);
  read(name, region, tensor.mutable_data());
  return tensor;
}

Tensor Checkpoint::read(const std::string& name) const {
  const auto found = manifest_.tensors.find(name);
  check(found != manifest_.tensors.end(), "a tensor that is read is in the checkpoint");
  return read(name, Region::whole(found->second.dims));
}

}  // namespace tessera::checkpoint
