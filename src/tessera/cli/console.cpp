#include "tessera/cli/console.h"

#include <algorithm>
#include <cstdio>

namespace tessera::cli {

void Console::say(std::string_view line) const {
  if (talks()) std::printf("%.*s\n", static_cast<int>(line.size()), line.data());
}

void Console::warn(std::string_view line) const {
  if (quiet || !speaks()) return;
  std::fflush(stdout);
  std::fprintf(stderr, "warning: %.*s\n", static_cast<int>(line.size()), line.data());
}

void Console::say(const ProgramSummary& summary) const {
  for (const std::string& note : summary.notes) say("note: " + note);
  for (const std::string& warning : summary.warnings) warn(warning);
}

int Console::report(int code, const std::string& message) const {
  if (connection) connection->abort(message);
  if (!speaks() && connection->first_has_heard()) return code;
  std::fflush(stdout);
  std::fprintf(stderr, "tessera: %s\n", message.c_str());
  if (json) emit({{"error", message}});
  return code;
}

void Console::emit(const Json& object) const {
  if (!speaks()) return;
  // Names in a model need not be UTF-8.
  std::string text = object.dump(2, ' ', false, Json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
}

namespace {

// Columns that a text takes on a terminal: bytes that begin a UTF-8 character.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

bool is_number(const std::string& text) {
  return !text.empty() && ((text[0] >= '0' && text[0] <= '9') || text == "-" || text == "inf" || text == "nan");
}

std::string formatted(const char* format, double value, const char* unit) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, format, value, unit);
  return buffer;
}

}  // namespace

void Table::print(const Console& console) const {
  std::vector<size_t> widths(rows_[0].size());
  std::vector<bool> right(rows_[0].size(), !empty());
  for (size_t r = 0; r < rows_.size(); ++r)
    for (size_t c = 0; c < rows_[r].size(); ++c) {
      widths[c] = std::max(widths[c], width_of(rows_[r][c]));
      if (r > 0 && !rows_[r][c].empty()) right[c] = right[c] && is_number(rows_[r][c]);
    }
  for (const auto& row : rows_) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      std::string padding(widths[c] - width_of(row[c]), ' ');
      line += c == 0 ? "  " : "   ";
      line += right[c] ? padding + row[c] : row[c] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    console.say(line);
  }
}

std::string bytes_text(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 5) {
    bytes /= 1024;
    ++unit;
  }
  return formatted(unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
}

std::string count_text(double count) {
  const char* units[] = {"", "k", "M", "G", "T", "P"};
  if (count < 10000) return formatted("%.0f%s", count, "");
  int unit = 0;
  while (count >= 1000 && unit < 5) {
    count /= 1000;
    ++unit;
  }
  return formatted("%.2f %s", count, units[unit]);
}

std::string time_text(double seconds) {
  if (seconds < 1e-4) return formatted("%.1f %s", seconds * 1e6, "µs");
  return seconds < 1 ? formatted("%.1f %s", seconds * 1e3, "ms") : formatted("%.2f %s", seconds, "s");
}

std::string ratio_text(double ratio) {
  return formatted(ratio < 10 ? "%.2f%s" : ratio < 100 ? "%.1f%s" : "%.0f%s", ratio, "");
}

std::string small_text(double value) {
  return value == 0 ? "0" : formatted("%.2g%s", value, "");
}

std::string joined(const std::vector<std::string>& items, std::string_view separator) {
  std::string text;
  for (const std::string& item : items) {
    if (!text.empty()) text += separator;
    text += item;
  }
  return text;
}

std::string type_text(const TensorInfo& info) {
  return std::string(name_of(info.dtype)) + " [" + joined(info.shape) + "]";
}

}  // namespace tessera::cli
