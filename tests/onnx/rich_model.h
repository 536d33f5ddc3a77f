#pragma once

#include "support.h"

namespace tessera::test {

/// A valid model that uses every message of the format, and the odd ways in which writers fill them.
onnx::ModelProto rich_model();

/// Gives every message in `message`, itself included, fields that no standard knows.
void add_unknown_fields(google::protobuf::Message& message);

}  // namespace tessera::test
