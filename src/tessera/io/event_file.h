#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

/// Continues a CRC-32C (Castagnoli, RFC 3720, as in iSCSI) over more bytes; starts from 0.
uint32_t update_crc32c(uint32_t crc, const void* data, size_t bytes);

/// Scalars over steps as TensorBoard reads them: a file "events.out.tfevents.SECONDS.HOST.PROCESS" of records. A record
/// is the length of its data (8 bytes), the masked CRC-32C of the length, the data, and their masked CRC-32C; data are
/// a protobuf message `Event`. All numbers are little-endian.
class EventFile {
 public:
  /// Makes the folder if it is missing, and a new file in it. Throws a user error if that cannot be written.
  explicit EventFile(const std::filesystem::path& folder);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  /// Marks the data of older files in the folder from this step on as invalid.
  void begin_at(int64_t step);
  /// Scalars by their tags, "train/loss". The file can be read when this returns.
  void add(int64_t step, const std::vector<std::pair<std::string, double>>& scalars);
  /// Whether everything has been written so far; a full disk does not throw.
  bool good() const { return good_; }

 private:
  void write_record(std::string_view data);

  std::FILE* file_ = nullptr;
  bool good_ = true;
};

}  // namespace tessera
