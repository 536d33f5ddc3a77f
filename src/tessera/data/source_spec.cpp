#include "tessera/data/source_spec.h"

#include <charconv>
#include <cmath>

#include "tessera/base/error.h"
#include "tessera/base/trim.h"

namespace tessera::data {
namespace {

constexpr std::pair<std::string_view, Storage> kStorages[] = {
    {"uint8", Storage::uint8}, {"uint16", Storage::uint16}, {"uint32", Storage::uint32}, {"npz", Storage::npz}};

// Splits at separators without a backslash before them; backslashes stay.
std::vector<std::string_view> split_unescaped(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  size_t begin = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text[at] == separator) {
      pieces.push_back(text.substr(begin, at - begin));
      begin = at + 1;
    }
  }
  pieces.push_back(text.substr(begin));
  return pieces;
}

std::string unescaped_path(std::string_view text) {
  std::string path;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\\' && at + 1 < text.size()) ++at;
    path += text[at];
  }
  return path;
}

std::optional<Storage> storage_named(std::string_view name) {
  for (const auto& [known, storage] : kStorages)
    if (name == known) return storage;
  return std::nullopt;
}

template <typename Number>
std::optional<Number> whole_number_of(std::string_view text, int base = 10) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> decimal_of(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

SourceSpec parse_source(std::string_view text, std::string_view all) {
  const std::vector<std::string_view> pieces = split_unescaped(text, ':');
  SourceSpec spec;
  spec.path = unescaped_path(trim(pieces[0]));
  if (spec.path.empty()) fail("data", "'{}' names a source without a path; write PATH[:TYPE][:WEIGHT],…", all);
  const std::string ending = spec.path.extension().string();
  spec.storage = ending == ".bin" ? Storage::uint16 : ending == ".npz" ? Storage::npz : Storage::uint8;
  bool has_type = false, has_weight = false;
  for (size_t i = 1; i < pieces.size(); ++i) {
    const std::string_view piece = trim(pieces[i]);
    if (const auto storage = storage_named(piece); storage && !has_type && !has_weight) {
      spec.storage = *storage;
      has_type = true;
    } else if (const auto weight = decimal_of(piece); weight && !has_weight) {
      if (!(*weight > 0) || !std::isfinite(*weight))
        fail("data", "'{}': the weight {} is not positive; give a number above 0", text, piece);
      spec.weight = *weight;
      has_weight = true;
    } else {
      fail("data",
           "'{}': '{}' is neither a type (uint8, uint16, uint32, npz) nor a weight; write PATH[:TYPE][:WEIGHT], with "
           "'\\:' for a colon in the path",
           text, piece);
    }
  }
  return spec;
}

int hex_byte(std::string_view digits, std::string_view all) {
  const auto value = digits.size() == 2 ? whole_number_of<int>(digits, 16) : std::nullopt;
  if (!value || *value < 0) fail("data", "separator '{}': '\\x' needs two hexadecimal digits after it", all);
  return *value;
}

}  // namespace

std::vector<SourceSpec> parse_sources(std::string_view text) {
  std::vector<SourceSpec> specs;
  for (std::string_view piece : split_unescaped(text, ',')) specs.push_back(parse_source(trim(piece), text));
  return specs;
}

Separator parse_separator(std::string_view text) {
  constexpr std::string_view kPrefix = "token:";
  Separator separator;
  if (text.starts_with(kPrefix)) {
    for (std::string_view piece : split_unescaped(text.substr(kPrefix.size()), ',')) {
      const auto token = whole_number_of<int64_t>(trim(piece));
      if (!token || *token < 0)
        fail("data", "separator '{}': '{}' is not a token; write token:ID or token:ID,ID,…", text, piece);
      separator.tokens.push_back(*token);
    }
    return separator;
  }
  if (text.empty()) fail("data", "the document separator is empty; give a text such as '\\n\\n', or token:ID");
  separator.text = true;
  for (size_t at = 0; at < text.size(); ++at) {
    auto byte = static_cast<unsigned char>(text[at]);
    if (byte == '\\') {
      const char letter = ++at < text.size() ? text[at] : ' ';
      switch (letter) {
        case 'n':
          byte = '\n';
          break;
        case 't':
          byte = '\t';
          break;
        case 'r':
          byte = '\r';
          break;
        case '0':
          byte = '\0';
          break;
        case '\\':
          byte = '\\';
          break;
        case 'x':
          byte = static_cast<unsigned char>(hex_byte(text.substr(at + 1, 2), text));
          at += 2;
          break;
        default:
          fail("data", "separator '{}': '\\' needs n, t, r, 0, \\ or xHH after it", text);
      }
    }
    separator.tokens.push_back(byte);
  }
  return separator;
}

}  // namespace tessera::data
