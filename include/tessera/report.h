#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

/// A page that shows a run, a prediction or a plan in a browser (docs/report.md).
namespace tessera {
inline namespace v1 {

struct ReportSettings {
  /// Rewrites texts that name settings in backticks for the page's readers; null: texts stay as they are.
  std::function<std::string(std::string_view)> words;
};

/// The page, as HTML that needs no other file: what these files hold together. Each is what a command prints with
/// --json, or a trace. Throws a user error that names the file and the fix for one that cannot be read or is neither.
std::string report_page(const std::vector<std::filesystem::path>& files, const ReportSettings& settings = {});

}  // namespace v1
}  // namespace tessera
