#include <cmath>

#include "tessera/cli/command.h"
#include "tessera/cli/help.h"
#include "tessera/cli/options.h"
#include "tessera/cli/path_options.h"
#include "tessera/cli/progress.h"
#include "tessera/files.h"
#include "tessera/time.h"

namespace tessera::cli {
namespace {

class Calibrate : public Command {
 public:
  void declare(CLI::App& app) override {
    under(app, Heading::measurement);
    app.add_flag("--quick", quick_, "fewer shapes and shorter measurements: a quarter of the time");
    under(app, Heading::output);
    app.add_option("-o,--output", output_, "the machine file to write, for --machine")->required();
    declare_paths(app, {{"--output", PathUse::writes}});
  }

  int run(Console& console) override {
    require_writable(output_);
    const MachineModel machine = [&] {
      Progress progress(console, "measuring this machine");
      return calibrate_machine(quick_, [&](const std::string& what) { progress.next("measuring " + what); });
    }();
    write_file(output_, machine.to_json());
    double scatter = 0, worst = 0;
    std::vector<std::string> uncertain;
    std::string worst_kernel;
    for (const auto& [signature, kernel] : machine.kernels) {
      scatter += kernel.scatter / static_cast<double>(machine.kernels.size());
      if (kernel.uncertain) uncertain.push_back(signature);
      if (kernel.scatter > worst) {
        worst = kernel.scatter;
        worst_kernel = signature;
      }
    }
    if (console.json) {
      console.emit({{"machine", Json::parse(machine.to_json())}, {"written", output_}, {"scatter", scatter}});
      return kGood;
    }
    console.say(machine.processor + ", " + std::to_string(machine.cores) + " cores, " +
                joined(machine.instruction_sets));
    Table rates({"what", "rate"});
    for (const auto& [dtype, product] : machine.products)
      rates.add({"products of " + std::string(name_of(dtype)) + ", all cores", count_text(product.flops) + "FLOP/s"});
    for (const MachineModel::Bandwidth& level : machine.bandwidths)
      rates.add({std::isfinite(level.up_to) ? "memory, up to " + bytes_text(level.up_to) : "memory, beyond",
                 bytes_text(level.bytes_per_second) + "/s"});
    for (const MachineModel::Link& link : machine.links)
      rates.add({"links between " + link.name, bytes_text(link.bandwidth) + "/s after " + time_text(link.alpha)});
    rates.add({"a small kernel", time_text(machine.kernel)});
    rates.print(console);
    console.say("half of the measurements of a kernel are within " + ratio_text(100 * scatter) +
                " % of each other, at worst within " + ratio_text(100 * worst) + " % (" + worst_kernel + ")");
    if (!uncertain.empty())
      console.say("because the machine does other work, measurements did not agree for " +
                  std::to_string(uncertain.size()) + " of " + std::to_string(machine.kernels.size()) +
                  " kernels (the first is " + uncertain.front() + "); runs with --machine repeat those that they need");
    console.note("wrote " + output_);
    return kGood;
  }

 private:
  std::string output_;
  bool quick_ = false;
};

}  // namespace

std::unique_ptr<Command> make_calibrate() {
  return std::make_unique<Calibrate>();
}

}  // namespace tessera::cli
