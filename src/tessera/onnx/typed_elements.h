#pragma once

#include <optional>

#include "tessera/ir/tensor.h"
#include "tessera/onnx.pb.h"

// The typed fields of TensorProto (float_data, int32_data, ...), where a tensor's elements are written one by one.
namespace tessera::codec {

/// Elements in all typed fields together, as entries.
size_t typed_entries(const onnx::TensorProto& proto);
void clear_typed(onnx::TensorProto& proto);

/// Reads the typed field of `dtype` into a dense tensor; types below 8 bits are packed as in raw_data. A user error
/// naming the tensor if the field does not hold as many entries as `dims` asks for.
Tensor read_typed(const onnx::TensorProto& proto, DType dtype, const Dims& dims, const std::string& name);

/// The same, but nullopt if the number of entries is wrong.
std::optional<Tensor> try_read_typed(const onnx::TensorProto& proto, DType dtype, const Dims& dims);

/// Fills the typed field of the tensor's type, which must be empty.
void write_typed(const Tensor& tensor, onnx::TensorProto& proto);

}  // namespace tessera::codec
