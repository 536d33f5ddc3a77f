#include "tessera/io/event_file.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>

#include "tessera/base/error.h"

namespace tessera {
namespace {

constexpr std::array<uint32_t, 256> kCastagnoli = [] {
  constexpr uint32_t kPolynomial = 0x82f63b78;  // bits in the order of the register
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc % 2 ? crc / 2 ^ kPolynomial : crc / 2;
    table[i] = crc;
  }
  return table;
}();

// Checksums of bytes that hold checksums are weak; so those in the file are turned and shifted.
uint32_t masked_crc(const void* data, size_t bytes) {
  constexpr int kTurn = 15;
  constexpr uint32_t kShift = 0xa282ead8;
  return std::rotr(update_crc32c(0, data, bytes), kTurn) + kShift;
}

template <typename T>
std::string bytes_of(T number) {
  static_assert(std::endian::native == std::endian::little);
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

// A message of protobuf's wire format.
class Message {
 public:
  Message& number(int field, uint64_t value) {
    tag(field, 0);
    varint(value);
    return *this;
  }
  Message& real(int field, double value) {
    tag(field, 1);
    bytes_ += bytes_of(value);
    return *this;
  }
  Message& real32(int field, float value) {
    tag(field, 5);
    bytes_ += bytes_of(value);
    return *this;
  }
  Message& text(int field, std::string_view value) {
    tag(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return text(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  void tag(int field, int type) { varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type)); }
  void varint(uint64_t value) {
    for (; value >= 128; value /= 128) bytes_ += static_cast<char>(value % 128 + 128);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// The fields of tensorflow/core/util/event.proto that are used here.
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
constexpr int kSummaryValue = 1, kTag = 1, kSimpleValue = 2, kStatus = 1;
constexpr uint64_t kStart = 1;  // of SessionLog.status

Message event_at(int64_t step) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  Message event;
  event.real(kWallTime, now.count());
  if (step != 0) event.number(kStep, static_cast<uint64_t>(step));
  return event;
}

std::filesystem::path new_file_in(const std::filesystem::path& folder) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return folder / fmt::format("events.out.tfevents.{:010}.{}.{}", seconds, host.data(), getpid());
}

}  // namespace

uint32_t update_crc32c(uint32_t crc, const void* data, size_t bytes) {
  crc = ~crc;
  for (const auto* byte = static_cast<const unsigned char*>(data); bytes > 0; ++byte, --bytes)
    crc = kCastagnoli[(crc ^ *byte) % 256] ^ crc >> 8;
  return ~crc;
}

EventFile::EventFile(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::filesystem::path path = new_file_in(folder);
  file_ = std::fopen(path.c_str(), "ab");
  if (!file_)
    fail("write", "{}: {}; name a folder that can be written for the events", path.string(),
         std::generic_category().message(errno));
  write_record(event_at(0).text(kFileVersion, "brain.Event:2").bytes());
}

EventFile::~EventFile() {
  std::fclose(file_);
}

void EventFile::begin_at(int64_t step) {
  write_record(event_at(step).message(kSessionLog, Message().number(kStatus, kStart)).bytes());
}

void EventFile::add(int64_t step, const std::vector<std::pair<std::string, double>>& scalars) {
  Message summary;
  for (const auto& [tag, value] : scalars)
    summary.message(kSummaryValue, Message().text(kTag, tag).real32(kSimpleValue, static_cast<float>(value)));
  write_record(event_at(step).message(kSummary, summary).bytes());
}

void EventFile::write_record(std::string_view data) {
  const std::string length = bytes_of(static_cast<uint64_t>(data.size()));
  const std::string record = length + bytes_of(masked_crc(length.data(), length.size())) + std::string(data) +
                             bytes_of(masked_crc(data.data(), data.size()));
  good_ &= std::fwrite(record.data(), 1, record.size(), file_) == record.size() && std::fflush(file_) == 0;
}

}  // namespace tessera
