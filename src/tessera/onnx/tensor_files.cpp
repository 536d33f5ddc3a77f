#include "tessera/onnx/tensor_files.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/float16.h"
#include "tessera/io/atomic_file.h"
#include "tessera/io/mapped_regions.h"
#include "tessera/io/npz.h"
#include "tessera/ir/exact_cast.h"
#include "tessera/onnx/tensor_proto.h"

namespace tessera {
inline namespace v1 {
namespace {

namespace fs = std::filesystem;

fs::path numbered(const fs::path& folder, const std::string& prefix, int number) {
  return folder / fmt::format("{}_{}.pb", prefix, number);
}

// The folder itself, or the first of its test_data_set_N.
fs::path data_folder(const fs::path& path, const std::string& prefix) {
  if (fs::exists(numbered(path, prefix, 0))) return path;
  fs::path nested = path / "test_data_set_0";
  if (fs::exists(numbered(nested, prefix, 0))) return nested;
  fail("inputs", "{} holds no {}_0.pb; name a .npz file, or a folder such as ONNX's test_data_set_0", path.string(),
       prefix);
}

/// "x" of "x@12": rank 12's own array, for models that were split before.
std::string_view without_rank(std::string_view name) {
  const size_t at = name.rfind('@');
  const bool numbered = at != std::string_view::npos && at + 1 < name.size() &&
                        name.find_first_not_of("0123456789", at + 1) == std::string_view::npos;
  return numbered ? name.substr(0, at) : name;
}

bool names_a_port(std::string_view name, const std::vector<TensorInfo>& ports) {
  return std::any_of(ports.begin(), ports.end(),
                     [&](const TensorInfo& port) { return port.name == name || port.name == without_rank(name); });
}

/// Arrays that the model does not name are not read. Among inputs they are a mistake.
Tensors read_archive(const fs::path& path, const std::string& prefix, const std::vector<TensorInfo>& ports,
                     size_t memory_limit) {
  return read_npz(path, {[&](const std::string& name) {
                           if (names_a_port(name, ports)) return true;
                           if (prefix != "input") return false;
                           std::vector<std::string> names;
                           for (const TensorInfo& port : ports) names.push_back(port.name);
                           fail("inputs", "{}: the model has no {} '{}'; its {}s are: {}", path.string(), prefix, name,
                                prefix, fmt::join(names, ", "));
                         },
                         memory_limit});
}

Tensors read_folder(const fs::path& path, const std::string& prefix, const std::vector<TensorInfo>& ports) {
  fs::path folder = data_folder(path, prefix);
  Tensors tensors;
  for (int i = 0; fs::exists(numbered(folder, prefix, i)); ++i) {
    NamedTensor read = read_tensor_file(numbered(folder, prefix, i));
    bool known =
        std::any_of(ports.begin(), ports.end(), [&](const TensorInfo& port) { return port.name == read.name; });
    std::string name = read.name;
    if (!known) {
      if (static_cast<size_t>(i) >= ports.size())
        fail("inputs", "{} is one more than the model's {}; remove it", numbered(folder, prefix, i).string(),
             ports.size());
      name = ports[i].name;
    }
    tensors[name] = std::move(read.tensor);
  }
  return tensors;
}

template <typename T>
Tensor narrowed(const Tensor& tensor, DType dtype) {
  std::vector<T> elements;
  for (float element : tensor.as<float>()) elements.emplace_back(element);
  return Tensor::of(dtype, tensor.dims, elements);
}

}  // namespace

Tensors read_tensors(const fs::path& path, const std::string& prefix, const std::vector<TensorInfo>& ports,
                     size_t memory_limit) {
  if (!fs::exists(path)) fail("inputs", "{} does not exist; name a .npz file or a folder of .pb files", path.string());
  Tensors tensors =
      fs::is_directory(path) ? read_folder(path, prefix, ports) : read_archive(path, prefix, ports, memory_limit);
  for (const TensorInfo& port : ports) {
    auto found = tensors.find(port.name);
    if (found == tensors.end()) continue;
    if (prefix == "input" && port.dtype != DType::undefined)
      if (std::optional<Tensor> exact = exactly_as(found->second, port.dtype)) found->second = std::move(*exact);
    if (found->second.dtype != DType::float32) continue;
    if (port.dtype == DType::bfloat16) found->second = narrowed<BFloat16>(found->second, DType::bfloat16);
    if (port.dtype == DType::float16) found->second = narrowed<Float16>(found->second, DType::float16);
  }
  return tensors;
}

Tensors read_tensors(const fs::path& path, size_t memory_limit) {
  return read_npz(path, {nullptr, memory_limit});
}

void write_tensors(const fs::path& path, const Tensors& tensors) {
  for (const auto& [name, tensor] : tensors) tensor.require_whole(name);
  write_npz(path, {tensors.begin(), tensors.end()});
}

void require_writable(const fs::path& path) {
  std::vector<fs::path> written = {path};
  if (path.extension() == ".onnx") written.emplace_back(path.string() + ".data");  // export.h
  for (const fs::path& file : written)
    if (is_mapped(file))
      fail("write", "{} is read by this command; name another path{}", file.string(),
           file == path ? "" : " than " + path.string() + ", whose tensors go there");
  AtomicFile probe(path);
}

}  // namespace v1

std::vector<std::string> names_in(const std::filesystem::path& path, const std::vector<TensorInfo>& ports) {
  std::vector<std::string> names;
  if (std::filesystem::is_directory(path)) {
    for (const auto& [name, tensor] : read_tensors(path, "input", ports)) names.push_back(name);
  } else {
    read_npz(path, {[&](const std::string& name) {
                      names.push_back(name);
                      return false;
                    },
                    0});
  }
  return names;
}

}  // namespace tessera
