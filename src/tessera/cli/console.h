#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/launch.h"
#include "tessera/memory.h"
#include "tessera/tessera.h"

namespace tessera::cli {

using Json = nlohmann::ordered_json;

/// A command's output: text for people, or one JSON object, on standard output. Rank 0 speaks for all ranks of a
/// launch.
struct Console {
  bool json = false;
  bool quiet = false;
  std::shared_ptr<Connection> connection;  ///< to the other ranks; null if there is only this process
  Json known = Json::object();             ///< of the answer, which the object of an error has too

  bool speaks() const { return !connection || connection->launch().rank == 0; }

  /// A line of the answer, for people; --quiet does not silence it.
  void say(std::string_view line) const;
  /// A line for people about what was assumed, written, or done on the way; --quiet silences it.
  void note(std::string_view line) const;
  /// The same on standard error.
  void advise(std::string_view line) const;
  /// A line on standard error about what may be lost, or is not what was requested: data, checkpoints, figures.
  /// --quiet does not silence it.
  void warn(std::string_view line) const;
  /// Notes, then warnings, of a compilation; --quiet silences them.
  void note(const ProgramSummary& summary) const;
  void emit(const Json& object) const;
  /// Reports an error on standard error and, with --json, as the one object on standard output. Ranks that wait for
  /// this one hear of it, and rank 0 reports it; if rank 0 cannot hear of it, each of the others does. Returns `code`.
  int report(int code, const std::string& message) const;
};

/// Columns that a text takes on a terminal: one for each UTF-8 character.
size_t width_of(const std::string& text);
/// Columns of the terminal that standard output is; `otherwise` if it is none.
size_t columns_of_terminal(size_t otherwise);

/// Rows of cells with aligned columns; a cell that looks like a number is aligned at the right. Text that does not fit
/// the terminal wraps within its cell.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row);
  bool empty() const { return size() == 0; }
  size_t size() const { return rows_.size() - 1; }
  /// `otherwise`: columns if standard output is no terminal.
  void print(const Console& console, size_t otherwise = 80) const;

 private:
  struct Column {
    size_t width = 0, least = 0;  ///< as wide as its widest cell; what it may shrink to
    bool right = false;           ///< holds numbers
  };
  std::vector<Column> columns() const;

  std::vector<std::vector<std::string>> rows_;
};

/// "1.23 M"; below 10,000 the plain number.
std::string count_text(double count);
/// "12.3 ms"; below a tenth of one "45.6 µs"
std::string time_text(double seconds);
/// Of long times: "2 d 7 h", "3 h 12 min", "4 min", "12 s".
std::string duration_text(double seconds);
/// The same of milliseconds.
std::string ms_text(double ms);
/// "1.25", "12.5", "125": three significant digits.
std::string ratio_text(double ratio);
/// "3.1e-06"
std::string small_text(double value);
/// "float32 [batch, 128]"
std::string type_text(const TensorInfo& info);
/// "1 rank", "3 ranks"
std::string counted(int64_t count, std::string_view noun);
std::string joined(const std::vector<std::string>& items, std::string_view separator = ", ");

}  // namespace tessera::cli
