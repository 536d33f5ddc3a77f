#include "tessera/onnx/skeleton.h"

#include <optional>

#include "tessera/base/error.h"

namespace tessera::codec {
namespace {

constexpr uint32_t kModelGraph = 7, kGraphInitializer = 5, kTensorRawData = 9;
enum WireType : uint32_t { varint = 0, fixed64 = 1, delimited = 2, group_begin = 3, group_end = 4, fixed32 = 5 };

struct WireField {
  uint32_t number = 0;
  uint32_t type = 0;
  size_t begin = 0;          ///< of the tag
  size_t payload_begin = 0;  ///< of what follows the tag, and the length if there is one
  size_t end = 0;
};

/// Reads the fields of one message, which is bytes [begin, end) of a file.
class WireFieldReader {
 public:
  WireFieldReader(std::string_view file, ByteRange message, const std::string& source)
      : file_(file), at_(message.offset), end_(message.offset + message.length), source_(source) {}

  std::optional<WireField> next() {
    if (at_ == end_) return std::nullopt;
    WireField field;
    field.begin = at_;
    uint64_t tag = read_varint();
    field.number = static_cast<uint32_t>(tag >> 3);
    field.type = static_cast<uint32_t>(tag & 7);
    if (tag >> 32 || field.number == 0) damaged(field.begin);
    field.payload_begin = at_;
    if (field.type == delimited) {
      uint64_t length = read_varint();
      field.payload_begin = at_;
      skip(length);
    } else if (field.type == group_begin) {
      skip_group();
    } else {
      skip_scalar(field.type);
    }
    field.end = at_;
    return field;
  }

 private:
  [[noreturn]] void damaged(size_t at) const {
    fail("import", "'{}' is not a readable ONNX model: malformed or truncated at byte {}; export or download it again",
         source_, at);
  }

  uint64_t read_varint() {
    uint64_t value = 0;
    size_t begin = at_;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == end_) damaged(begin);
      auto byte = static_cast<unsigned char>(file_[at_++]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (!(byte & 0x80)) return value;
    }
    damaged(begin);
  }

  void skip(uint64_t length) {
    if (length > end_ - at_) damaged(at_);
    at_ += static_cast<size_t>(length);
  }

  void skip_scalar(uint32_t type) {
    if (type == varint)
      read_varint();
    else if (type == fixed64)
      skip(8);
    else if (type == fixed32)
      skip(4);
    else
      damaged(at_);
  }

  // ONNX has no groups, but an unknown field may be one.
  void skip_group() {
    for (size_t depth = 1; depth > 0;) {
      auto type = static_cast<uint32_t>(read_varint() & 7);
      if (type == group_begin)
        ++depth;
      else if (type == group_end)
        --depth;
      else if (type == delimited)
        skip(read_varint());
      else
        skip_scalar(type);
    }
  }

  std::string_view file_;
  size_t at_;
  size_t end_;
  const std::string& source_;
};

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void append_message(std::string& out, uint32_t number, const std::string& payload) {
  append_varint(out, number << 3 | delimited);
  append_varint(out, payload.size());
  out += payload;
}

class Cutter {
 public:
  Cutter(std::string_view file, const std::string& source, size_t threshold)
      : file_(file), source_(source), threshold_(threshold) {}

  Skeleton cut() {
    WireFieldReader reader(file_, {0, file_.size()}, source_);
    while (auto field = reader.next()) {
      if (field->number == kModelGraph && field->type == delimited)
        append_message(skeleton_.bytes, kModelGraph, cut_graph(*field));
      else
        copy(*field, skeleton_.bytes);
    }
    return std::move(skeleton_);
  }

 private:
  void copy(const WireField& field, std::string& out) { out += file_.substr(field.begin, field.end - field.begin); }
  static ByteRange payload(const WireField& field) { return {field.payload_begin, field.end - field.payload_begin}; }

  std::string cut_graph(const WireField& graph) {
    std::string out;
    WireFieldReader reader(file_, payload(graph), source_);
    while (auto field = reader.next()) {
      bool is_initializer = field->number == kGraphInitializer && field->type == delimited;
      if (is_initializer && field->end - field->payload_begin >= threshold_)
        append_message(out, kGraphInitializer, cut_initializer(*field));
      else
        copy(*field, out);
      initializers_ += is_initializer;
    }
    return out;
  }

  std::string cut_initializer(const WireField& tensor) {
    // A raw_data field that is given twice counts once, the last; that oddity is left to the parser.
    int raw_fields = 0;
    WireFieldReader counter(file_, payload(tensor), source_);
    while (auto field = counter.next()) raw_fields += field->number == kTensorRawData;
    std::string out;
    WireFieldReader reader(file_, payload(tensor), source_);
    while (auto field = reader.next()) {
      bool large = field->number == kTensorRawData && field->type == delimited &&
                   field->end - field->payload_begin >= threshold_;
      if (large && raw_fields == 1) {
        append_message(out, kTensorRawData, "");
        skeleton_.cut_raw[initializers_] = payload(*field);
      } else {
        copy(*field, out);
      }
    }
    return out;
  }

  std::string_view file_;
  const std::string& source_;
  size_t threshold_;
  int initializers_ = 0;
  Skeleton skeleton_;
};

}  // namespace

Skeleton cut_large_raw(std::string_view model, const std::string& source, size_t threshold) {
  return Cutter(model, source, threshold).cut();
}

}  // namespace tessera::codec
