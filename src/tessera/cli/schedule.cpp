#include <fmt/format.h>

#include <algorithm>

#include "tessera/cli/command.h"
#include "tessera/cli/help.h"
#include "tessera/cli/options.h"
#include "tessera/cli/path_options.h"
#include "tessera/files.h"
#include "tessera/pipeline.h"
#include "tessera/tensors.h"

namespace tessera::cli {
namespace {

constexpr size_t kTextWidth = 120, kTextLines = 60;

[[noreturn]] void wrong_schedule(const std::string& message) {
  throw Error(ErrorKind::user, "pipeline", message);
}

// "1,1,1" or "1,1,1,0.1".
PipelineRankCosts costs_of(const std::string& text) {
  std::vector<double> numbers;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::optional<double> number = Bounds::at_least(0).parse(text.substr(begin, end - begin));
    if (!number)
      wrong_schedule("--times " + text + ": '" + text.substr(begin, end - begin) +
                     "' is no number of at least 0; write F,I,W or F,I,W,SEND, as 2,2,1,0.1");
    numbers.push_back(*number);
    begin = end + 1;
  }
  if (numbers.size() < 3 || numbers.size() > 4)
    wrong_schedule("--times " + text + ": write three or four numbers, F,I,W or F,I,W,SEND, as 2,2,1,0.1");
  if (numbers[0] + numbers[1] + numbers[2] <= 0)
    wrong_schedule("--times " + text + ": one of F, I and W must be above 0");
  PipelineRankCosts costs{numbers[0], numbers[1], numbers[2]};
  if (numbers.size() == 4) costs.send = numbers[3];
  return costs;
}

std::string percent(double share) {
  return fmt::format("{:.1f} %", std::max(0.0, 100 * share));  // not -0.0
}

class Schedule : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("schedule", schedule_, schedules_help())->required();
    under(app, Heading::mesh);
    app.add_option("--ranks", sizes_.ranks, "ranks of the pipeline; a table says how many")
        ->check(number_in(Bounds::between(1, 1 << 20)));
    app.add_option("--micro-batches", sizes_.micro_batches, "parts of a batch; a table says how many")
        ->check(number_in(Bounds::between(1, 1 << 20)));
    app.add_option("--stages", sizes_.stages, "stages on all ranks together; otherwise as many as the schedule has")
        ->check(number_in(Bounds::between(1, 1 << 20)));
    under(app, Heading::measurement);
    app.add_option("--times", times_,
                   "F,I,W[,SEND]: times of a micro-batch's forward pass, input gradient and weight gradients on all "
                   "stages of a rank, and of a message, in any unit (1,1,1)")
        ->type_name("F,I,W[,SEND]");
    app.add_option("--memory", memory_,
                   "for auto: how many micro-batches' activations of all of its stages a rank may hold")
        ->check(above_zero());
    app.add_option("--kept", kept_, "the share of activations that wait for the weight gradient (1)")
        ->check(number_in(Bounds::between(0, 1)));
    under(app, Heading::output);
    app.add_option("-o,--output", output_, "a .csv file for the table, or an .svg file for a drawing of it");
    declare_paths(app, {{"schedule", PathUse::reads, table_of_schedule}, {"--output", PathUse::writes}});
    app_ = &app;
  }

  int run(Console& console) override {
    if (!output_.empty()) {
      if (!output_.ends_with(".csv") && !output_.ends_with(".svg"))
        wrong_schedule("--output " + output_ + ": name a .csv or an .svg file");
      require_writable(output_);
    }
    PipelineRankCosts costs = costs_of(times_);
    costs.kept = kept_;
    costs.most_held = memory_;
    const Timed timed = made(costs);
    if (!output_.empty())
      write_file(output_,
                 output_.ends_with(".csv") ? pipeline_csv(timed.table) : pipeline_svg(timed.table, timed.times));
    if (console.json) {
      emit(console, timed, timed.proof);
    } else {
      print(console, timed, timed.proof);
    }
    return kGood;
  }

 private:
  struct Timed {
    std::string name;
    PipelineTable table;
    PipelineTimes times;
    PipelineProof proof;
  };

  bool given(const char* option) const { return app_->get_option(option)->count() > 0; }

  Timed made(const PipelineRankCosts& costs) const {
    if (schedule_ == "auto") {
      require_sizes();
      FoundPipeline found = find_pipeline(sizes_, costs);
      PipelineProof proof = check_pipeline(found.table);
      return {"auto: " + found.name, std::move(found.table), std::move(found.times), std::move(proof)};
    }
    if (given("--memory")) wrong_schedule("--memory is a limit for the search; use the schedule auto with it");
    const bool named = is_pipeline_schedule(schedule_);
    if (named) require_sizes();
    PipelineTable table = named ? make_pipeline(schedule_, sizes_) : load_pipeline(schedule_);
    if (!named) require_same(table);
    PipelineProof proof = check_pipeline(table);
    PipelineCosts all =
        even_pipeline_costs(table, costs.forward, costs.input_gradient, costs.weight_gradient, costs.send);
    all.kept = costs.kept;
    PipelineTimes times = time_pipeline(table, all);
    return {schedule_, std::move(table), std::move(times), std::move(proof)};
  }

  void require_sizes() const {
    for (const char* option : {"--ranks", "--micro-batches"})
      if (!given(option)) wrong_schedule("'" + schedule_ + "' needs " + option + ", as --ranks 4 --micro-batches 8");
  }

  void require_same(const PipelineTable& table) const {
    const auto require = [&](const char* option, int64_t said, int64_t has) {
      if (given(option) && said != has)
        wrong_schedule(std::string(option) + " " + std::to_string(said) + ": " + schedule_ + " has " +
                       std::to_string(has) + "; leave the option out");
    };
    require("--ranks", sizes_.ranks, std::ssize(table.ranks));
    require("--stages", sizes_.stages, table.stages);
    require("--micro-batches", sizes_.micro_batches, table.micro_batches);
  }

  void print(const Console& console, const Timed& timed, const PipelineProof& proof) const {
    const PipelineTable& table = timed.table;
    console.say(timed.name + ": " + counted(std::ssize(table.ranks), "rank") + ", " + counted(table.stages, "stage") +
                ", " + std::to_string(table.micro_batches) +
                (table.micro_batches == 1 ? " micro-batch" : " micro-batches"));
    const std::string text = pipeline_text(table, kTextWidth);
    if (std::count(text.begin(), text.end(), '\n') <= static_cast<std::ptrdiff_t>(kTextLines))
      console.say("\n" + text.substr(0, text.size() - 1) + "\n");
    else
      console.say("the table is too large for text; -o FILE.svg draws it");
    Table rows({"rank", "stages", "idle", "warm-up", "imbalance", "link", "tail", "activations"});
    for (size_t rank = 0; rank < timed.times.ranks.size(); ++rank) {
      const PipelineRankTime& time = timed.times.ranks[rank];
      const auto share = [&](double idle) { return percent(timed.times.step > 0 ? idle / timed.times.step : 0); };
      rows.add({std::to_string(rank), stages_text(table.stages_of(static_cast<int64_t>(rank))),
                share(time.idle.total()), share(time.idle.warm_up), share(time.idle.imbalance), share(time.idle.link),
                share(time.idle.tail), ratio_text(time.activations)});
    }
    rows.print(console);
    console.say("step " + ratio_text(timed.times.step) + ", bubble " + percent(timed.times.bubble) +
                "; activations in micro-batches of all stages of a rank");
    console.say("proved: each pass computed once, no rank waits for ever with " +
                (proof.queue == 1 ? std::string("one message") : counted(proof.queue, "message")) +
                " queued on a link");
    if (!proof.out_of_order.empty())
      console.say(proof.out_of_order + " adds gradients in another order than that of the micro-batches: sums differ " +
                  "from other schedules' in their last bits");
    if (!output_.empty()) console.note("wrote " + output_);
  }

  static std::string stages_text(const std::vector<int64_t>& stages) {
    std::vector<std::string> items;
    for (const int64_t stage : stages) items.push_back(std::to_string(stage));
    return joined(items, " ");
  }

  void emit(const Console& console, const Timed& timed, const PipelineProof& proof) const {
    Json ranks = Json::array();
    for (size_t rank = 0; rank < timed.times.ranks.size(); ++rank) {
      const PipelineRankTime& time = timed.times.ranks[rank];
      ranks.push_back({{"stages", timed.table.stages_of(static_cast<int64_t>(rank))},
                       {"first", time.first},
                       {"last", time.last},
                       {"busy", time.busy},
                       {"idle",
                        {{"warm_up", time.idle.warm_up},
                         {"imbalance", time.idle.imbalance},
                         {"link", time.idle.link},
                         {"tail", time.idle.tail}}},
                       {"activations", time.activations}});
    }
    Json object = {
        {"schedule", timed.name},   {"stages", timed.table.stages}, {"micro_batches", timed.table.micro_batches},
        {"step", timed.times.step}, {"bubble", timed.times.bubble}, {"queue", proof.queue},
        {"trains", proof.trains},   {"ranks", std::move(ranks)}};
    if (!proof.out_of_order.empty()) object["out_of_order"] = proof.out_of_order;
    if (!output_.empty()) object["written"] = output_;
    console.emit(object);
  }

  CLI::App* app_ = nullptr;
  std::string schedule_, times_ = "1,1,1", output_;
  PipelineSizes sizes_;
  double memory_ = 0, kept_ = 1;
};

}  // namespace

std::unique_ptr<Command> make_schedule() {
  return std::make_unique<Schedule>();
}

}  // namespace tessera::cli
