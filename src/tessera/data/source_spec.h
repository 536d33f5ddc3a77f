#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::data {

/// How a file stores training data.
enum class Storage {
  uint8,   ///< a text: each byte is a token
  uint16,  ///< little-endian tokens of two bytes
  uint32,  ///< little-endian tokens of four bytes
  npz,     ///< arrays whose first dimension counts steps
};

struct SourceSpec {
  std::filesystem::path path;
  Storage storage = Storage::uint8;
  double weight = 1;  ///< relative to the other sources' weights

  bool operator==(const SourceSpec&) const = default;
};

/// Reads "PATH[:TYPE][:WEIGHT],…", for example "a.txt:0.7,b.bin:uint32:0.3". TYPE is uint8, uint16, uint32 or npz;
/// without it, .bin means uint16, .npz npz, and any other ending uint8. The weight of a source without one is 1. A
/// comma, colon or backslash that belongs to a path has a backslash before it. Defects are user errors "[data] …".
std::vector<SourceSpec> parse_sources(std::string_view text);

/// The tokens that end a document.
struct Separator {
  std::vector<int64_t> tokens;  ///< at least one
  bool text = false;            ///< given as text, whose bytes mean tokens in files of uint8 only

  bool operator==(const Separator&) const = default;
};

/// Reads a separator: "token:ID" or "token:ID,ID,…" gives numbers, anything else is text in which \n, \t, \r, \0,
/// \\ and \xHH stand for bytes. Defects are user errors.
Separator parse_separator(std::string_view text);

}  // namespace tessera::data
