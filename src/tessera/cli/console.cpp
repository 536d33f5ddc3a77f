#include "tessera/cli/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "tessera/cli/settings.h"

namespace tessera::cli {

namespace {

void put_options(Json& object) {
  if (object.is_string()) object = with_options(object.get_ref<const std::string&>());
  if (object.is_structured())
    for (Json& each : object) put_options(each);
}

}  // namespace

void Console::say(std::string_view line) const {
  if (!json && speaks()) std::printf("%s\n", with_options(line).c_str());
}

void Console::note(std::string_view line) const {
  if (!quiet) say(line);
}

void Console::advise(std::string_view line) const {
  if (!quiet) warn(line);
}

void Console::warn(std::string_view line) const {
  if (!speaks()) return;
  std::fflush(stdout);
  std::fprintf(stderr, "warning: %s\n", with_options(line).c_str());
}

void Console::note(const ProgramSummary& summary) const {
  for (const std::string& entry : summary.notes) note("note: " + entry);
  for (const std::string& warning : summary.warnings) advise(warning);
}

int Console::report(int code, const std::string& message) const {
  if (connection)
    connection->abort(message, code == static_cast<int>(ErrorKind::user) ? ErrorKind::user : ErrorKind::running);
  if (!speaks() && connection->first_has_heard()) return code;
  std::fflush(stdout);
  std::fprintf(stderr, "tessera: %s\n", with_options(message).c_str());
  if (json) {
    Json object = {{"error", message}};
    object.update(known);
    emit(object);
  }
  return code;
}

namespace {

// Names in a model need not be UTF-8.
std::string dumped(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// The members of --details are long and for programs: an element takes a line.
std::string text_of(Json& object) {
  std::string details;
  for (const char* key : {"memory", "layouts", "traceEvents"}) {
    if (!object.contains(key)) continue;
    const Json& list = object[key];
    std::string elements;
    for (const auto& [name, each] : list.items())
      elements += (elements.empty() ? "\n    " : ",\n    ") + (list.is_object() ? dumped(name, -1) + ": " : "") +
                  dumped(each, -1);
    details += std::string(",\n  \"") + key + "\": " + (list.is_object() ? "{" : "[") + elements + "\n  " +
               (list.is_object() ? "}" : "]");
  }
  for (const char* key : {"memory", "layouts", "traceEvents"}) object.erase(key);
  std::string text = dumped(object, 2);
  if (!details.empty()) text.insert(text.size() - 2, details);  // before the line that ends it
  return text;
}

}  // namespace

void Console::emit(const Json& object) const {
  if (!speaks()) return;
  Json shown = object;
  put_options(shown);
  std::printf("%s\n", text_of(shown).c_str());
}

size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

size_t columns_of_terminal(size_t otherwise) {
  constexpr size_t kLeast = 40;
  winsize size{};
  if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return otherwise;
  return std::max<size_t>(size.ws_col, kLeast);
}

namespace {

constexpr size_t kIndent = 2, kGap = 3;  // before a table's first column, and before the others
constexpr size_t kLeastColumn = 8;       // a column of words keeps at least this width, if it has it

constexpr std::string_view kMarks = ",./_-:";  // a name may wrap after these

/// Where to cut `text` so that at most `end` bytes stay, but more than `least`: after the last of `marks`, or before a
/// space; 0 if there is no such place.
size_t cut_at(const std::string& text, size_t end, size_t least, std::string_view marks) {
  for (size_t cut = end; cut > std::max(text.find_first_not_of(' '), least); --cut)
    if (text[cut] == ' ' || marks.find(text[cut - 1]) != std::string_view::npos) return cut;
  return 0;
}

/// The unbreakable pieces of a text: "m.layers.0 and" has "m.", "layers.", "0", "and".
std::vector<std::string> pieces_of(const std::string& text) {
  std::vector<std::string> pieces(1);
  for (char c : text) {
    if (c != ' ') pieces.back() += c;
    if (c == ' ' || kMarks.find(c) != std::string_view::npos) pieces.emplace_back();
  }
  return pieces;
}

/// `text` in lines of at most `width` columns, cut at a space or after a mark, preferably in a line's second half:
/// "m.layers.0." and "  mlp.weight". Further lines are indented if there is room. A piece is cut only if it is wider
/// than a line.
std::vector<std::string> wrapped(const std::string& text, size_t width) {
  std::vector<std::string> lines;
  std::string rest = text;
  while (width_of(rest) > width) {
    size_t end = 0;  // bytes that fit
    for (size_t columns = 0; end < rest.size(); ++end) {
      columns += (rest[end] & 0xc0) != 0x80 ? 1 : 0;
      if (columns > width) break;
    }
    size_t cut = cut_at(rest, end, end / 2, " ");
    if (cut == 0) cut = cut_at(rest, end, end / 2, kMarks);
    if (cut == 0) cut = cut_at(rest, end, 0, kMarks);
    if (cut == 0) cut = end;
    lines.push_back(rest.substr(0, cut));
    rest.erase(0, cut);
    rest.erase(0, rest.find_first_not_of(' '));
    if (width >= kLeastColumn && width_of(pieces_of(rest)[0]) + 2 <= width) rest.insert(0, "  ");
  }
  lines.push_back(rest);
  return lines;
}

size_t longest_piece(const std::string& text) {
  size_t longest = 0;
  for (const std::string& piece : pieces_of(text)) longest = std::max(longest, width_of(piece));
  return longest;
}

size_t longest_word(const std::string& text) {
  size_t longest = 0;
  std::istringstream words(text);
  for (std::string word; words >> word;) longest = std::max(longest, width_of(word));
  return longest;
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

std::vector<Table::Column> Table::columns() const {
  std::vector<Column> columns(rows_[0].size());
  for (size_t c = 0; c < columns.size(); ++c) {
    size_t widest_number = 0, widest_piece = kLeastColumn;
    columns[c].right = !empty();
    for (size_t r = 0; r < rows_.size(); ++r) {
      const std::string& cell = rows_[r][c];
      columns[c].width = std::max(columns[c].width, width_of(cell));
      widest_piece = std::max(widest_piece, longest_piece(cell));
      if (r == 0 || cell.empty()) continue;
      columns[c].right = columns[c].right && is_number(cell);
      widest_number = std::max(widest_number, width_of(cell));
    }
    // Numbers and the words above them stay whole; other texts may wrap between their pieces.
    columns[c].least = std::min(columns[c].width,
                                columns[c].right ? std::max(widest_number, longest_word(rows_[0][c])) : widest_piece);
  }
  return columns;
}

void Table::add(std::vector<std::string> row) {
  for (std::string& cell : row) cell = with_options(cell);
  rows_.push_back(std::move(row));
}

void Table::print(const Console& console, size_t otherwise) const {
  std::vector<Column> columns = this->columns();
  size_t total = kIndent - kGap, least = total;
  for (const Column& column : columns) {
    total += column.width + kGap;
    least += column.least + kGap;
  }
  // A text that cannot fit stays as it is: cut, it would be as wide and harder to read.
  for (const size_t most = columns_of_terminal(otherwise); total > most && least <= most; --total) {
    auto widest = std::max_element(columns.begin(), columns.end(), [](const Column& a, const Column& b) {
      return (a.width > a.least ? a.width : 0) < (b.width > b.least ? b.width : 0);
    });
    --widest->width;
  }
  for (const auto& row : rows_) {
    std::vector<std::vector<std::string>> cells;
    size_t lines = 1;
    for (size_t c = 0; c < row.size(); ++c) {
      cells.push_back(wrapped(row[c], columns[c].width));
      lines = std::max(lines, cells.back().size());
    }
    for (size_t l = 0; l < lines; ++l) {
      std::string line;
      for (size_t c = 0; c < cells.size(); ++c) {
        const std::string text = l < cells[c].size() ? cells[c][l] : "";
        const std::string padding(columns[c].width - width_of(text), ' ');
        line += std::string(c == 0 ? kIndent : kGap, ' ');
        line += columns[c].right ? padding + text : text + padding;
      }
      line.erase(line.find_last_not_of(' ') + 1);
      console.say(line);
    }
  }
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
  const double size = std::abs(seconds);
  if (size < 5e-8) return "0.0 µs";  // and not "-0.0 µs"
  if (size < 1e-4) return formatted("%.1f %s", seconds * 1e6, "µs");
  return size < 1 ? formatted("%.1f %s", seconds * 1e3, "ms") : formatted("%.2f %s", seconds, "s");
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::min(seconds, 1e15) + 0.5);
  constexpr int64_t kMinute = 60, kHour = 60 * kMinute, kDay = 24 * kHour;
  const auto text = [](int64_t major, const char* unit, int64_t minor, const char* minor_unit) {
    return std::to_string(major) + " " + unit + " " + std::to_string(minor) + " " + minor_unit;
  };
  if (whole >= kDay) return text(whole / kDay, "d", whole % kDay / kHour, "h");
  if (whole >= kHour) return text(whole / kHour, "h", whole % kHour / kMinute, "min");
  if (whole >= kMinute) return std::to_string(whole / kMinute) + " min";
  return std::to_string(whole) + " s";
}

std::string ms_text(double ms) {
  return time_text(ms * 1e-3);
}

std::string ratio_text(double ratio) {
  return formatted(ratio < 10 ? "%.2f%s" : ratio < 100 ? "%.1f%s" : "%.0f%s", ratio, "");
}

std::string small_text(double value) {
  return value == 0 ? "0" : formatted("%.2g%s", value, "");
}

std::string counted(int64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
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
