// The headers that `make install` installs, and what is said of headers where their users read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

namespace tessera::layers {
namespace {

namespace fs = std::filesystem;
using testing::IsEmpty;

const fs::path kSourceRoot = TESSERA_SOURCE;

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<std::string> matches(const std::string& text, const std::regex& pattern) {
  std::vector<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match)
    found.push_back((*match)[1]);
  return found;
}

std::vector<std::string> included_in(const fs::path& path) {
  static const std::regex include("#include \"(tessera/[^\"]+)\"");
  return matches(text_of(path), include);
}

std::vector<fs::path> files_below(const fs::path& folder, const std::string& extension) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension() == extension) files.push_back(entry.path());
  return files;
}

// As users include them: "tessera/check.h".
std::set<std::string> public_headers() {
  std::set<std::string> headers;
  for (const fs::path& path : files_below(kSourceRoot / "include", ".h"))
    headers.insert(fs::relative(path, kSourceRoot / "include").generic_string());
  return headers;
}

// The public headers, and what they include from src/.
std::set<std::string> installed_headers() {
  std::set<std::string> waiting = public_headers(), installed;
  while (!waiting.empty()) {
    const std::string header = waiting.extract(waiting.begin()).value();
    if (!installed.insert(header).second) continue;
    const fs::path own = kSourceRoot / "include" / header;
    for (const std::string& other : included_in(fs::exists(own) ? own : kSourceRoot / "src" / header))
      waiting.insert(other);
  }
  return installed;
}

TEST(PublicHeaders, each_has_an_example) {
  std::set<std::string> without = public_headers(), waiting;
  for (const fs::path& example : files_below(kSourceRoot / "examples", ".cpp"))
    for (const std::string& header : included_in(example)) waiting.insert(header);
  while (!waiting.empty()) {  // the front header includes others
    const std::string header = waiting.extract(waiting.begin()).value();
    if (without.erase(header) == 0) continue;
    for (const std::string& other : included_in(kSourceRoot / "include" / header)) waiting.insert(other);
  }
  EXPECT_THAT(without, IsEmpty()) << "include it in a program of examples/ that shows what it is for";
}

TEST(PublicHeaders, the_command_includes_no_others) {
  const std::set<std::string> installed = installed_headers();
  std::vector<std::string> others;
  std::vector<fs::path> sources = files_below(kSourceRoot / "src/tessera/cli", ".cpp");
  for (const fs::path& header : files_below(kSourceRoot / "src/tessera/cli", ".h")) sources.push_back(header);
  for (const fs::path& path : sources)
    for (const std::string& header : included_in(path))
      if (!header.starts_with("tessera/cli/") && !installed.contains(header))
        others.push_back(fs::relative(path, kSourceRoot).generic_string() + ": " + header);
  EXPECT_THAT(others, IsEmpty()) << "what the command needs, others need, too: make it public, or do without";
}

// The library's messages name settings as its structures do, in backticks; the command shows its options instead.
TEST(Messages, name_settings_and_no_options) {
  static const std::regex literal(R"re(("(?:[^"\\\n]|\\.)*"))re"), comment("//[^\n]*"), option(R"((^|[^-a-z])--[a-z])"),
      named("[^`a-z]`([A-Za-z_:]+)"), known("Setting\\{\"([A-Za-z_:]+)\"");
  const std::vector<std::string> listed = matches(text_of(kSourceRoot / "src/tessera/cli/settings.cpp"), known);
  const std::set<std::string> settings(listed.begin(), listed.end());
  std::vector<fs::path> files = files_below(kSourceRoot / "src/tessera", ".cpp");
  for (fs::path& header : files_below(kSourceRoot / "src/tessera", ".h")) files.push_back(std::move(header));
  std::set<std::string> used;
  std::vector<std::string> wrong;
  for (const fs::path& path : files) {
    const std::string name = fs::relative(path, kSourceRoot / "src/tessera").generic_string();
    if (name.starts_with("cli/")) continue;
    for (const std::string& text : matches(std::regex_replace(text_of(path), comment, ""), literal)) {
      if (std::regex_search(text, option)) wrong.push_back(name + ": " + text);
      for (const std::string& setting : matches(text, named)) {
        used.insert(setting);
        if (!settings.contains(setting)) wrong.push_back(name + ": " + text);
      }
    }
  }
  EXPECT_THAT(wrong, IsEmpty()) << "name the setting, as `memory_limit`, and list it in cli/settings.cpp";
  EXPECT_GT(used.size(), 20u);
}

TEST(PublicHeaders, readers_are_sent_to_no_other_headers) {
  static const std::set<std::string> for_developers = {"architecture.md", "devices.md", "roadmap.md"};
  static const std::regex header(R"(([\w/]*\w\w\.h)\b)");
  const std::set<std::string> installed = installed_headers();
  std::vector<fs::path> texts = files_below(kSourceRoot / "docs", ".md");
  texts.push_back(kSourceRoot / "README.md");
  std::erase_if(texts, [](const fs::path& path) { return for_developers.contains(path.filename()); });
  for (const std::string& path : installed)
    texts.push_back(fs::exists(kSourceRoot / "include" / path) ? kSourceRoot / "include" / path
                                                               : kSourceRoot / "src" / path);
  std::vector<std::string> others;
  for (const fs::path& path : texts)
    for (const std::string& cited : matches(text_of(path), header))
      if (!installed.contains(cited) && !installed.contains("tessera/" + cited))
        others.push_back(fs::relative(path, kSourceRoot).generic_string() + ": " + cited);
  EXPECT_THAT(others, IsEmpty()) << "say what is meant: these are not installed";
}

}  // namespace
}  // namespace tessera::layers
