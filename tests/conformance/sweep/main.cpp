// node_test_sweep [--list FILE] [--feeds] [--splits FILE] FOLDER…: the outcome of each of ONNX's backend tests, alone
// and sharded, one line each; with --feeds also where operands are initializers, constants and results. With --list,
// only what is not as the file says, and a summary: a test that the file names must fail, and every other must pass.
// With --splits, also under every split of one operand that a rule allows; the file says by operator how many pass, and
// must be right (TESSERA_UPDATE_GOLDENS=1 writes it anew). Exit code 1 if something is not as the files say.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "conformance/fed_case.h"
#include "conformance/run_case.h"
#include "conformance/split_case.h"

namespace tessera::conformance {
namespace {

class Sweep {
 public:
  int run(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      if (word == "--list" && i + 1 < argc)
        read_list(argv[++i]);
      else if (word == "--feeds")
        feeds_ = true;
      else if (word == "--splits" && i + 1 < argc)
        splits_ = argv[++i];
      else
        add(word);
    }
    for (const auto& folder : folders_) visit(folder);
    if (splits_) check_splits();
    if (!listed_) return unexpected_ ? 1 : 0;
    for (const std::string& name : *listed_)
      if (!seen_.contains(name)) report(name, "listed", "but there is no such test");
    fmt::print("{} of {} tests pass", passed_, folders_.size());
    for (const auto& [kind, count] : fed_) fmt::print(", {} with operands as {}", count, kind);
    fmt::print("; {} are listed\n", listed_->size());
    return unexpected_ ? 1 : 0;
  }

 private:
  // A test's folder, or one of many.
  void add(const std::filesystem::path& folder) {
    if (std::filesystem::exists(folder / "model.onnx")) return void(folders_.push_back(folder));
    const size_t before = folders_.size();
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (std::filesystem::exists(entry.path() / "model.onnx")) folders_.push_back(entry.path());
    std::sort(folders_.begin() + static_cast<std::ptrdiff_t>(before), folders_.end());
  }

  void read_list(const char* path) {
    std::ifstream file(path);
    listed_.emplace();
    for (std::string line; std::getline(file, line);)
      if (std::string name = line.substr(0, line.find_first_of(" \t")); !name.empty() && name[0] != '#')
        listed_->insert(name);
  }

  void report(const std::string& name, std::string_view what, const std::string& message) {
    unexpected_ = true;
    fmt::print("{}\t{}\t{}\n", name, what, message);
    std::fflush(stdout);
  }

  void visit(const std::filesystem::path& folder) {
    const std::string name = folder.filename().string();
    seen_.insert(name);
    const Outcome outcome = run_alone(folder);
    const bool passes = outcome.verdict == Verdict::pass, is_listed = listed_ && listed_->contains(name);
    passed_ += passes;
    if (!listed_ || passes == is_listed)
      report(name, is_listed ? "listed, but passes" : name_of(outcome.verdict), outcome.message);
    if (!passes || is_listed) return;
    for (const std::string& problem : run_sharded(folder, {"x=2", "x=3"})) report(name, "sharded", problem);
    if (splits_) {
      const SplitOutcome split = run_split(folder);
      tally_.add(split);
      for (const std::string& problem : split.problems) fmt::print("{}\tsplit\t{}\n", name, problem);
    }
    if (!feeds_) return;
    const NodeCase node_case = read_case(folder);
    const auto room = std::filesystem::temp_directory_path() / fmt::format("tessera_sweep_{}", name);
    std::filesystem::create_directories(room);
    for (Feed feed : {Feed::initializers, Feed::constants, Feed::results}) {
      const std::string fed_name = fmt::format("{}/{}", name, name_of(feed));
      const Outcome fed = run_fed(node_case, feed, room);
      const bool fed_passes = fed.verdict == Verdict::pass, is_expected = listed_ && listed_->contains(fed_name);
      seen_.insert(fed_name);
      if (fed_passes) ++fed_[std::string(name_of(feed))];
      if (fed_passes == is_expected) report(fed_name, is_expected ? "listed, but passes" : "fails", fed.message);
    }
    std::filesystem::remove_all(room);
  }

  void check_splits() {
    const std::string now = tally_.str();
    if (std::getenv("TESSERA_UPDATE_GOLDENS")) std::ofstream(*splits_) << now;
    std::ifstream file(*splits_);
    const std::string expected{std::istreambuf_iterator<char>(file), {}};
    if (now != expected) report(*splits_, "not as it is now", "\n" + now);
    fmt::print("{:.1f}% of the tests with splits pass in every one; {}", tally_.percent(),
               now.substr(now.rfind("all:")));
  }

  std::vector<std::filesystem::path> folders_;
  std::optional<std::string> splits_;
  SplitTally tally_;
  std::optional<std::set<std::string>> listed_;
  std::set<std::string> seen_;
  std::map<std::string, int> fed_;
  bool feeds_ = false, unexpected_ = false;
  int passed_ = 0;
};

}  // namespace
}  // namespace tessera::conformance

int main(int argc, char** argv) {
  return tessera::conformance::Sweep().run(argc, argv);
}
