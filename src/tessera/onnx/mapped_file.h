#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string_view>

namespace tessera {

/// A regular file mapped read-only into memory; pages are read when touched.
class MappedFile {
 public:
  /// Throws a user error from `stage` if the path is missing, unreadable or not a regular file.
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path, std::string_view stage);
  /// The same interface to bytes of our own.
  static std::shared_ptr<const MappedFile> copy_of(std::string_view bytes);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view view() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  MappedFile(const std::byte* data, size_t size, bool mapped) : data_(data), size_(size), mapped_(mapped) {}

  const std::byte* data_;
  size_t size_;
  bool mapped_;  ///< else on the heap
};

}  // namespace tessera
