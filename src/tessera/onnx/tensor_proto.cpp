#include "tessera/onnx/tensor_proto.h"

#include <limits>

#include "tessera/base/error.h"
#include "tessera/io/atomic_file.h"
#include "tessera/io/mapped_file.h"
#include "tessera/ir/aligned.h"
#include "tessera/onnx.pb.h"
#include "tessera/onnx/tensor_codec.h"

namespace tessera {
namespace {

constexpr size_t kProtobufLimit = std::numeric_limits<int>::max();

NamedTensor read_tensor(std::string_view bytes, codec::ExternalFiles files, const std::string& source) {
  onnx::TensorProto proto;
  if (bytes.size() > kProtobufLimit || !proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    fail("import", "'{}' is not a readable ONNX tensor: it is damaged or larger than 2 GiB", source);
  std::string name = proto.name();
  Tensor tensor = aligned(codec::take_tensor(proto, files, name.empty() ? source : name));
  return {std::move(name), std::move(tensor)};
}

}  // namespace

NamedTensor read_tensor_file(const std::filesystem::path& path) {
  return read_tensor(MappedFile::open(path, "import")->view(), codec::ExternalFiles::beside(path), path.string());
}

NamedTensor read_tensor_bytes(std::string_view bytes, const std::filesystem::path& base_dir) {
  return read_tensor(bytes, codec::ExternalFiles({base_dir}), "tensor in memory");
}

std::string write_tensor_bytes(const Tensor& tensor, std::string_view name) {
  onnx::TensorProto proto;
  if (!name.empty()) proto.set_name(std::string(name));
  if (tensor.bytes > kProtobufLimit - (size_t{1} << 20))
    fail("export", "tensor '{}' takes {} bytes, and a TensorProto can hold 2 GiB", name, tensor.bytes);
  codec::put_tensor(tensor, proto, nullptr);
  return proto.SerializeAsString();
}

void write_tensor_file(const Tensor& tensor, std::string_view name, const std::filesystem::path& path) {
  write_file(path, write_tensor_bytes(tensor, name));
}

}  // namespace tessera
