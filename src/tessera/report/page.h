#pragma once

#include <string>
#include <string_view>
#include <vector>

/// Writes HTML: text is escaped here, and nowhere else.
namespace tessera::report {

/// A file that is part of the program.
struct PageFile {
  std::string_view name, text;
};
std::vector<PageFile> page_files();

/// Text for elements and attributes: & < > " ' as references; control characters, which HTML forbids, as U+FFFD.
std::string escaped(std::string_view text);

/// The same, with places at which a long name may wrap: after . / and +
std::string wrappable(std::string_view text);

/// "1,234.5": a number with so many digits after the point.
std::string number_text(double value, int digits);
/// Milliseconds, with as many digits as a column of up to `largest` needs: "12.34"
std::string ms_text(double ms, double largest);
/// "12.5 MiB"
std::string amount_text(double bytes);
/// "12.5 %"
std::string percent_text(double share);

/// A cell's text; `number` aligns it at the right.
struct Cell {
  Cell(std::string shown, bool number = false) : text(std::move(shown)), is_number(number) {}
  Cell(const char* shown) : text(shown) {}
  std::string text;  ///< not escaped
  bool is_number = false;
  std::string html;  ///< instead of `text`
};
Cell number_cell(std::string text);
Cell html_cell(std::string html);

/// <table>; a column of numbers has a header at the right, too, and a column without any value is left out.
std::string table_html(const std::vector<std::string>& header, const std::vector<std::vector<Cell>>& rows);
/// A table of more than `most` rows folds the rest behind a line that says how many.
std::string folded_table_html(const std::vector<std::string>& header, const std::vector<std::vector<Cell>>& rows,
                              size_t most, std::string_view what);
/// <section> with a heading.
std::string section_html(std::string_view id, std::string_view title, std::string_view body);
/// What stands in place of a section: what it would show, and the commands or options that give it.
std::string missing_html(std::string_view id, std::string_view title, std::string_view how);
/// "▪ computing ▪ communication …": classes of the style sheet and words.
std::string legend_html(const std::vector<std::pair<std::string, std::string>>& entries);
/// The whole page.
std::string page_html(std::string_view title, std::string_view body);

}  // namespace tessera::report
