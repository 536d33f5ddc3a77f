#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/io/atomic_file.h"
#include "tessera/ir/tensor.h"
#include "tessera/onnx.pb.h"
#include "tessera/onnx/external_location.h"

namespace tessera::codec {

/// Collects the tensors that go into files beside a model, gives each its place, and writes the files.
///
/// Order of use: place() for every tensor, assign(), (write the model's bytes), write(), commit().
class ExternalWriter {
 public:
  /// With a threshold (bytes), every tensor of at least that size goes to the file `location`, all others inline.
  /// Without a threshold, tensors stay as they were: in files, at the same offset if they still fit there, or inline.
  /// `stored`: see ExportOptions; it must outlive the writer.
  ExternalWriter(std::filesystem::path folder, std::optional<size_t> threshold, std::string location,
                 const std::map<std::string, ExternalLocation>* stored = nullptr);
  ~ExternalWriter();

  bool takes(bool was_external, size_t bytes) const { return threshold_ ? bytes >= *threshold_ : was_external; }
  /// The place of an initializer's elements if the caller writes them; null for those that this writer places.
  const ExternalLocation* stored(const std::string& name) const;
  /// `proto` must stay where it is until assign().
  void place(onnx::TensorProto& proto, const Tensor& tensor);
  /// Writes offsets and lengths into the messages.
  void assign();
  void write();
  void commit();

 private:
  struct Piece {
    onnx::TensorProto* proto;
    Tensor tensor;
    std::optional<uint64_t> fixed;  ///< its previous offset
    uint64_t offset = 0;
  };
  void assign_file(std::vector<Piece>& pieces);
  void make_folder(const std::filesystem::path& folder);

  std::filesystem::path folder_;
  std::optional<size_t> threshold_;
  std::string location_;
  const std::map<std::string, ExternalLocation>* stored_;
  std::map<std::string, std::vector<Piece>> pieces_;  ///< by location
  std::vector<std::unique_ptr<AtomicFile>> files_;
  std::vector<std::filesystem::path> made_folders_;
};

}  // namespace tessera::codec
