#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::text {

/// The parts of a model's header that the IR lacks: fields of ModelProto, which OnnxModel::extra keeps serialized.
struct HeaderExtras {
  std::string producer_name, producer_version, domain, doc_string;
  int64_t model_version = 0;
  std::vector<std::pair<std::string, std::string>> metadata;
};

/// Reads them from a serialized ModelProto and skips other fields. Bytes that are not a protobuf message are a user
/// error.
HeaderExtras parse_extras(std::string_view proto);
/// The serialized ModelProto with these fields only.
std::string serialize_extras(const HeaderExtras& extras);

}  // namespace tessera::text
