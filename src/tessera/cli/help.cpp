#include "tessera/cli/help.h"

#include <algorithm>
#include <array>
#include <map>
#include <sstream>

#include "tessera/cli/console.h"

namespace tessera::cli {
namespace {

// One for each Heading.
constexpr std::array kHeadings = {"Model and inputs", "Mesh and layout", "Training",   "Training data",  "Evaluation",
                                  "Checkpoints",      "Failures",        "Generation", "Comparison",     "Measurement",
                                  "Written program",  "Ranks",           "Memory",     "Output and logs"};
static_assert(kHeadings.size() == static_cast<size_t>(Heading::output) + 1);

using Options = std::vector<const CLI::Option*>;

// By command. Filled while commands declare their options, which live as long as the process.
std::map<const CLI::App*, Options>& first_options() {
  static std::map<const CLI::App*, Options> all;
  return all;
}

constexpr size_t kWidest = 100;     // columns of a line, at most
constexpr size_t kTextColumn = 28;  // where descriptions begin

// `text` in words, the first at `column`; further lines begin at `indent`.
std::string flowed(const std::string& text, size_t column, size_t indent) {
  const size_t width = std::min(columns_of_terminal(kWidest), kWidest);
  std::istringstream words(text);
  std::string out;
  for (std::string word; words >> word;) {
    const bool is_first = column == indent;
    if (!is_first && column + 1 + width_of(word) > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!is_first) {
      out += ' ';
      ++column;
    }
    out += word;
    column += width_of(word);
  }
  return out + "\n";
}

std::string entry(const std::string& label, const std::string& text) {
  const std::string start = "  " + label;
  const size_t used = width_of(start);
  const bool fits = used < kTextColumn;
  return start + (fits ? "" : "\n") + std::string(fits ? kTextColumn - used : kTextColumn, ' ') +
         flowed(text, kTextColumn, kTextColumn);
}

// "-o, --output FOLDER"
std::string label_of(const CLI::Option& option) {
  std::string label = option.get_positional() ? option.get_name(true, false) : option.get_name(false, true);
  if (const size_t comma = label.find(','); comma != std::string::npos) label.insert(comma + 1, " ");
  if (option.get_type_size() == 0) return label;
  static const std::map<std::string, std::string> kWords = {{"INT", "N"}, {"UINT", "N"}, {"FLOAT", "X"}};
  const std::string type = option.get_type_name();
  const auto word = kWords.find(type);
  return label + " " + (word == kWords.end() ? type : word->second);
}

std::string description_of(const CLI::Option& option) {
  std::vector<std::string> notes;
  if (option.get_required() && !option.get_positional()) notes.emplace_back("required");
  if (!option.get_default_str().empty()) notes.push_back("default: " + option.get_default_str());
  if (option.get_expected_max() == CLI::detail::expected_max_vector_size) notes.emplace_back("repeatable");
  for (const CLI::Option* other : option.get_excludes()) notes.push_back("not with " + other->get_name());
  return option.get_description() + (notes.empty() ? "" : " [" + joined(notes) + "]");
}

std::string entries_of(const Options& options) {
  std::string text;
  for (const CLI::Option* option : options) text += entry(label_of(*option), description_of(*option));
  return text;
}

std::string commands_of(const CLI::App& app) {
  std::string text;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    text += entry(command->get_name(), command->get_description());
  return text;
}

std::string help_of(const CLI::App* app, const std::string& name, CLI::AppFormatMode) {
  const Options named = app->get_options([](const CLI::Option* option) { return option->get_positional(); });
  const std::string commands = commands_of(*app);
  std::string usage = "Usage: " + name + " [options]";
  for (const CLI::Option* option : named) usage += " " + option->get_name(true, false);
  if (!commands.empty()) usage += named.empty() ? " COMMAND" : ", or " + name + " COMMAND";
  std::string text = usage + "\n\n" + flowed(app->get_description(), 0, 0);
  if (!named.empty()) text += "\n" + entries_of(named);
  if (!commands.empty()) text += "\nCommands (" + name + " COMMAND --help describes one):\n" + commands;
  const Options& first = first_options()[app];
  if (!first.empty()) text += "\nMost used options:\n" + entries_of(first);
  for (const char* heading : kHeadings) {
    const Options options = app->get_options([&](const CLI::Option* option) {
      const bool is_first = std::find(first.begin(), first.end(), option) != first.end();
      return option->nonpositional() && option->get_group() == heading && !is_first;
    });
    if (!options.empty()) text += std::string("\n") + heading + ":\n" + entries_of(options);
  }
  return text;
}

}  // namespace

void under(CLI::App& app, Heading heading) {
  app.option_defaults()->group(kHeadings[static_cast<size_t>(heading)]);
}

void use_first(CLI::App& app, const std::vector<const char*>& names) {
  for (const char* name : names) first_options()[&app].push_back(app.get_option(std::string("--") + name));
}

void print_grouped_help(CLI::App& app) {
  app.formatter_fn(help_of);
}

CLI::Option* takes_one_of(CLI::Option* option, const std::vector<std::string>& words) {
  const auto refusal = [words](const std::string& text) {
    const bool is_one = std::find(words.begin(), words.end(), text) != words.end();
    return is_one ? std::string() : "'" + text + "' must be one of " + joined(words);
  };
  return option->check(CLI::Validator(refusal, ""))->type_name(joined(words, "|"));
}

CLI::Option* repeatable(CLI::Option* option) {
  return option->allow_extra_args(false)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

}  // namespace tessera::cli
