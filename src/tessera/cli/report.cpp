#include "tessera/report.h"

#include "tessera/cli/command.h"
#include "tessera/cli/help.h"
#include "tessera/cli/path_options.h"
#include "tessera/cli/settings.h"
#include "tessera/files.h"

namespace tessera::cli {
namespace {

class Report : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("files", files_,
                   "what run, bench, train, shard, simulate or plan printed with --json, and their traces")
        ->required();
    under(app, Heading::output);
    app.add_option("-o,--output", output_, "the page to write: one HTML file")->required();
    declare_paths(app, {{"files", PathUse::reads}, {"--output", PathUse::writes}});
  }

  int run(Console& console) override {
    require_writable(output_);
    const std::string page = report_page({files_.begin(), files_.end()}, {with_options});
    write_file(output_, page);
    if (console.json)
      console.emit({{"written", output_}, {"bytes", page.size()}});
    else
      console.note("wrote " + output_ + "; open it in a browser");
    return kGood;
  }

 private:
  std::vector<std::string> files_;
  std::string output_;
};

}  // namespace

std::unique_ptr<Command> make_report() {
  return std::make_unique<Report>();
}

}  // namespace tessera::cli
