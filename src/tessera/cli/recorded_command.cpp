#include "tessera/cli/recorded_command.h"

#include <filesystem>

namespace tessera::cli {

namespace {

// 0: it is no file.
uint64_t bytes_of_file(const std::string& path) {
  std::error_code failed;
  const uintmax_t bytes = std::filesystem::file_size(path, failed);
  return failed ? 0 : bytes;
}

}  // namespace

Json recorded_command(const CLI::App& app, const SymbolSizes& sizes) {
  Json options = Json::object(), known = Json::object();
  for (const CLI::Option* option : app.get_options())
    if (option->count() > 0) options[option->get_name()] = option->results();
  for (const auto& [name, size] : sizes) known[name] = size;
  Json command = {{"name", app.get_name()},
                  {"folder", std::filesystem::current_path().string()},
                  {"sizes", known},
                  {"options", options}};
  if (options.contains("model") && !options["model"].empty())
    if (const uint64_t bytes = bytes_of_file(options["model"].front().get<std::string>()))
      command["model_bytes"] = bytes;
  return command;
}

RecordedCommand RecordedCommand::read(const std::string& text, const std::string& trace) {
  try {
    const Json json = Json::parse(text);
    RecordedCommand command;
    command.name = json.value("name", "");
    command.folder = json.value("folder", "");
    command.model_bytes = json.value("model_bytes", uint64_t{0});
    if (json.contains("sizes"))
      for (const auto& [name, size] : json["sizes"].items()) command.sizes[name] = size.get<int64_t>();
    if (json.contains("options"))
      for (const auto& [name, values] : json["options"].items())
        command.options[name] = values.get<std::vector<std::string>>();
    if (json.contains("label_dims"))
      for (const auto& [name, dims] : json["label_dims"].items())
        command.label_dims[name] = dims.get<std::vector<int64_t>>();
    return command;
  } catch (const Json::exception& error) {
    throw Error(ErrorKind::user, "whatif",
                trace + ": what it says of the command is damaged (" + error.what() + "); record it again");
  }
}

void RecordedCommand::require_same_model(const std::string& trace) const {
  const std::string model = value("model");
  const uint64_t bytes = bytes_of_file(model);
  if (model_bytes == 0 || bytes == 0 || bytes == model_bytes) return;
  throw Error(ErrorKind::user, "whatif",
              model + " has " + std::to_string(bytes) + " bytes, but had " + std::to_string(model_bytes) + " when " +
                  trace + " was recorded: it is another model by now; record it again");
}

std::string RecordedCommand::value(const std::string& option) const {
  const auto found = options.find(option);
  return found == options.end() || found->second.empty() ? "" : found->second.front();
}

void RecordedCommand::give(CLI::App& app) const {
  for (const auto& [name, values] : options)
    if (app.get_option_no_throw(name)) set_option(app, name, values);
}

void set_option(CLI::App& app, const std::string& name, const std::vector<std::string>& values) {
  CLI::Option* option = app.get_option(name);
  option->clear();
  for (const std::string& value : values) option->add_result(value);
  try {
    if (!values.empty()) option->run_callback();
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorKind::user, "whatif", name + ": " + error.what());
  }
}

}  // namespace tessera::cli
