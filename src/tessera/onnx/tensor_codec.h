#pragma once

#include <optional>

#include "tessera/ir/tensor.h"
#include "tessera/onnx.pb.h"
#include "tessera/onnx/external_files.h"

// TensorProto ↔ Tensor with nothing lost. The rest of a message, after its tensor has been taken out, says how to put
// the tensor back. The rest keeps
//   - data_location EXTERNAL and external_data, if the elements were in another file;
//   - data_type, if they were in typed fields; and these fields too, if writing the elements anew would differ;
//   - otherwise nothing about the elements: they were, and will be, in raw_data.
namespace tessera::codec {

class ExternalWriter;

/// Takes type, extents and elements out of `proto`, which becomes the rest; its name stays. `raw` replaces raw_data
/// that was left in the file. Elements in a file become a view, aligned or not (ir/aligned.h). User errors name `name`.
Tensor take_tensor(onnx::TensorProto& proto, ExternalFiles& files, const std::string& name,
                   const std::optional<MappedRange>& raw = std::nullopt);

/// The inverse. Without a writer for external data, elements that were in another file go into raw_data.
void put_tensor(const Tensor& tensor, onnx::TensorProto& rest, ExternalWriter* external);

/// Makes a message for elements in a file that the caller writes.
void refer_to_stored(const Tensor& tensor, const ExternalRange& range, onnx::TensorProto& proto);

/// The place of the elements of a tensor with data_location EXTERNAL.
ExternalRange external_range(const onnx::TensorProto& proto, const std::string& name);
void set_external_range(onnx::TensorProto& proto, const ExternalRange& range);

/// The dense tensor that a sparse one stands for (elements not listed are zero).
Tensor densify(const onnx::SparseTensorProto& sparse, ExternalFiles& files, const std::string& name);

/// Messages that are kept whole may hold tensors whose elements are in other files. On import these are read into
/// raw_data, beside the external_data entries; on export they go back to files, or stay inline without a writer.
void load_external_within(google::protobuf::Message& message, ExternalFiles& files);
void store_external_within(google::protobuf::Message& message, ExternalWriter* external);

}  // namespace tessera::codec
