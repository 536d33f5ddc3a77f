#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

/// What --help prints: usage, the options that people use first, then all others by subject.
namespace tessera::cli {

/// Headings of --help, in the order in which it prints them.
enum class Heading {
  model,
  mesh,
  training,
  data,
  evaluation,
  checkpoints,
  failures,
  generation,
  comparison,
  measurement,
  program,
  ranks,
  memory,
  output,
};

/// The options that `app` declares from now on stand under `heading`.
void under(CLI::App& app, Heading heading);

/// The options of these names ("mesh") stand on top, in this order.
void use_first(CLI::App& app, const std::vector<const char*>& names);

/// Makes `app` and the commands that are added to it later print this help.
void print_grouped_help(CLI::App& app);

/// The option takes one of these words.
CLI::Option* takes_one_of(CLI::Option* option, const std::vector<std::string>& words);

/// The option may be repeated, each time with one value.
CLI::Option* repeatable(CLI::Option* option);

}  // namespace tessera::cli
