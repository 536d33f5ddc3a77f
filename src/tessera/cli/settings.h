#pragma once

#include <string>
#include <string_view>

namespace tessera::cli {

/// A message of the library, with the command's options in place of the settings that it names: "`memory_limit`" is
/// --memory-limit there, and "`dropout=on`" is --dropout=on.
std::string with_options(std::string_view message);

/// The option of a setting of the library: "--lr-factor" of "rate_factors".
std::string option_of(std::string_view setting);

}  // namespace tessera::cli
