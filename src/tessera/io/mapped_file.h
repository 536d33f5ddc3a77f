#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "tessera/ir/tensor.h"

namespace tessera {

/// A regular file mapped read-only into memory; pages are read when touched.
class MappedFile {
 public:
  /// Throws a user error from `stage` if the path is missing, unreadable or not a regular file.
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path, std::string_view stage);
  /// The same interface to a copy of bytes in memory.
  static std::shared_ptr<const MappedFile> copy_of(std::string_view bytes);
  /// Whether the tensor's bytes are pages of a file, which the system can drop when it needs memory.
  static bool holds(const Tensor& tensor);
  /// Releases the file pages that contain `count` elements of a tensor from `first` on, or from which these are made:
  /// for callers that have copied what they need. A later access reads the pages again.
  static void let_go(const Tensor& tensor, int64_t first, int64_t count);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  /// A hash that identifies the file on this machine as it was when opened: of its device, inode, size, and times of
  /// change. Equal identities mean one file, whose pages all processes share. 0 for a copy in memory.
  uint64_t identity() const { return identity_; }
  std::string_view view() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  /// By its type, the owner of a tensor is known for a file (std::get_deleter).
  struct Delete {
    void operator()(const MappedFile* file) const { delete file; }
  };

  MappedFile(const std::byte* data, size_t size, bool mapped, uint64_t identity)
      : data_(data), size_(size), mapped_(mapped), identity_(identity) {}

  const std::byte* data_;
  size_t size_;
  bool mapped_;  ///< else on the heap
  uint64_t identity_;
};

}  // namespace tessera
