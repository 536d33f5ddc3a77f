#pragma once

#include "tessera/ir/graph.h"
#include "tessera/onnx.pb.h"

namespace tessera::codec {

/// The tensor type that a ValueInfoProto states; unknown if it states none, or a sequence, map, optional or sparse
/// tensor. A dimension without a usable extent is the symbol "NAME_dim_I", with the message's own name.
TensorType type_of(const onnx::ValueInfoProto& info);

/// Whether `said` can be the type of data with type `actual`; symbols and unknowns fit any extent.
bool admits(const TensorType& said, const TensorType& actual);

/// Writes `type` into `info` where it differs from the stated type; denotations and unchanged dimensions stay as they
/// were written. A type without element type changes nothing.
void put_type(const TensorType& type, onnx::ValueInfoProto& info);

/// The ValueInfoProto of a value, made from its `extra` and its present name and type.
void put_info(const Value& value, const std::string& name, onnx::ValueInfoProto& info);

}  // namespace tessera::codec
