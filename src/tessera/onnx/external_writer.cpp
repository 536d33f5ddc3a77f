#include "tessera/onnx/external_writer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/onnx/tensor_codec.h"

namespace tessera::codec {
namespace fs = std::filesystem;

ExternalWriter::ExternalWriter(fs::path folder, std::optional<size_t> threshold, std::string location,
                               const std::map<std::string, ExternalLocation>* stored)
    : folder_(std::move(folder)), threshold_(threshold), location_(std::move(location)), stored_(stored) {}

ExternalWriter::~ExternalWriter() {
  files_.clear();
  std::error_code ignored;  // a folder that is not empty, or gone, is not ours to remove
  for (auto folder = made_folders_.rbegin(); folder != made_folders_.rend(); ++folder) fs::remove(*folder, ignored);
}

const ExternalLocation* ExternalWriter::stored(const std::string& name) const {
  if (!stored_) return nullptr;
  auto found = stored_->find(name);
  return found == stored_->end() ? nullptr : &found->second;
}

void ExternalWriter::place(onnx::TensorProto& proto, const Tensor& tensor) {
  Piece piece{&proto, tensor, std::nullopt};
  ExternalRange was;
  if (threshold_) {
    proto.clear_external_data();
    was.location = location_;
  } else {
    was = external_range(proto, proto.name());
    if (was.length.value_or(tensor.bytes) == tensor.bytes) piece.fixed = was.offset;
  }
  pieces_[was.location].push_back(std::move(piece));
}

void ExternalWriter::assign() {
  for (auto& [location, pieces] : pieces_) {
    assign_file(pieces);
    for (Piece& piece : pieces) {
      if (piece.fixed) continue;
      ExternalRange range{location, piece.offset, piece.tensor.bytes};
      set_external_range(*piece.proto, range);
    }
  }
}

void ExternalWriter::assign_file(std::vector<Piece>& pieces) {
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.fixed && (!b.fixed || *a.fixed < *b.fixed); });
  // Pieces may share a range of the file, but only if they agree on it. In order of offsets, the earlier piece that
  // reaches farthest covers everything that a piece overlaps.
  const Piece* farthest = nullptr;
  uint64_t end = 0;
  for (Piece& piece : pieces) {
    if (!piece.fixed) break;
    uint64_t begin = *piece.fixed, length = piece.tensor.bytes;
    if (farthest && begin < end && length > 0) {
      size_t shared = static_cast<size_t>(std::min(end - begin, length));
      if (std::memcmp(farthest->tensor.data + (begin - farthest->offset), piece.tensor.data, shared) != 0) {
        piece.fixed.reset();
        continue;
      }
    }
    piece.offset = begin;
    if (length > 0 && begin + length > end) {
      farthest = &piece;
      end = begin + length;
    }
  }
  for (Piece& piece : pieces) {
    if (piece.fixed) continue;
    // A page for tensors worth mapping, a cache line for the small ones.
    uint64_t alignment = piece.tensor.bytes >= 4096 ? 4096 : 64;
    piece.offset = (end + alignment - 1) / alignment * alignment;
    end = piece.offset + piece.tensor.bytes;
  }
}

void ExternalWriter::make_folder(const fs::path& folder) {
  std::error_code error;
  if (folder.empty() || fs::is_directory(folder, error)) return;
  make_folder(folder.parent_path());
  if (!fs::create_directory(folder, error) && error)
    fail("export", "cannot make the folder '{}': {}; check the path and its permissions", folder.string(),
         error.message());
  made_folders_.push_back(folder);
}

namespace {
void write_zeros(AtomicFile& file, uint64_t bytes) {
  static constexpr std::array<char, 4096> kZeros = {};
  for (; bytes > 0; bytes -= std::min<uint64_t>(bytes, kZeros.size()))
    file.write(kZeros.data(), std::min<uint64_t>(bytes, kZeros.size()));
}
}  // namespace

void ExternalWriter::write() {
  for (auto& [location, pieces] : pieces_) {
    fs::path path = resolve_location({folder_}, location, pieces.front().proto->name(), "export");
    if (fs::path(location).has_parent_path()) make_folder(path.parent_path());
    files_.push_back(std::make_unique<AtomicFile>(path));
    AtomicFile& file = *files_.back();
    std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
    for (const Piece& piece : pieces) {
      if (piece.offset > file.position()) write_zeros(file, piece.offset - file.position());
      // A range that overlaps an earlier piece equals it, and is already written.
      size_t shared = std::min<size_t>(file.position() - piece.offset, piece.tensor.bytes);
      file.write(piece.tensor.data + shared, piece.tensor.bytes - shared);
    }
    file.sync();
  }
}

void ExternalWriter::commit() {
  for (auto& file : files_) file->commit();
  made_folders_.clear();
}

}  // namespace tessera::codec
