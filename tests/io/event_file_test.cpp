// Events are read back as TensorBoard reads them: by records, checksums and protobuf's wire format.
#include "tessera/io/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "io/temporary_folder.h"
#include "tessera/error.h"

namespace tessera {
namespace {

using testing::HasSubstr;
using testing_io::contents;
using testing_io::TemporaryFolder;

// Bit by bit, unlike the table of the writer.
uint32_t slow_crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78 : 0);
  }
  return ~crc;
}

uint32_t unmasked(uint32_t masked) {
  return std::rotl(masked - 0xa282ead8u, 15);
}

template <typename T>
T number_at(std::string_view bytes, size_t at) {
  T number;
  std::memcpy(&number, bytes.substr(at, sizeof number).data(), sizeof number);
  return number;
}

std::vector<std::string> records_of(const std::string& bytes) {
  std::vector<std::string> records;
  for (size_t at = 0; at < bytes.size();) {
    const auto length = number_at<uint64_t>(bytes, at);
    EXPECT_EQ(unmasked(number_at<uint32_t>(bytes, at + 8)), slow_crc32c(bytes.substr(at, 8)));
    records.push_back(bytes.substr(at + 12, length));
    EXPECT_EQ(unmasked(number_at<uint32_t>(bytes, at + 12 + length)), slow_crc32c(records.back()));
    at += length + 16;
  }
  return records;
}

/// A field of a message: a number, or bytes.
struct Field {
  uint64_t number = 0;
  std::string bytes;
};

std::multimap<int, Field> fields_of(const std::string& message) {
  std::multimap<int, Field> fields;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(at++));
      value |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  while (at < message.size()) {
    const uint64_t tag = varint();
    Field field;
    size_t bytes = 0;
    if (tag % 8 == 0) field.number = varint();
    if (tag % 8 == 1) bytes = 8;
    if (tag % 8 == 2) bytes = varint();
    if (tag % 8 == 5) bytes = 4;
    field.bytes = message.substr(at, bytes);
    at += bytes;
    fields.emplace(static_cast<int>(tag / 8), field);
  }
  return fields;
}

const Field& only(const std::multimap<int, Field>& fields, int number) {
  EXPECT_EQ(fields.count(number), 1u) << number;
  return fields.find(number)->second;
}

std::string only_file(const TemporaryFolder& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "events")) files.push_back(entry.path());
  EXPECT_EQ(files.size(), 1u);
  EXPECT_THAT(files.at(0).filename().string(), HasSubstr("events.out.tfevents."));
  return contents(files.at(0));
}

TEST(EventFiles, hold_scalars_that_readers_find_with_their_checksums) {
  const TemporaryFolder folder;
  EventFile file(folder / "events");
  file.begin_at(7);
  file.add(300, {{"train/loss", 2.5}, {"train/rate", 1e-4}});
  file.add(301, {{"train/loss", std::numeric_limits<double>::quiet_NaN()}});
  EXPECT_TRUE(file.good());
  const std::vector<std::string> records = records_of(only_file(folder));  // while the file is open
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(only(fields_of(records[0]), 3).bytes, "brain.Event:2");
  for (const std::string& record : records)
    EXPECT_GT(number_at<double>(only(fields_of(record), 1).bytes, 0), 1.7e9) << "seconds since 1970";
  EXPECT_EQ(only(fields_of(records[1]), 2).number, 7u);
  EXPECT_EQ(only(fields_of(only(fields_of(records[1]), 7).bytes), 1).number, 1u) << "SessionLog.START";
  EXPECT_EQ(only(fields_of(records[2]), 2).number, 300u);
  std::map<std::string, float> scalars;
  for (const auto& [number, value] : fields_of(only(fields_of(records[2]), 5).bytes)) {
    EXPECT_EQ(number, 1);
    scalars[only(fields_of(value.bytes), 1).bytes] = number_at<float>(only(fields_of(value.bytes), 2).bytes, 0);
  }
  EXPECT_EQ(scalars, (std::map<std::string, float>{{"train/loss", 2.5F}, {"train/rate", 1e-4F}}));
  const std::string lost = only(fields_of(only(fields_of(records[3]), 5).bytes), 1).bytes;
  EXPECT_TRUE(std::isnan(number_at<float>(only(fields_of(lost), 2).bytes, 0)));
}

TEST(EventFiles, take_a_known_checksum) {
  EXPECT_EQ(update_crc32c(0, "123456789", 9), 0xe3069283u);
  EXPECT_EQ(update_crc32c(update_crc32c(0, "1234", 4), "56789", 5), 0xe3069283u);
}

TEST(EventFiles, say_that_a_folder_cannot_be_written) {
  const TemporaryFolder folder;
  testing_io::put(folder / "file", "");
  try {
    EventFile file(folder / "file");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    EXPECT_THAT(error.what(), HasSubstr("name a folder"));
  }
}

}  // namespace
}  // namespace tessera
