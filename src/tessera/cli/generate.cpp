#include <algorithm>
#include <iostream>
#include <numeric>
#include <utility>

#include "tessera/cli/command.h"
#include "tessera/cli/latency.h"
#include "tessera/cli/models.h"
#include "tessera/cli/options.h"
#include "tessera/cli/program_tables.h"
#include "tessera/cli/progress.h"
#include "tessera/generation.h"
#include "tessera/profile.h"

namespace tessera::cli {
namespace {

constexpr int64_t kBytes = 256;

const std::vector<std::pair<std::string, CacheForm>>& cache_forms() {
  static const std::vector<std::pair<std::string, CacheForm>> all = {
      {"held", CacheForm::held}, {"handed", CacheForm::handed}, {"none", CacheForm::none}};
  return all;
}

std::string name_of(CacheForm form) {
  for (const auto& [name, value] : cache_forms())
    if (value == form) return name;
  return "";
}

[[noreturn]] void fail_asked(const std::string& message) {
  throw Error(ErrorKind::user, "generate", message);
}

// "262" in a list.
std::vector<int64_t> parse_ids(const std::string& text) {
  std::vector<int64_t> ids;
  size_t at = 0;
  while (at <= text.size()) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, comma - at);
    if (item.empty() || item.size() > 18 || item.find_first_not_of("0123456789") != std::string::npos)
      fail_asked("'" + text + "' is no list of tokens; write their numbers, as 15,7,42");
    ids.push_back(std::stoll(item));
    at = comma + 1;
  }
  return ids;
}

std::string text_of(const std::vector<int64_t>& ids) {
  std::string text;
  for (int64_t id : ids) text += static_cast<char>(id);
  return text;
}

std::string list_of(const std::vector<int64_t>& ids) {
  std::vector<std::string> items;
  for (int64_t id : ids) items.push_back(std::to_string(id));
  return joined(items, " ");
}

