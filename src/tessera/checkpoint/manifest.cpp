#include "tessera/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "tessera/base/checked.h"
#include "tessera/base/error.h"
#include "tessera/io/crc32.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "tessera checkpoint";
constexpr int64_t kVersion = 1;  // incremented when older readers would misread the file
// The first line: {"crc32":"89abcdef",
constexpr std::string_view kChecksumBegin = "{\"crc32\":\"", kChecksumEnd = "\",\n";
constexpr size_t kHeader = 64, kLongestRun = 32;  // bytes of a rank's file before the first piece, of a run's name
constexpr size_t kChecksumLine = kChecksumBegin.size() + 8 + kChecksumEnd.size();

std::string hex(uint32_t crc) {
  return fmt::format("{:08x}", crc);
}

Json json_of(const StoredTensor& tensor) {
  Json pieces = Json::array();
  for (const StoredPiece& piece : tensor.pieces)
    pieces.push_back({{"file", piece.file},
                      {"offset", piece.offset},
                      {"bytes", piece.bytes},
                      {"crc32", hex(piece.crc32)},
                      {"begin", piece.region.begin},
                      {"extent", piece.region.extent}});
  return {{"dtype", name_of(tensor.dtype)}, {"shape", tensor.dims}, {"pieces", std::move(pieces)}};
}

Json json_of(const Scalar& scalar) {
  if (const auto* number = std::get_if<double>(&scalar)) check(std::isfinite(*number), "scalars are finite");
  return std::visit([](const auto& value) { return Json(value); }, scalar);
}

uint32_t crc_of_hex(const std::string& text) {
  uint32_t crc = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), crc, 16);
  if (error != std::errc() || end != text.data() + text.size()) throw Defect("a checksum is not a hexadecimal number");
  return crc;
}

void require(bool holds, std::string_view what) {
  if (!holds) throw Defect(std::string(what));
}

int64_t integer_of(const Json& json) {
  require(json.is_number_integer() && (!json.is_number_unsigned() || json.get<uint64_t>() <= INT64_MAX),
          "a number is not an integer of 64 bits");
  return json.get<int64_t>();
}

uint64_t size_of(const Json& json) {
  const int64_t size = integer_of(json);
  require(size >= 0, "a size is negative");
  return static_cast<uint64_t>(size);
}

Scalar scalar_of(const Json& json) {
  if (json.is_number_float()) return json.get<double>();
  if (json.is_number()) return integer_of(json);
  return json.get<std::string>();
}

Dims dims_of(const Json& json) {
  require(json.is_array(), "extents are not a list");
  Dims dims;
  for (const Json& extent : json) dims.push_back(integer_of(extent));
  return dims;
}

StoredPiece piece_of(const Json& json, const StoredTensor& tensor) {
  StoredPiece piece{json.at("file").get<std::string>(),
                    size_of(json.at("offset")),
                    size_of(json.at("bytes")),
                    crc_of_hex(json.at("crc32").get<std::string>()),
                    {dims_of(json.at("begin")), dims_of(json.at("extent"))}};
  const Dims &begin = piece.region.begin, &extent = piece.region.extent;
  require(!piece.file.empty() && piece.file.find('/') == std::string::npos && piece.file[0] != '.',
          "a piece names a file that is not in the folder");
  require(begin.size() == tensor.dims.size() && extent.size() == tensor.dims.size(), "a piece has another rank");
  for (size_t d = 0; d < begin.size(); ++d)
    require(begin[d] >= 0 && extent[d] >= 0 && begin[d] <= tensor.dims[d] && extent[d] <= tensor.dims[d] - begin[d],
            "a piece reaches past the tensor");
  require(piece.bytes == bytes_of(tensor.dtype, piece.region.count()), "a piece has the wrong number of bytes");
  require(add_if_fits(piece.offset, piece.bytes).has_value(), "a piece has no place in its file");
  return piece;
}

StoredTensor tensor_of(const Json& json) {
  StoredTensor tensor;
  tensor.dtype = dtype_named(json.at("dtype").get<std::string>());
  tensor.dims = dims_of(json.at("shape"));
  require(bits_of(tensor.dtype) >= 8, "its type cannot be saved");
  const auto count = count_if_fits(tensor.dims, 1);
  require(std::all_of(tensor.dims.begin(), tensor.dims.end(), [](int64_t extent) { return extent >= 0; }) && count &&
              *count <= static_cast<int64_t>(kMostBytes) / (bits_of(tensor.dtype) / 8),
          "its shape is not a tensor's");
  for (const Json& piece : json.at("pieces")) tensor.pieces.push_back(piece_of(piece, tensor));
  return tensor;
}

}  // namespace

std::string print_manifest(const Manifest& manifest) {
  Json scalars = Json::object();
  for (const auto& [name, scalar] : manifest.facts.scalars) scalars[name] = json_of(scalar);
  std::string text;
  try {  // names that are not UTF-8 could not be read back as they are
    text = fmt::format(
        "\"format\":{},\n\"version\":{},\n\"step\":{},\n\"run\":{},\n\"model\":{},\n\"scalars\":{},\n\"tensors\":{{",
        Json(kFormat).dump(), kVersion, manifest.facts.step, Json(manifest.facts.run).dump(),
        Json(manifest.facts.model).dump(), scalars.dump());
    for (std::string_view comma = "\n"; const auto& [name, tensor] : manifest.tensors) {
      text += fmt::format("{}{}:{}", comma, Json(name).dump(), json_of(tensor).dump());
      comma = ",\n";
    }
    text += "\n}}\n";
  } catch (const nlohmann::json::exception&) {
    fail("checkpoint", "a name of a tensor or scalar is not UTF-8 text; rename it to save the model");
  }
  const uint32_t crc = update_crc32(0, text.data(), text.size());
  return fmt::format("{}{}{}{}", kChecksumBegin, hex(crc), kChecksumEnd, text);
}

