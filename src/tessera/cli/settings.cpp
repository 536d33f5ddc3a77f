#include "tessera/cli/settings.h"

#include <algorithm>
#include <array>
#include <optional>

namespace tessera::cli {
namespace {

/// Settings that the library's messages name, and the words for them here; "": the setting's name, as --memory-limit.
struct Setting {
  std::string_view name, words = {};
};
constexpr std::array kSettings = {
    Setting{"Program::read", "tessera run, check or bench"},
    Setting{"Program::write", "tessera shard -o"},
    Setting{"Session", "tessera run or verify"},
    Setting{"annotations", "--annotate"},
    Setting{"average"},
    Setting{"batch"},
    Setting{"batch_norm"},
    Setting{"changed_models", "tessera check --accept"},
    Setting{"check_annotations", "tessera check"},
    Setting{"clip"},
    Setting{"cluster"},
    Setting{"compile", "--dry-run"},
    Setting{"data"},
    Setting{"details"},
    Setting{"devices"},
    Setting{"dialect"},
    Setting{"document_separator"},
    Setting{"dropout"},
    Setting{"dtype"},
    Setting{"engine"},
    Setting{"form"},
    Setting{"freeze"},
    Setting{"held_out"},
    Setting{"init"},
    Setting{"inputs"},
    Setting{"Inspection::weights", "tessera inspect --weights"},
    Setting{"inspect", "tessera inspect"},
    Setting{"json"},
    Setting{"keep_gathered"},
    Setting{"labels"},
    Setting{"loss"},
    Setting{"lower"},
    Setting{"machine", "--machine FILE or --cluster NAME"},
    Setting{"memory_limit"},
    Setting{"memory_plan"},
    Setting{"mesh"},
    Setting{"micro_batches"},
    Setting{"most", "--max"},
    Setting{"no_decay"},
    Setting{"optimizer"},
    Setting{"order"},
    Setting{"other_data"},
    Setting{"output"},
    Setting{"overlap"},
    Setting{"own"},
    Setting{"partial_sums"},
    Setting{"per_host"},
    Setting{"pipeline"},
    Setting{"places", "--place"},
    Setting{"presets", "--preset"},
    Setting{"profile"},
    Setting{"rank_id"},
    Setting{"rank_type"},
    Setting{"rate_factors", "--lr-factor"},
    Setting{"recompute"},
    Setting{"ring_attention"},
    Setting{"seed"},
    Setting{"sequence"},
    Setting{"shapes"},
    Setting{"spawn"},
    Setting{"stages"},
    Setting{"states", "--state"},
    Setting{"steps"},
    Setting{"storage", "--store"},
    Setting{"tie"},
    Setting{"trace"},
    Setting{"train"},
    Setting{"with_sizes", "tessera shard --fix"},
};

std::optional<std::string> words_for(std::string_view setting) {
  const auto known =
      std::find_if(kSettings.begin(), kSettings.end(), [&](const Setting& each) { return each.name == setting; });
  if (known == kSettings.end()) return std::nullopt;
  if (!known->words.empty()) return std::string(known->words);
  std::string option = "--" + std::string(setting);
  std::replace(option.begin(), option.end(), '_', '-');
  return option;
}

}  // namespace

std::string with_options(std::string_view message) {
  std::string text;
  while (true) {
    const size_t open = message.find('`');
    const size_t close = open == std::string_view::npos ? open : message.find('`', open + 1);
    if (close == std::string_view::npos) return text + std::string(message);
    text += message.substr(0, open);
    const std::string_view quoted = message.substr(open + 1, close - open - 1);
    const std::string_view setting = quoted.substr(0, quoted.find('='));
    if (const std::optional<std::string> words = words_for(setting)) {
      text += *words;
      text += quoted.substr(setting.size());
      message.remove_prefix(close + 1);
    } else {  // a name of the user's; its end may begin another
      text += message.substr(open, close - open);
      message.remove_prefix(close);
    }
  }
}

std::string option_of(std::string_view setting) {
  return words_for(setting).value_or(std::string(setting));
}

}  // namespace tessera::cli