double median_of(std::vector<double> times) {
  if (times.empty()) return 0;
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

class Generate : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("model", model_, "an ONNX file: a decoder")->required();
    plan_.declare(app);
    app.add_option("--prompt", prompts_,
                   "a .npz or .npy file of token ids: an array [length] is a prompt, an array [count, length] are "
                   "several. Of a tokenizer's input_ids and attention_mask, the ids that the mask shows");
    app.add_option("--ids", ids_, "a prompt as token ids, 15,7,42; may be repeated")->allow_extra_args(false);
    app.add_option("--text", texts_,
                   "a prompt as text, of a byte-level model; may be repeated. The answer is text then, too")
        ->allow_extra_args(false);
    app.add_option("--max-new", asked_.max_new, "tokens that a text gains at most")
        ->check(above_zero())
        ->capture_default_str();
    app.add_option("--stop", stop_, "tokens that end a text, 0,2");
    app.add_option("--temperature", asked_.sampling.temperature,
                   "logits are divided by it; 0: the likeliest token is taken")
        ->check(non_negative())
        ->capture_default_str();
    app.add_option("--top-k", asked_.sampling.top_k, "only the k likeliest tokens count; 0: all")
        ->check(zero_or_more())
        ->capture_default_str();
    app.add_option("--top-p", asked_.sampling.top_p, "only the likeliest count that have this probability together")
        ->capture_default_str();
    app.add_option("--seed", asked_.sampling.seed, "of the random choice")->capture_default_str();
    app.add_option("--batch", batch_, "texts that run together; by default, all")->check(above_zero());
    app.add_option("--capacity", capacity_,
                   "tokens for which caches have room; by default, as many as the longest text may get")
        ->check(above_zero());
    app.add_option("--cache", cache_,
                   "the best that is tried: held (in states of the ranks), handed (from run to run), none (each token "
                   "takes a run over the whole text)")
        ->check(CLI::IsMember({"held", "handed", "none"}))
        ->capture_default_str();
    app.add_option("--inputs", inputs_, "a .npz file with arrays for inputs that a generator cannot make");
    app.add_option("--outputs", outputs_, "a .npz file to write: the new tokens of prompt i as the array ids_i");
    app.add_option("--emit", emit_,
                   "writes the model whose caches are states, for run, shard, check and verify with --state "
                   "'*=next.*', and generates nothing; --batch and --capacity say for which texts");
    run_.declare(app);
  }

  int run(Console& console) override {
    if (std::optional<int> ended = run_.begin(console, "generate")) return *ended;
    if (!outputs_.empty() && console.speaks()) require_writable(outputs_);
    if (!emit_.empty()) return emit_model(console);
    const std::vector<std::vector<int64_t>> prompts = given_prompts();
    if (!stop_.empty()) asked_.stop = parse_ids(stop_);
    require_asked(prompts, asked_);
    Model model = load_whole();
    Plan plan = plan_.plan(model, console);
    GeneratorOptions options;
    options.caches = std::exchange(plan.states, {});
    options.batch = batch_ > 0 ? batch_ : static_cast<int64_t>(prompts.size());
    options.best = best();
    options.capacity = capacity_ > 0 ? capacity_ : room_for(prompts);
    options.constants = constants_for(model);
    const Mesh mesh = plan_.mesh(plan);
    CompileOptions compiled;
    compiled.topology = plan_.topology();
    const Clock::time_point start = Clock::now();
    Generator generator = [&] {
      Progress progress(console, "loading");
      return Generator(model, mesh, plan, options, compiled, run_.session(console));
    }();
    const double load_ms = milliseconds_since(start);
    if (!texts_.empty() && generator.vocabulary() >= 0 && generator.vocabulary() != kBytes)
      fail_asked("--text wants a byte-level model, with 256 tokens; this one has " +
                 std::to_string(generator.vocabulary()) + ", so give their numbers with --ids or --prompt");
    generator.require(prompts, asked_);
    note(console, generator, options);
    const bool streams = !console.json && prompts.size() == 1 && console.speaks();
    if (streams && !texts_.empty()) std::cout << texts_.front() << std::flush;
    std::string_view separator;
    const Generation made = generator.generate(prompts, asked_, [&](size_t, int64_t token) {
      if (!streams) return;
      if (texts_.empty())
        std::cout << std::exchange(separator, " ") << token << std::flush;
      else
        std::cout << static_cast<char>(token) << std::flush;
    });
    if (!console.speaks()) return kGood;
    if (streams) std::cout << std::endl;
    if (!outputs_.empty()) write(made);
    const MachineFloor floor = console.quiet ? MachineFloor{} : floor_of(model, plan, generator);
    if (console.json)
      emit(console, generator, made, floor, load_ms);
    else
      print(console, generator, made, floor, streams);
    return kGood;
  }

 private:
  /// The time in which the memory delivers the weights that a token needs.
  struct MachineFloor {
    double ms = 0, bytes = 0, bandwidth = 0;
  };

  Model load_whole() const {
    std::vector<Model> models = load_models(model_);
    if (models.size() != 1) fail_asked(model_ + " are the models of ranks; name the one that they were made from");
    return models.front();
  }

  Tensors constants_for(const Model& model) const {
    return inputs_.empty() ? Tensors{} : read_tensors(inputs_, "input", model.inputs(), run_.memory.bytes());
  }

  int emit_model(const Console& console) const {
    if (!prompts_.empty() || !ids_.empty() || !texts_.empty())
      fail_asked("--emit generates nothing; give no prompts with it");
    if (batch_ == 0 || capacity_ == 0) fail_asked("--emit wants --batch and --capacity, which are the caches' extents");
    Model model = load_whole();
    const GeneratorOptions options{.batch = batch_,
                                   .capacity = capacity_,
                                   .caches = plan_.plan(model, console).states,
                                   .constants = constants_for(model)};
    const Model held = held_decoder(model, options);
    if (!console.speaks()) return kGood;
    held.write(emit_);
    if (console.json)
      console.emit({{"model", model_}, {"batch", batch_}, {"capacity", capacity_}, {"written", emit_}});
    else
      console.note("wrote " + emit_);
    return kGood;
  }

  std::vector<std::vector<int64_t>> given_prompts() const {
    if ((prompts_.empty() ? 0 : 1) + (ids_.empty() ? 0 : 1) + (texts_.empty() ? 0 : 1) != 1)
      fail_asked("give prompts in one way: --prompt FILE, --ids 15,7,42, or --text TEXT");
    if (!prompts_.empty()) return read_prompts(prompts_);
    std::vector<std::vector<int64_t>> prompts;
    for (const std::string& ids : ids_) prompts.push_back(parse_ids(ids));
    for (const std::string& text : texts_) {
      prompts.emplace_back();
      for (char byte : text) prompts.back().push_back(static_cast<unsigned char>(byte));
    }
    return prompts;
  }

  CacheForm best() const {
    for (const auto& [name, form] : cache_forms())
      if (name == cache_) return form;
    fail_asked("--cache is held, handed or none");
  }

  int64_t room_for(const std::vector<std::vector<int64_t>>& prompts) const {
    size_t longest = 0;
    for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
    return std::max<int64_t>(2, static_cast<int64_t>(longest) + asked_.max_new);
  }

  MachineFloor floor_of(const Model& model, const Plan& plan, const Generator& generator) const {
    SymbolSizes sizes;
    for (const TensorInfo& input : model.inputs())
      if (input.name == generator.program().inputs().front().name && input.shape.size() == 2)
        for (const std::string& symbol : model.symbols())
          if (symbol == input.shape[1]) sizes[symbol] = 1;
    MachineFloor floor;
    const Inspection inspection = inspect(model, sizes);
    const bool narrowed = plan.dtype && *plan.dtype != DType::float32 && inspection.compute == DType::float32;
    floor.bytes = static_cast<double>(inspection.parameter_bytes_read) * (narrowed ? 0.5 : 1);
    const int threads = generator.threads_per_rank() * static_cast<int>(generator.program().mesh().size());
    floor.bandwidth = measure_peak(DType::float32, std::min(threads, machine().cores)).bandwidth;
    if (floor.bandwidth > 0) floor.ms = floor.bytes / floor.bandwidth * 1e3;
    return floor;
  }

  void note(const Console& console, const Generator& generator, const GeneratorOptions& options) const {
    console.note(generator.program().summary());
    console.note("mesh " + mesh_text(generator.program().mesh()) + ", " + std::to_string(generator.threads_per_rank()) +
                 (generator.threads_per_rank() == 1 ? " thread" : " threads") + " each");
    switch (generator.form()) {
      case CacheForm::held:
        console.note("caches for " + std::to_string(options.capacity) + " tokens" +
                     (generator.given_caches() ? ", which the model did not have," : "") + " take " +
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

  static std::string because(const Generator& generator) {
    return generator.reason().empty() ? "" : ": " + generator.reason();
  }

  void write(const Generation& made) const {
    Tensors arrays;
    for (size_t i = 0; i < made.texts.size(); ++i) {
      const auto length = static_cast<int64_t>(made.texts[i].ids.size());
      arrays["ids_" + std::to_string(i)] = Tensor::of(DType::int64, {length}, made.texts[i].ids);
    }
    write_tensors(outputs_, arrays);
  }

  static double total_of(const std::vector<double>& times) { return std::accumulate(times.begin(), times.end(), 0.0); }
  static size_t tokens_of(const Generation& made) {
    size_t tokens = 0;
    for (const GeneratedText& text : made.texts) tokens += text.ids.size();
    return tokens;
  }
  // Tokens that runs after those over prompts made, per second.
  static double rate_of(const Generation& made) {
    const double ms = total_of(made.decode_ms);
    return ms > 0 ? static_cast<double>(tokens_of(made) - made.texts.size()) / ms * 1e3 : 0;
  }

  void print(const Console& console, const Generator& generator, const Generation& made, const MachineFloor& floor,
             bool streamed) const {
    for (size_t i = 0; !streamed && i < made.texts.size(); ++i)
      console.say(texts_.empty() ? list_of(made.texts[i].ids) : texts_[i] + text_of(made.texts[i].ids));
    if (!outputs_.empty()) console.note("wrote " + outputs_);
    console.note("prefill " + time_text(made.prefill_ms * 1e-3) + " for " + std::to_string(made.prefill_tokens) +
                 " tokens");
    if (made.decode_ms.empty()) return;
    const double median = median_of(made.decode_ms);
    std::string line = "decode " + time_text(median * 1e-3) + " per token, " + ratio_text(rate_of(made)) + " tokens/s";
    if (floor.ms > 0)
      line += "; the weights, " + bytes_text(floor.bytes) + " at " + bytes_text(floor.bandwidth) + "/s, take " +
              time_text(floor.ms * 1e-3);
    if (generator.form() == CacheForm::held)
      line += "; caches, " + bytes_text(static_cast<double>(generator.cache_bytes())) + " per rank";
    console.note(line);
  }

  void emit(const Console& console, const Generator& generator, const Generation& made, const MachineFloor& floor,
            double load_ms) const {
    Json texts = Json::array();
    for (size_t i = 0; i < made.texts.size(); ++i) {
      Json text = {{"ids", made.texts[i].ids}, {"stopped", made.texts[i].stopped}};
      texts.push_back(text);
    }
    const ProgramSummary& summary = generator.program().summary();
    Json object = {
        {"model", model_},
        {"mesh", mesh_json(generator.program().mesh())},
        {"threads_per_rank", generator.threads_per_rank()},
        {"texts", texts},
        {"cache", name_of(generator.form())},
        {"cache_reason", generator.reason()},
        {"cache_given", generator.given_caches()},
        {"cache_bytes", generator.cache_bytes()},
        {"seed", asked_.sampling.seed},
        {"load_ms", load_ms},
        {"prefill_ms", made.prefill_ms},
        {"prefill_tokens", made.prefill_tokens},
        {"decode_ms",
         {{"min", made.decode_ms.empty() ? 0 : *std::min_element(made.decode_ms.begin(), made.decode_ms.end())},
          {"median", median_of(made.decode_ms)},
          {"total", total_of(made.decode_ms)}}},
        {"tokens_per_second", rate_of(made)},
        {"floor_ms", floor.ms > 0 ? Json(floor.ms) : Json()},
        {"collectives", collectives_json(summary)},
        {"notes", summary.notes},
        {"warnings", summary.warnings}};
    if (!outputs_.empty()) object["written"] = outputs_;
    console.emit(object);
  }

  std::string model_, prompts_, stop_, cache_ = "held", inputs_, outputs_, emit_;
  std::vector<std::string> ids_, texts_;
  int64_t batch_ = 0, capacity_ = 0;
  GenerationOptions asked_;
  PlanOptions plan_;
  RunOptions run_;
};

}  // namespace

std::unique_ptr<Command> make_generate() {
  return std::make_unique<Generate>();
}

}  // namespace tessera::cli