Manifest parse_manifest(std::string_view text, std::string_view what) {
  const auto defect = [&](std::string_view reason) { return Defect(fmt::format("{}: {}", what, reason)); };
  if (!text.starts_with(kChecksumBegin) || text.size() < kChecksumLine ||
      text.substr(kChecksumLine - kChecksumEnd.size(), kChecksumEnd.size()) != kChecksumEnd)
    throw defect("is not a table of a checkpoint, or is truncated");
  const std::string_view rest = text.substr(kChecksumLine);
  if (hex(update_crc32(0, rest.data(), rest.size())) != text.substr(kChecksumBegin.size(), 8))
    throw defect("is damaged: its checksum does not match");
  std::string tensor;
  try {
    const Json json = Json::parse(text);
    if (json.at("format") != kFormat) throw Defect("is not a table of a checkpoint");
    if (json.at("version") != kVersion)
      throw UnknownVersion(
          fmt::format("{}: was written in version {} of the format, but this tessera reads version {}; "
                      "use the tessera that wrote it",
                      what, json.at("version").dump(), kVersion));
    Manifest manifest;
    manifest.facts.step = integer_of(json.at("step"));
    if (json.contains("run")) manifest.facts.run = json.at("run").get<std::string>();
    require(manifest.facts.run.size() <= kLongestRun, "a run's name is too long");
    manifest.facts.model = json.at("model").get<std::string>();
    require(json.at("scalars").is_object() && json.at("tensors").is_object(), "scalars and tensors are not objects");
    for (const auto& [name, scalar] : json.at("scalars").items())
      manifest.facts.scalars.emplace(name, scalar_of(scalar));
    for (const auto& [name, entry] : json.at("tensors").items()) {
      tensor = fmt::format("tensor '{}': ", name);
      manifest.tensors.emplace(name, tensor_of(entry));
    }
    return manifest;
  } catch (const nlohmann::json::exception& error) {
    throw defect(tensor + error.what());
  } catch (const UnknownVersion&) {
    throw;
  } catch (const Defect& error) {
    throw defect(tensor + error.what());
  }
}

// Pieces of equal total size that do not overlap fill the tensor. Overlaps are looked for among pieces whose intervals
// along one dimension, the one with the most different begins, overlap.
std::optional<std::string> wrong_cover(const StoredTensor& tensor) {
  int64_t count = 0;
  std::vector<const Region*> regions;
  for (const StoredPiece& piece : tensor.pieces) {
    if (piece.region.count() == 0) continue;
    regions.push_back(&piece.region);
    const auto sum = add_if_fits(count, piece.region.count());
    if (!sum) return "its pieces hold some elements twice";
    count = *sum;
  }
  const int64_t whole = count_of(tensor.dims);
  if (count < whole) return fmt::format("its pieces hold {} of its {} elements", count, whole);
  if (count > whole) return "its pieces hold some elements twice";
  if (regions.size() < 2) return std::nullopt;
  size_t along = 0, most = 0;
  for (size_t d = 0; d < tensor.dims.size(); ++d) {
    std::set<int64_t> begins;
    for (const Region* region : regions) begins.insert(region->begin[d]);
    if (begins.size() > most) {
      most = begins.size();
      along = d;
    }
  }
  std::sort(regions.begin(), regions.end(),
            [&](const Region* a, const Region* b) { return a->begin[along] < b->begin[along]; });
  for (size_t i = 0; i < regions.size(); ++i)
    for (size_t j = i + 1; j < regions.size(); ++j) {
      if (regions[j]->begin[along] >= regions[i]->begin[along] + regions[i]->extent[along]) break;
      if (common(*regions[i], *regions[j]).count() > 0) return "its pieces hold some elements twice";
    }
  return std::nullopt;
}

std::string folder_name(int64_t step) {
  return fmt::format("step-{:06}", step);
}

std::optional<int64_t> step_of(std::string_view folder) {
  constexpr std::string_view kPrefix = "step-";
  if (!folder.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = folder.substr(kPrefix.size());
  int64_t step = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() || step < 0 || folder_name(step) != folder)
    return std::nullopt;
  return step;
}

fs::path partial_folder(const fs::path& folder, int64_t step, const std::string& run) {
  return folder / fmt::format(".{}{}{}.partial", folder_name(step), run.empty() ? "" : ".", run);
}

std::string rank_file(int64_t rank) {
  return fmt::format("rank-{}.bin", rank);
}

std::string rank_table(int64_t rank) {
  return fmt::format("rank-{}.json", rank);
}

std::string rank_header(const std::string& run) {
  if (run.empty()) return "";
  std::string header = fmt::format("tessera checkpoint, run {}\n", run);
  check(run.size() <= kLongestRun, "a run has a short name");
  header.resize(kHeader);
  return header;
}

}  // namespace tessera::checkpoint
