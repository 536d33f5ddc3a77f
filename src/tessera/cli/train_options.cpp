#include "tessera/cli/train_options.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "tessera/cli/console.h"
#include "tessera/cli/help.h"
#include "tessera/cli/options.h"
#include "tessera/cli/path_options.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

// A value of the configuration as the command line would have it.
std::string words_of(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  return value.dump();
}

// The extension determines the format of the parameters.
CLI::Validator form_of_parameters() {
  return {[](const std::string& path) {
            for (const char* ending : {".npz", ".safetensors", ".onnx"})
              if (path.ends_with(ending)) return std::string();
            return "'" + path + "' must end in .npz, .safetensors or .onnx, which says what is written";
          },
          ""};
}

// The files of --data.
std::vector<std::string> paths_of_sources(const std::string& text) {
  std::vector<std::string> paths;
  try {
    for (const std::filesystem::path& path : Batches::files(text)) paths.push_back(path.string());
  } catch (const Error&) {
    return {};  // whoever reads the data says what is wrong
  }
  return paths;
}

std::vector<std::string> path_of_rates(const std::string& text) {
  return text.starts_with('@') ? std::vector{text.substr(1)} : std::vector<std::string>{};
}

// The rates of "@rates.npz": its only array.
std::vector<float> rates_of(const std::string& path) {
  const Tensors arrays = read_tensors(path);
  if (arrays.size() != 1)
    wrong_training(path + " has " + std::to_string(arrays.size()) +
                   " arrays; a file of learning rates has one, of one rate "
                   "for each step");
  const Tensor& rates = arrays.begin()->second;
  std::vector<float> all;
  if (rates.dims.size() == 1 && rates.dtype == DType::float32) {
    for (float rate : rates.as<float>()) all.push_back(rate);
  } else if (rates.dims.size() == 1 && rates.dtype == DType::float64) {
    for (double rate : rates.as<double>()) all.push_back(static_cast<float>(rate));
  } else {
    wrong_training(path + ": the learning rates must be one float for each step");
  }
  return all;
}

}  // namespace

void wrong_training(const std::string& message) {
  throw Error(ErrorKind::user, "train", message);
}

void TrainOptions::declare(CLI::App& app) {
  declare_training(app);
  declare_data(app);
  declare_checkpoints(app);
  under(app, Heading::output);
  app.add_option("--metrics", metrics, "a file to write, with one JSON object for each step");
  app.add_option("--tensorboard", tensorboard, "a folder for events that TensorBoard shows: the same figures");
  app.add_option("--profile", profile,
                 "a file for a trace of five steps, after the first three, which Perfetto and Chrome's trace viewer "
                 "show");
  app.add_option("--memory-plan", memory_plan,
                 "a file for what rank 0 holds during each operation of a step, as counters that Perfetto shows");
  app.add_option("--emit", emit, "write the step as an ONNX model; train only if --steps is given, too");
  app.add_flag("--verbose", verbose, "list each tensor, whether it trains, and if not, why");
  app.add_flag("--dry-run", dry_run,
               "print what a rank holds and communicates, and run nothing, for a mesh of any size; without --data, "
               "--shapes gives the sizes");
  declare_paths(app, {{"--config", PathUse::reads},
                      {"--data", PathUse::reads, paths_of_sources},
                      {"--eval-data", PathUse::reads, paths_of_sources},
                      {"--lr", PathUse::reads, path_of_rates},
                      {"--metrics", PathUse::writes},
                      {"--tensorboard", PathUse::adds},
                      {"--profile", PathUse::writes},
                      {"--memory-plan", PathUse::writes},
                      {"--save-final", PathUse::writes},
                      {"--save-average", PathUse::writes},
                      {"--checkpoints", PathUse::adds},
                      {"--emit", PathUse::writes}});
  app.get_option("--lr")->type_name("TEXT");  // seldom a path
}

