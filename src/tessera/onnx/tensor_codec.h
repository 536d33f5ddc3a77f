#pragma once

#include <optional>

#include "onnx.pb.h"
#include "tessera/ir/tensor.h"
#include "tessera/onnx/external_files.h"

// TensorProto ↔ Tensor with nothing lost: what is left of a message once its tensor has been taken out (the "rest")
// tells how to put it back. The rest keeps
//   - data_location EXTERNAL and external_data, if the elements were in another file;
//   - data_type, if they were in typed fields; and these fields too, if writing the elements anew would differ;
//   - otherwise nothing about the elements: they were, and will be, in raw_data.
namespace tessera::codec {

class ExternalWriter;

/// Takes type, extents and elements out of `proto`, which becomes the rest; its name stays. `raw` stands in for
/// raw_data where that was left in the file. Elements in a file are viewed as they lie (ir/aligned.h). User errors name
/// `name`.
Tensor take_tensor(onnx::TensorProto& proto, ExternalFiles& files, const std::string& name,
                   const std::optional<MappedRange>& raw = std::nullopt);

/// The inverse. Without a writer for external data, elements that were in another file go into raw_data.
void put_tensor(const Tensor& tensor, onnx::TensorProto& rest, ExternalWriter* external);

/// A message for elements that are in a file which is not ours to write.
void refer_to_stored(const Tensor& tensor, const ExternalRange& range, onnx::TensorProto& proto);

/// Where a tensor with data_location EXTERNAL says its elements are.
ExternalRange external_range(const onnx::TensorProto& proto, const std::string& name);
void set_external_range(onnx::TensorProto& proto, const ExternalRange& range);

/// The dense tensor that a sparse one stands for (elements not listed are zero).
Tensor densify(const onnx::SparseTensorProto& sparse, ExternalFiles& files, const std::string& name);

/// Messages that are kept whole may hold tensors whose elements are in other files. On import these are read into
/// raw_data, beside the external_data entries; on export they go back to files, or stay inline without a writer.
void load_external_within(google::protobuf::Message& message, ExternalFiles& files);
void store_external_within(google::protobuf::Message& message, ExternalWriter* external);

}  // namespace tessera::codec
