#include "tessera/onnx/external_location.h"

#include "tessera/base/error.h"
#include "tessera/kept.pb.h"
#include "tessera/onnx/tensor_codec.h"

namespace tessera {

std::optional<ExternalLocation> external_location(const Value& value) {
  kept::Initializer kept;
  check(kept.ParseFromString(value.data_extra), "what was kept of an initializer can be read back");
  if (kept.rest().data_location() != onnx::TensorProto::EXTERNAL) return std::nullopt;
  codec::ExternalRange range = codec::external_range(kept.rest(), value.name);
  return ExternalLocation{range.location, range.offset};
}

}  // namespace tessera
