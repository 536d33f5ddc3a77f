#include "tessera/ir/text_header.h"

#include <cstdint>

#include "tessera/base/error.h"

namespace tessera::text {
namespace {

// ModelProto's and StringStringEntryProto's field numbers.
constexpr uint64_t kProducerName = 2, kProducerVersion = 3, kDomain = 4, kModelVersion = 5, kDocString = 6,
                   kMetadata = 14;
constexpr uint64_t kKey = 1, kValue = 2;
constexpr uint64_t kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;  // wire types

// Walks the fields of a serialized message: the protobuf wire format, of which this needs little.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : bytes_(bytes) {}

  uint64_t number = 0, integer = 0;
  std::string_view text;

  bool next() {
    if (bytes_.empty()) return false;
    uint64_t tag = varint();
    number = tag >> 3;
    integer = 0;
    text = {};
    switch (tag & 7) {
      case kVarint:
        integer = varint();
        return true;
      case kFixed64:
        take(8);
        return true;
      case kBytes:
        text = take(varint());
        return true;
      case kFixed32:
        take(4);
        return true;
      default:
        damaged();
    }
  }

 private:
  [[noreturn]] static void damaged() {
    fail("text", "the file's fields outside of the graph are not a protobuf message; import the model again");
  }
  std::string_view take(uint64_t count) {
    if (count > bytes_.size()) damaged();
    std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    damaged();
  }

  std::string_view bytes_;
};

void append_varint(std::string& bytes, uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  bytes += static_cast<char>(value);
}

void append_text(std::string& bytes, uint64_t number, std::string_view text) {
  append_varint(bytes, number << 3 | kBytes);
  append_varint(bytes, text.size());
  bytes += text;
}

}  // namespace

HeaderExtras parse_extras(std::string_view proto) {
  HeaderExtras extras;
  for (Fields field(proto); field.next();) {
    switch (field.number) {
      case kProducerName:
        extras.producer_name = field.text;
        break;
      case kProducerVersion:
        extras.producer_version = field.text;
        break;
      case kDomain:
        extras.domain = field.text;
        break;
      case kModelVersion:
        extras.model_version = static_cast<int64_t>(field.integer);
        break;
      case kDocString:
        extras.doc_string = field.text;
        break;
      case kMetadata: {
        auto& [key, value] = extras.metadata.emplace_back();
        for (Fields entry(field.text); entry.next();) {
          if (entry.number == kKey) key = entry.text;
          if (entry.number == kValue) value = entry.text;
        }
        break;
      }
      default:
        break;
    }
  }
  return extras;
}

std::string serialize_extras(const HeaderExtras& extras) {
  std::string bytes;
  auto text = [&](uint64_t number, std::string_view value) {
    if (!value.empty()) append_text(bytes, number, value);
  };
  text(kProducerName, extras.producer_name);
  text(kProducerVersion, extras.producer_version);
  text(kDomain, extras.domain);
  if (extras.model_version) {
    append_varint(bytes, kModelVersion << 3 | kVarint);
    append_varint(bytes, static_cast<uint64_t>(extras.model_version));
  }
  text(kDocString, extras.doc_string);
  for (const auto& [key, value] : extras.metadata) {
    std::string entry;
    append_text(entry, kKey, key);
    append_text(entry, kValue, value);
    append_text(bytes, kMetadata, entry);
  }
  return bytes;
}

}  // namespace tessera::text
