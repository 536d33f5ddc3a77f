#include <algorithm>
#include <iostream>
#include <limits>
#include <utility>

#include "tessera/cli/command.h"
#include "tessera/cli/generation_report.h"
#include "tessera/cli/help.h"
#include "tessera/cli/latency.h"
#include "tessera/cli/models.h"
#include "tessera/cli/options.h"
#include "tessera/cli/path_options.h"
#include "tessera/cli/progress.h"

namespace tessera::cli {
namespace {

constexpr int64_t kBytes = 256;
constexpr int64_t kFirstRoom = 256;  // tokens

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
      fail_asked("'" + text + "' is not a list of tokens; write their numbers, as 15,7,42");
    ids.push_back(std::stoll(item));
    at = comma + 1;
  }
  return ids;
}

class Generate : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("model", model_, "an ONNX file: a decoder")->required();
    plan_.declare(app);
    under(app, Heading::generation);
    app.add_option("--prompt", prompts_,
                   "a .npz or .npy file of token ids: an array [length] is one prompt, an array [count, length] "
                   "several. If there is an attention_mask beside input_ids, it marks their tokens");
    app.add_option("--ids", ids_, "a prompt as token ids, e.g. 15,7,42")->allow_extra_args(false);
    app.add_option("--text", texts_, "a prompt as text, for a byte-level model, which then answers in text")
        ->allow_extra_args(false);
    app.add_option("--max-new", asked_.max_new, "the most tokens to generate for each prompt")
        ->check(above_zero())
        ->capture_default_str();
    app.add_option("--stop", stop_, "tokens that end a text, e.g. 0,2")->type_name("IDS");
    app.add_option("--temperature", asked_.sampling.temperature,
                   "logits are divided by it; 0: the most likely token is taken")
        ->check(zero_or_more())
        ->capture_default_str();
    app.add_option("--top-k", asked_.sampling.top_k, "sample only from the k most likely tokens; 0: from all")
        ->check(zero_or_more())
        ->capture_default_str();
    app.add_option("--top-p", asked_.sampling.top_p,
                   "sample only from the most likely tokens whose probabilities add up to this")
        ->check(number_in({.least = 0, .most = 1, .above_least = true}))
        ->capture_default_str();
    app.add_option("--seed", asked_.sampling.seed, "the seed of sampling")->check(seed_number())->capture_default_str();
    app.add_option("--batch", batch_, "texts that run together; by default, all")->check(above_zero());
    app.add_option("--capacity", capacity_,
                   "tokens for which caches have room; by default, the length that the longest text may reach")
        ->check(above_zero());
    app.add_flag("--grow", grows_,
                 "caches start with room for the prompts and 256 tokens, or for --capacity, and double when full");
    takes_one_of(app.add_option("--cache", cache_,
                                "how to keep caches, if the model allows it: held (in states of the ranks), handed "
                                "(from run to run), or none (each token takes a run over the whole text)"),
                 {"held", "handed", "none"})
        ->capture_default_str();
    takes_one_of(app.add_option("--cache-dtype", cache_dtype_,
                                "the type in which held caches are stored; by default, that in which the model "
                                "computes"),
                 {"float32", "fp32", "bfloat16", "bf16", "float16", "fp16"})
        ->type_name("TYPE");
    under(app, Heading::model);
    app.add_option("--inputs", inputs_, "a .npz file with arrays for inputs that generation itself does not provide");
    under(app, Heading::output);
    app.add_option("--outputs", outputs_, "a .npz file to write: the new tokens of prompt i as the array ids_i");
    app.add_option("--emit", emit_,
                   "write the model whose caches are states, for run, shard, check and verify with --state "
                   "'*=next.*', and generate nothing; --batch and --capacity give its sizes");
    run_.declare(app, plan_.overlap);
    time_.declare(app);
    declare_paths(app, {{"model", PathUse::reads, files_of_model},
                        {"--prompt", PathUse::reads},
                        {"--inputs", PathUse::reads},
                        {"--outputs", PathUse::writes},
                        {"--emit", PathUse::writes}});
  }

  int run(Console& console) override {
    if (std::optional<int> ended = run_.begin(console, "generate")) return *ended;
    if (grows_) require_growing(console);
    require_outputs(console);
    if (plan_.micro_batches > 1)
      fail_asked("a token of each text is generated at a time, so the batch is not cut; leave out --micro-batches");
    if (!emit_.empty()) return emit_model(console);
    const std::vector<std::vector<int64_t>> prompts = given_prompts();
    if (!stop_.empty()) asked_.stop = parse_ids(stop_);
    GeneratorOptions options;
    options.batch = batch_ > 0 ? batch_ : static_cast<int64_t>(prompts.size());
    options.best = best();
    options.capacity = capacity_ > 0 ? capacity_ : room_for(prompts);
    options.grows = grows_;
    options.cache_dtype = cache_dtype();
    require_asked(prompts, asked_, options);
    Model model = load_whole(console);
    require_outputs(console);  // its tensors may be in files that are known now
    Plan plan = plan_.plan(model, console);
    options.caches = std::exchange(plan.states, {});
    options.constants = constants_for(model);
    const Mesh mesh = plan_.mesh(plan);
    CompileOptions compiled;
    time_.choose(console, plan_.topology(), mesh, compiled);
    const Clock::time_point start = Clock::now();
    Progress progress(console, "compiling");
    Generator generator(model, mesh, plan, options, compiled, run_.session(console));
    progress.end();
    if (!texts_.empty() && generator.vocabulary() >= 0 && generator.vocabulary() != kBytes)
      fail_asked("--text needs a byte-level model, with 256 tokens; this one has " +
                 std::to_string(generator.vocabulary()) + ", so give their numbers with --ids or --prompt");
    progress.next("loading weights");
    generator.prepare(prompts, asked_);
    progress.end();
    const double load_ms = milliseconds_since(start);
    note_generator(console, generator);
    const bool streams = !console.json && prompts.size() == 1 && console.speaks();
    const Generation made = continued(console, generator, prompts, streams);
    std::optional<GenerationForecast> forecast = forecast_of(console, generator, prompts);  // with all ranks
    if (!console.speaks()) return kGood;
    if (!outputs_.empty()) write(made);
    progress.next("measuring memory bandwidth");
    const GenerationFloor floor = console.quiet ? GenerationFloor{} : floor_of(model, plan, generator, prompts, made);
    progress.end();
    const GenerationReport report{.model = model_,
                                  .texts = texts_,
                                  .written = outputs_,
                                  .generator = generator,
                                  .made = made,
                                  .floor = floor,
                                  .seed = asked_.sampling.seed,
                                  .load_ms = load_ms,
                                  .process_ranks = run_.ranks_of_process(console, generator.program().mesh()),
                                  .forecast = std::move(forecast)};
    if (console.json)
      report.print_json(console);
    else
      report.print(console, streams);
    return kGood;
  }

 private:
  void require_outputs(const Console& console) const {
    for (const std::string* path : {&outputs_, &emit_})
      if (!path->empty() && console.speaks()) require_writable(*path);
  }

  /// The prompts continued; if it `streams`, the tokens of the only one are printed as they are chosen.
  Generation continued(const Console& console, Generator& generator, const std::vector<std::vector<int64_t>>& prompts,
                       bool streams) const {
    Progress progress(console, prompts.size() == 1 ? "running the prompt" : "running the prompts");
    bool is_first = true;
    std::string_view separator;
    const Generation made = generator.generate(prompts, asked_, [&](size_t, int64_t token) {
      if (std::exchange(is_first, false)) {
        streams ? progress.end() : progress.next("generating");
        if (streams && !texts_.empty()) std::cout << texts_.front();
      }
      if (!streams) return;
      if (texts_.empty())
        std::cout << std::exchange(separator, " ") << token << std::flush;
      else
        std::cout << static_cast<char>(token) << std::flush;
    });
    if (streams) std::cout << std::endl;
    return made;
  }

  std::optional<GenerationForecast> forecast_of(const Console& console, Generator& generator,
                                                const std::vector<std::vector<int64_t>>& prompts) const {
    if (!time_.asked()) return std::nullopt;
    const GenerationSizes sizes = generator.sizes(prompts, asked_);
    const auto of = [&](const SymbolSizes& run) {
      return *time_.predict_run(console, generator.program(), generator.threads_per_rank(), plan_.topology(), run,
                                run_.overlaps());
    };
    Forecast prefill = of(sizes.prefill);
    return GenerationForecast{std::move(prefill), of(sizes.decode),
                              sizes.prompts == static_cast<int64_t>(prompts.size())};
  }

  Model load_whole(const Console& console) const {
    std::vector<Model> models = load_models(console, model_);
    if (models.size() != 1) fail_asked(model_ + " are the models of ranks; name the model from which they were made");
    return inputs_.empty() ? models.front() : fed_by(models.front(), inputs_);
  }

  Tensors constants_for(const Model& model) const {
    return inputs_.empty() ? Tensors{} : read_tensors(inputs_, "input", model.inputs(), run_.memory.bytes());
  }

  int emit_model(const Console& console) const {
    if (!prompts_.empty() || !ids_.empty() || !texts_.empty())
      fail_asked("--emit generates nothing; give no prompts with it");
    if (batch_ == 0 || capacity_ == 0) fail_asked("--emit needs --batch and --capacity, which are the caches' extents");
    Model model = load_whole(console);
    require_outputs(console);
    const GeneratorOptions options{.batch = batch_,
                                   .capacity = capacity_,
                                   .caches = plan_.plan(model, console).states,
                                   .cache_dtype = cache_dtype(),
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

  void require_growing(const Console& console) const {
    if (!emit_.empty()) fail_asked("--emit writes caches of --capacity tokens; leave --grow out");
    if (best() != CacheForm::held) fail_asked("only caches that are held grow; leave --grow or --cache out");
    if (console.connection)
      fail_asked(
          "caches of ranks that are processes do not grow; give them --capacity, the tokens that texts may have");
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

  std::optional<DType> cache_dtype() const {
    return cache_dtype_.empty() ? std::nullopt : std::optional(Plan::dtype_named(cache_dtype_, "--cache-dtype"));
  }

  CacheForm best() const {
    for (const auto& [name, form] : cache_forms())
      if (name == cache_) return form;
    fail_asked("--cache is held, handed or none");
  }

  int64_t room_for(const std::vector<std::vector<int64_t>>& prompts) const {
    size_t longest = 0;
    for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();  // more is refused afterwards
    const int64_t fresh = std::min<int64_t>(asked_.max_new, grows_ ? kFirstRoom : kMost);
    return std::max<int64_t>(2, static_cast<int64_t>(longest) + fresh);
  }

  void write(const Generation& made) const {
    Tensors arrays;
    for (size_t i = 0; i < made.texts.size(); ++i) {
      const auto length = static_cast<int64_t>(made.texts[i].ids.size());
      arrays["ids_" + std::to_string(i)] = Tensor::of(DType::int64, {length}, made.texts[i].ids);
    }
    write_tensors(outputs_, arrays);
  }

  std::string model_, prompts_, stop_, cache_ = "held", cache_dtype_, inputs_, outputs_, emit_;
  std::vector<std::string> ids_, texts_;
  int64_t batch_ = 0, capacity_ = 0;
  bool grows_ = false;
  GenerationOptions asked_;
  PlanOptions plan_;
  RunOptions run_;
  TimeOptions time_;
};

}  // namespace

std::unique_ptr<Command> make_generate() {
  return std::make_unique<Generate>();
}

}  // namespace tessera::cli