void TrainOptions::declare_training(CLI::App& app) {
  app_ = &app;
  under(app, Heading::training);
  app.add_option("--config", config, "JSON file with options of this command by name; the command line overrides it");
  app.add_option("--loss", loss,
                 "cross-entropy, mse, bce, bce-with-logits, z-loss, output (the model's own scalar) or mean; with "
                 "keys, e.g. cross-entropy:label_smoothing=0.1,ignore_index=-100; or a sum of terms, e.g. "
                 "cross-entropy+1e-4*z-loss+0.01*output:aux_loss, each of which may name the tensor that it takes")
      ->capture_default_str();
  app.add_option("--output", step.output, "the tensor that the loss takes; by default, the model's first output")
      ->type_name("NAME");
  app.add_option("--labels", step.labels, "the array that the output is compared with")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--optimizer", optimizer,
                 "sgd, adam, adamw, lamb, lion, adafactor or muon; with keys, e.g. "
                 "adamw:beta1=0.9,beta2=0.95,eps=1e-8,weight_decay=0.1")
      ->capture_default_str();
  app.add_option("--lr", learning_rate,
                 "the learning rate: 3e-4; warmup=10,peak=3e-4,cosine=100,min=3e-5 (or linear=100, or stable=50); or "
                 "@rates.npz, with one rate for each step")
      ->capture_default_str();
  app.add_option("--clip", step.clip, "the largest norm of all gradients together")->check(zero_or_more());
  app.add_option("--dropout", step.dropout,
                 "whether Dropouts drop elements: model (as their training_mode says), on (all) or off")
      ->capture_default_str();
  app.add_option("--batch-norm", step.batch_norm,
                 "whether BatchNormalizations use the batch's statistics and update the running ones: model (as their "
                 "training_mode says), train (all) or frozen")
      ->capture_default_str();
  repeatable(app.add_option("--init", init,
                            "NAME=RULE: start these parameters with values drawn with --seed. A RULE is normal:0.02, "
                            "uniform:-0.1,0.1, zeros, ones, xavier or kaiming. The first NAME that matches applies"));
  repeatable(app.add_option("--freeze", step.freeze, "parameters that do not train ('*' matches anything)"))
      ->type_name("NAME");
  repeatable(app.add_option("--train", step.train,
                            "also train these tensors, which would otherwise be constants: scalars, buffers, what the "
                            "exporter computed"))
      ->type_name("NAME");
  repeatable(app.add_option("--tie", step.tie,
                            "COPY=SOURCE: two initializers are one parameter; 'lm_head.weight=embed.weight^T' if the "
                            "copy is transposed. 'none': copies that the exporter made train separately"));
  repeatable(app.add_option("--no-decay", step.no_decay,
                            "parameters without weight decay; 'vectors': all with fewer than two dimensions"))
      ->type_name("NAME");
  repeatable(app.add_option("--lr-factor", rate_factors,
                            "NAME=0.1: multiply the learning rate of these parameters by this factor"));
  app.add_option("--average", step.average, "keep an exponential moving average of the parameters, with this decay")
      ->check(number_in(Bounds::from_to_below(0, 1)));
  app.add_option("--loss-scale", step.loss_scale,
                 "the factor of the loss before the backward pass: a number, or "
                 "dynamic:init=65536,growth=2,backoff=0.5,interval=2000, which is the default with --dtype float16");
}

void TrainOptions::declare_data(CLI::App& app) {
  under(app, Heading::data);
  app.add_option("--data", data,
                 "x.npz: arrays whose first dimension counts steps. Or files of tokens from which samples are drawn: "
                 "corpus.txt (bytes), or a.bin:uint16:0.7,b.txt:0.3 (mixed by weights)");
  app.add_option("--batch", batch, "samples in a step, for files of tokens; by default, 8")->check(above_zero());
  app.add_option("--sequence", sequence, "tokens in a sample")->check(above_zero());
  app.add_option(
      "--document-separator", separator,
      "what ends a document within files of tokens, e.g. '\\n\\n' or token:0; nothing is predicted across it");
  app.add_option("--steps", steps, "the number of steps to train; by default, as many as an .npz file has")
      ->check(above_zero());
  app.add_option("--seed", seed, "the seed of everything random")->check(seed_number())->capture_default_str();
  under(app, Heading::evaluation);
  app.add_option("--eval-data", eval_data, "data for evaluation, as for --data; each sample is taken once");
  app.add_option("--held-out", held_out, "the fraction of each file of tokens that is kept for evaluation")
      ->check(number_in(Bounds::between(0, 0.9)));
  app.add_option("--eval-every", eval_every, "steps between evaluations; by default, one evaluation at the end")
      ->check(above_zero());
  app.add_option("--eval-steps", eval_steps, "the most batches of an evaluation; by default, all")->check(above_zero());
}

