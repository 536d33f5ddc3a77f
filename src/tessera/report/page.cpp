#include "tessera/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/memory.h"

namespace tessera::report {

std::string escaped(std::string_view text) {
  std::string made;
  made.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        made += "&amp;";
        break;
      case '<':
        made += "&lt;";
        break;
      case '>':
        made += "&gt;";
        break;
      case '"':
        made += "&quot;";
        break;
      case '\'':
        made += "&#39;";
        break;
      default:
        if (static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t')
          made += "\xEF\xBF\xBD";
        else
          made += c;
    }
  }
  return made;
}

std::string wrappable(std::string_view text) {
  std::string html;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find_first_of("./+", begin), text.size() - 1) + 1;
    html += escaped(text.substr(begin, end - begin));
    if (end < text.size()) html += "<wbr>";
    begin = end;
  }
  return html;
}

std::string number_text(double value, int digits) {
  std::string text = fmt::format("{:.{}f}", value, digits);
  const size_t first = text[0] == '-' ? 1 : 0;
  size_t point = std::min(text.find('.'), text.size());
  for (; point > first + 3 && std::isfinite(value); point -= 3) text.insert(point - 3, ",");
  return text;
}

std::string ms_text(double ms, double largest) {
  return number_text(ms, largest >= 1000 ? 0 : largest >= 100 ? 1 : largest >= 10 ? 2 : largest >= 1 ? 3 : 4);
}

std::string amount_text(double bytes) {
  return bytes_text(bytes);
}

std::string percent_text(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

Cell number_cell(std::string text) {
  return {std::move(text), true};
}

Cell html_cell(std::string html) {
  Cell cell("");
  cell.html = std::move(html);
  return cell;
}

namespace {

using TableRows = std::vector<std::vector<Cell>>;

/// A column of a table.
struct Column {
  bool is_number = false;
  bool is_shown = false;  // has a value
};

std::vector<Column> columns_of(size_t count, const TableRows& rows) {
  std::vector<Column> columns(count);
  for (const auto& row : rows)
    for (size_t c = 0; c < count; ++c) {
      columns[c].is_number = columns[c].is_number || row[c].is_number;
      columns[c].is_shown = columns[c].is_shown || !row[c].text.empty() || !row[c].html.empty();
    }
  return columns;
}

std::string rows_html(const std::vector<std::string>& header, const std::vector<Column>& columns, const TableRows& rows,
                      size_t begin, size_t end) {
  std::string html = "<div class=scroll><table>\n<thead><tr>";
  for (size_t c = 0; c < header.size(); ++c)
    if (columns[c].is_shown)
      html += fmt::format("<th scope=col{}>{}</th>", columns[c].is_number ? " class=n" : "", escaped(header[c]));
  html += "</tr></thead>\n<tbody>\n";
  for (size_t r = begin; r < end; ++r) {
    html += "<tr>";
    for (size_t c = 0; c < header.size(); ++c)
      if (const Cell& cell = rows[r][c]; columns[c].is_shown)
        html += fmt::format("<td{}>{}</td>", cell.is_number ? " class=n" : "",
                            !cell.html.empty() ? cell.html
                            : cell.is_number   ? escaped(cell.text)
                                               : wrappable(cell.text));
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace

std::string table_html(const std::vector<std::string>& header, const std::vector<std::vector<Cell>>& rows) {
  return rows_html(header, columns_of(header.size(), rows), rows, 0, rows.size());
}

std::string folded_table_html(const std::vector<std::string>& header, const std::vector<std::vector<Cell>>& rows,
                              size_t most, std::string_view what) {
  if (rows.size() <= most) return table_html(header, rows);
  const std::vector<Column> columns = columns_of(header.size(), rows);
  return rows_html(header, columns, rows, 0, most) +
         fmt::format("<details><summary>{} more {}</summary>\n", rows.size() - most, escaped(what)) +
         rows_html(header, columns, rows, most, rows.size()) + "</details>\n";
}

std::string section_html(std::string_view id, std::string_view title, std::string_view body) {
  return fmt::format("<section id={}>\n<h2>{}</h2>\n{}</section>\n", id, escaped(title), body);
}

std::string missing_html(std::string_view id, std::string_view title, std::string_view how) {
  return section_html(id, title, fmt::format("<p class=missing>{}</p>\n", escaped(how)));
}

std::string legend_html(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string html = "<p class=legend>";
  for (const auto& [name, words] : entries)
    html += fmt::format("<span><i class=\"key {}\"></i>{}</span>\n", name, escaped(words));
  return html + "</p>\n";
}

std::string page_html(std::string_view title, std::string_view body) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
      "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=color-scheme content=\"light dark\">\n<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n"
      "<main>\n{}</main>\n</body>\n</html>\n",
      escaped(title), page_files().front().text, body);
}

}  // namespace tessera::report
