#include "tessera/cli/generation_report.h"

#include <algorithm>
#include <numeric>

#include "tessera/cli/latency.h"
#include "tessera/cli/program_tables.h"
#include "tessera/inspect.h"
#include "tessera/profile.h"

namespace tessera::cli {
namespace {

std::string name_of(CacheForm form) {
  for (const auto& [name, value] : cache_forms())
    if (value == form) return name;
  return "";
}

double median_of(const std::vector<double>& times) {
  return times.empty() ? 0 : Latency(times).median;
}
double total_of(const std::vector<double>& times) {
  return std::accumulate(times.begin(), times.end(), 0.0);
}
size_t tokens_of(const Generation& made) {
  size_t tokens = 0;
  for (const GeneratedText& text : made.texts) tokens += text.ids.size();
  return tokens;
}
// Tokens that runs after those over prompts made, per second.
double rate_of(const Generation& made) {
  const double ms = total_of(made.decode_ms);
  return ms > 0 ? static_cast<double>(tokens_of(made) - made.texts.size()) / ms * 1e3 : 0;
}

std::string because(const Generator& generator) {
  return generator.reason().empty() ? "" : ": " + generator.reason();
}

/// The bytes of all ranks' caches that hold the tokens of a text that is half made.
double bytes_held(const Generator& generator, const std::vector<std::vector<int64_t>>& prompts,
                  const Generation& made) {
  if (generator.form() != CacheForm::held || prompts.empty()) return 0;
  double tokens = static_cast<double>(tokens_of(made)) / 2;
  for (const std::vector<int64_t>& prompt : prompts) tokens += static_cast<double>(prompt.size());
  const double share = tokens / static_cast<double>(prompts.size()) / static_cast<double>(generator.capacity());
  double bytes = 0;
  for (const StateInfo& state : generator.program().states()) {
    if (!state.changes) continue;
    double elements = 1;
    for (const std::string& extent : state.tensor.shape) elements *= std::stod(extent);
    bytes += elements * static_cast<double>(bits_of(state.tensor.dtype)) / 8;
  }
  return bytes * std::min(share, 1.0);
}

}  // namespace

const std::vector<std::pair<std::string, CacheForm>>& cache_forms() {
  static const std::vector<std::pair<std::string, CacheForm>> all = {
      {"held", CacheForm::held}, {"handed", CacheForm::handed}, {"none", CacheForm::none}};
  return all;
}

std::string list_of(const std::vector<int64_t>& ids) {
  std::vector<std::string> items;
  for (int64_t id : ids) items.push_back(std::to_string(id));
  return joined(items, " ");
}

std::string text_of(const std::vector<int64_t>& ids) {
  std::string text;
  for (int64_t id : ids) text += static_cast<char>(id);
  return text;
}

GenerationFloor floor_of(const Model& model, const Plan& plan, const Generator& generator,
                         const std::vector<std::vector<int64_t>>& prompts, const Generation& made) {
  SymbolSizes sizes;
  for (const TensorInfo& input : model.inputs())
    if (input.name == generator.program().inputs().front().name && input.shape.size() == 2)
      for (const std::string& symbol : model.symbols())
        if (symbol == input.shape[1]) sizes[symbol] = 1;
  const Inspection inspection = inspect(model, sizes);
  const bool narrowed = plan.dtype && *plan.dtype != DType::float32 && inspection.compute == DType::float32;
  const int threads = generator.threads_per_rank() * static_cast<int>(generator.program().mesh().size());
  return {.weight_bytes = static_cast<double>(inspection.parameter_bytes_read) * (narrowed ? 0.5 : 1),
          .cache_bytes = bytes_held(generator, prompts, made),
          .bandwidth = measure_peak(DType::float32, std::min(threads, machine().cores)).bandwidth};
}

void note_generator(const Console& console, const Generator& generator) {
  console.note(generator.program().summary());
  console.note("mesh " + mesh_text(generator.program().mesh()) + ", " +
               counted(generator.threads_per_rank(), "thread") + " each");
  switch (generator.form()) {
    case CacheForm::held:
      console.note("caches for " + std::to_string(generator.capacity()) + " tokens" +
                   (generator.given_caches() ? ", which the model itself lacks," : "") + " take " +
                   bytes_text(static_cast<double>(generator.cache_bytes())) + " of each rank");
      break;
    case CacheForm::handed:
      console.note("caches go from run to run" + because(generator));
      break;
    case CacheForm::none:
      console.note("each token takes a run over the whole text" + because(generator));
      break;
  }
}

void GenerationReport::print(const Console& console, bool streamed) const {
  for (size_t i = 0; !streamed && i < made.texts.size(); ++i)
    console.say(texts.empty() ? list_of(made.texts[i].ids) : texts[i] + text_of(made.texts[i].ids));
  if (!written.empty()) console.note("wrote " + written);
  console.note("at its peak a process needs " + bytes_text(static_cast<double>(generator.process_bytes())));
  console.note("prefill " + time_text(made.prefill_ms * 1e-3) + " for " + counted(made.prefill_tokens, "token") +
               ", after " + time_text(load_ms * 1e-3) + " of compiling and loading");
  if (forecast && !console.quiet) print_forecast(console);
  if (made.decode_ms.empty()) return;
  const double median = median_of(made.decode_ms);
  std::string line = "decode " + time_text(median * 1e-3) + " per token, " + ratio_text(rate_of(made)) + " tokens/s";
  if (floor.bandwidth > 0) {
    line += "; the weights, " + bytes_text(floor.weight_bytes) + " at " + bytes_text(floor.bandwidth) + "/s, take " +
            time_text(floor.weights_ms() * 1e-3);
    if (floor.cache_bytes > 0) line += ", and with what caches hold " + time_text(floor.all_ms() * 1e-3);
  }
  if (generator.form() == CacheForm::held)
    line += "; caches, " + bytes_text(static_cast<double>(generator.cache_bytes())) + " per rank";
  console.note(line);
}

void GenerationReport::print_forecast(const Console& console) const {
  console.note("prefill" + std::string(forecast->is_all ? "" : " of the prompts that run first"));
  cli::print_forecast(console, forecast->prefill);
  if (forecast->is_all) console.note(compared_text(forecast->prefill.prediction, made.prefill_ms));
  console.note("decode, one token for each text");
  cli::print_forecast(console, forecast->decode);
  if (!made.decode_ms.empty()) console.note(compared_text(forecast->decode.prediction, median_of(made.decode_ms)));
}

void GenerationReport::print_json(const Console& console) const {
  Json continued = Json::array();
  for (const GeneratedText& text : made.texts) {
    Json object = {{"ids", text.ids}, {"stopped", text.stopped}};
    continued.push_back(object);
  }
  const bool measured = floor.bandwidth > 0;
  const ProgramSummary& summary = generator.program().summary();
  Json object = {
      {"model", model},
      {"mesh", mesh_json(generator.program().mesh())},
      {"threads_per_rank", generator.threads_per_rank()},
      {"texts", continued},
      {"cache", name_of(generator.form())},
      {"cache_reason", generator.reason()},
      {"cache_given", generator.given_caches()},
      {"cache_bytes", generator.cache_bytes()},
      {"process", process_json(process_ranks, generator.process_bytes())},
      {"capacity", generator.form() == CacheForm::held ? Json(generator.capacity()) : Json()},
      {"seed", seed},
      {"load_ms", load_ms},
      {"prefill_ms", made.prefill_ms},
      {"prefill_tokens", made.prefill_tokens},
      {"decode_ms",
       {{"min", made.decode_ms.empty() ? 0 : *std::min_element(made.decode_ms.begin(), made.decode_ms.end())},
        {"median", median_of(made.decode_ms)},
        {"total", total_of(made.decode_ms)}}},
      {"tokens_per_second", rate_of(made)},
      {"floor_ms", measured ? Json(floor.weights_ms()) : Json()},
      {"floor_with_caches_ms", measured ? Json(floor.all_ms()) : Json()},
      {"collectives", collectives_json(summary)},
      {"notes", summary.notes},
      {"warnings", summary.warnings}};
  if (!written.empty()) object["written"] = written;
  if (forecast)
    object["predicted"] = {{"prefill", forecast_json(forecast->prefill)}, {"decode", forecast_json(forecast->decode)}};
  console.emit(object);
}

}  // namespace tessera::cli
