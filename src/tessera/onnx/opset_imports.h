#pragma once

#include <map>
#include <string>

#include "tessera/onnx.pb.h"

namespace tessera::codec {

using OpsetImports = google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>;

/// Domain → version; "ai.onnx" is "". A user error if a domain is imported in two versions.
std::map<std::string, int64_t> opset_map(const OpsetImports& imports, const std::string& where);

/// Updates the list to the versions in the map; entries that agree stay as and where they are.
void put_opsets(const std::map<std::string, int64_t>& versions, OpsetImports& imports);

}  // namespace tessera::codec
