#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/cli/command.h"
#include "tessera/cli/time_options.h"
#include "tessera/generation.h"

/// What `tessera generate` says of texts and times.
namespace tessera::cli {

/// The time in which the memory delivers what a token needs.
struct GenerationFloor {
  double weight_bytes = 0;
  double cache_bytes = 0;  ///< of the tokens that held caches have halfway through; 0 for other forms
  double bandwidth = 0;    ///< bytes per second; 0: it was not measured

  double weights_ms() const { return ms_of(weight_bytes); }
  double all_ms() const { return ms_of(weight_bytes + cache_bytes); }

 private:
  double ms_of(double bytes) const { return bandwidth > 0 ? bytes / bandwidth * 1e3 : 0; }
};

/// Measures this machine for about a second.
GenerationFloor floor_of(const Model& model, const Plan& plan, const Generator& generator,
                         const std::vector<std::vector<int64_t>>& prompts, const Generation& made);

/// A list of tokens, "15 7 42", and the text that they are the bytes of.
std::string list_of(const std::vector<int64_t>& ids);
std::string text_of(const std::vector<int64_t>& ids);

/// What a machine file predicts.
struct GenerationForecast {
  Forecast prefill;    ///< of the prompts that run together first
  Forecast decode;     ///< of one token for each text
  bool is_all = true;  ///< all prompts run together
};

struct GenerationReport {
  const std::string& model;
  const std::vector<std::string>& texts;  ///< the prompts, if they are texts
  const std::string& written;             ///< a file; "": none
  const Generator& generator;
  const Generation& made;
  const GenerationFloor& floor;
  uint64_t seed = 0;
  double load_ms = 0;
  int64_t process_ranks = 1;
  std::optional<GenerationForecast> forecast;

  /// `streamed`: the texts are on the terminal already.
  void print(const Console& console, bool streamed) const;
  void print_json(const Console& console) const;

 private:
  void print_forecast(const Console& console) const;
};

/// "held", "handed", "none".
const std::vector<std::pair<std::string, CacheForm>>& cache_forms();

/// Tells the plan and where caches are, before texts are made.
void note_generator(const Console& console, const Generator& generator);

}  // namespace tessera::cli