void TrainOptions::declare_checkpoints(CLI::App& app) {
  under(app, Heading::checkpoints);
  app.add_option("--checkpoints", checkpoints, "a folder for checkpoints, from which any mesh can resume");
  app.add_option("--save-every", save_every, "steps between checkpoints; by default, one checkpoint at the end")
      ->check(above_zero());
  app.add_option("--keep", keep, "how many of the last checkpoints are kept; 0: all")
      ->check(zero_or_more())
      ->capture_default_str();
  app.add_flag("--resume", resume, "resume from the newest good checkpoint of --checkpoints, if there is one");
  app.add_flag("--other-data", other_data,
               "lets --resume take another --data, --sequence, --document-separator, --held-out or --seed than the "
               "checkpoint's; data then start at their first sample");
  app.add_option("--save-final", save_final,
                 "a .npz or .safetensors file to write with all parameters and moving averages, or an .onnx file with "
                 "the model")
      ->check(form_of_parameters());
  app.add_option("--save-average", save_average,
                 "the same, with the moving averages of --average in place of the parameters")
      ->check(form_of_parameters());
}

void TrainOptions::read_config() const {
  if (config.empty()) return;
  std::ifstream file(config);
  if (!file) wrong_training("'" + config + "' cannot be read");
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(file);
  } catch (const nlohmann::json::exception& error) {
    wrong_training(config + " is not JSON: " + error.what());
  }
  if (!object.is_object())
    wrong_training(config + " must hold one JSON object, as {\"optimizer\": \"adamw\", \"steps\": 200}");
  for (const auto& [key, value] : object.items()) {
    CLI::Option* option = app_->get_option_no_throw("--" + key);
    if (!option || key == "config" || key == "help") {
      std::string names;
      for (const CLI::Option* known : app_->get_options())
        if (const std::string name = known->get_name();
            name.starts_with("--") && name != "--help" && name != "--config")
          names += (names.empty() ? "" : ", ") + name.substr(2);
      wrong_training(config + " has a key '" + key + "' that is not an option; the options are " + names);
    }
    if (option->count() > 0) continue;
    try {
      if (value.is_array())
        for (const auto& element : value) option->add_result(words_of(element));
      else
        option->add_result(words_of(value));
      option->run_callback();
    } catch (const CLI::ParseError& error) {
      wrong_training(config + ": '" + key + "': " + error.what());
    }
  }
  require_paths_apart(*app_);
}

BatchOptions TrainOptions::batches(bool evaluates, size_t memory_limit) const {
  BatchOptions options;
  options.batch = batch;
  options.sequence = sequence;
  options.document_separator = separator;
  options.held_out = evaluates && !eval_data.empty() ? 0 : held_out;
  options.evaluates = evaluates;
  options.seed = seed;
  options.memory_limit = memory_limit;
  return options;
}

const Bounds kFactors = Bounds::at_least(0);

Training TrainOptions::training(const Plan& plan) const {
  Training made = step;
  made.loss = loss;
  made.optimizer = optimizer;
  if (learning_rate.starts_with('@'))
    made.learning_rates = rates_of(learning_rate.substr(1));
  else
    made.learning_rate = learning_rate;
  made.compute = plan.dtype.value_or(DType::float32);
  if (plan.micro_batches > 0) made.micro_batches = plan.micro_batches;
  made.seed = seed;
  for (const std::string& text : init) {
    const size_t equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0)
      wrong_training("--init '" + text + "' is not NAME=RULE; write for example '*.weight=normal:0.02'");
    made.init.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  for (const std::string& text : rate_factors) {
    const size_t equals = text.rfind('=');
    const std::optional<double> factor =
        equals == std::string::npos || equals == 0 ? std::nullopt : kFactors.parse(text.substr(equals + 1));
    if (!factor)
      wrong_training("--lr-factor '" + text + "' is not NAME=FACTOR, with " + kFactors.text() +
                     "; write for example 'embed*=0.1'");
    made.rate_factors.emplace_back(text.substr(0, equals), *factor);
  }
  return made;
}

}  // namespace tessera::cli
