// Figures in README.md and docs/ that do not depend on time are those of this code: TESSERA_UPDATE_GOLDENS=1 writes
// them.
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <regex>
#include <sstream>

#include "cli/command_line.h"

namespace tessera {
namespace {

const std::string kRoot = std::string(TESSERA_EXAMPLES) + "/../";

std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// What examples/tiny/run.sh prints of a plan: the peak of rank 0, the bytes that it receives, and its collectives.
struct PlanFigures {
  std::string peak_mib, kib, collectives;
};

class Figures : public CommandLine {
 protected:
  PlanFigures planned(const std::string& mesh, const std::string& preset) {
    const json plan = parsed("shard " + std::string(TESSERA_EXAMPLES) + "/tiny/model.onnx --mesh " + mesh +
                             " --preset " + preset + " --shapes batch=3,sequence=37 --dry-run");
    PlanFigures figures;
    int64_t bytes = 0;
    for (const json& one : plan["collectives"]) {
      const std::string separator = figures.collectives.empty() ? "" : ", ";
      figures.collectives +=
          fmt::format("{}{} {}", separator, one["count"].get<int64_t>(), one["kind"].get<std::string>());
      bytes += one["bytes"].get<int64_t>();
    }
    if (figures.collectives.empty()) figures.collectives = "none";
    figures.kib = fmt::format("{:.0f}", static_cast<double>(bytes) / 1024);
    figures.peak_mib = fmt::format("{:.1f}", plan["ranks"][0]["peak_bytes"].get<double>() / 1048576);
    return figures;
  }

  /// Compares a page with what its figures are now, or writes it.
  void expect_page(const std::string& name, const std::string& now) {
    if (std::getenv("TESSERA_UPDATE_GOLDENS")) std::ofstream(kRoot + name) << now;
    EXPECT_EQ(text_of_file(kRoot + name), now) << "TESSERA_UPDATE_GOLDENS=1 writes " << name << " anew";
  }

  /// The path of a file with what a script of the repository prints.
  std::string written(const std::string& script, const std::string& name) {
    const Ran ran = test::run_command("cd " + kRoot + " && " + script, folder_);
    EXPECT_EQ(ran.code, 0) << ran.err;
    std::ofstream(folder_.path() / name) << ran.out;
    return (folder_.path() / name).string();
  }

  /// A Markdown table of what a rank needs to train: rows of label, peak, parameters, optimizer, gradients,
  /// activations, and what else; each row with the options of its plan.
  void expect_table(const std::string& page, const std::string& model, double unit, const std::string& peak_unit,
                    const std::vector<std::pair<std::string, std::string>>& rows) {
    std::string now = text_of_file(kRoot + page);
    for (const auto& [label, options] : rows) {
      SCOPED_TRACE(label);
      const json plan = parsed("train " + model + " --dry-run --clip 1 " + options);
      std::string cells = fmt::format("| {:.1f}{} |", plan.at("peak_bytes").get<double>() / unit, peak_unit);
      for (const char* part : {"parameters", "optimizer", "gradients", "activations"})
        cells += fmt::format(" {:.1f} |", plan.at("memory_classes").at(part).get<double>() / unit);
      const size_t row = now.find("\n| " + label + " |");
      ASSERT_NE(row, std::string::npos) << page;
      const size_t begin = row + label.size() + 4;
      size_t end = begin;
      for (int bar = 0; bar < 5; ++bar) {
        end = now.find('|', end + 1);
        ASSERT_LT(end, now.find('\n', begin)) << page << ": the row has too few cells";
      }
      now.replace(begin, end + 1 - begin, cells);
    }
    expect_page(page, now);
  }

  /// Whether this CPU packs weights as that of the published figures does.
  bool packs_as_published() {
    for (const json& set : parsed("info")["instruction_sets"])
      if (set.get<std::string>().find("avx512") != std::string::npos) return true;
    return false;
  }
};

// Both files have the table of `make run`, in rows of columns that '|' or two spaces part.
TEST_F(Figures, of_the_example_model_are_those_of_its_plans) {
  const std::regex row(R"(((?:    |\| )(\S+=\S+)[ |]+([a-z+]+)[ |]+\d+[ |]+pass[ |]+\S+[ |]+\S+[ |]+))"
                       R"(([\d.]+)([ |]+)(\d+)([ |]+)(none|\d+ [a-z_]+(?:, \d+ [a-z_]+)*)( \|)?)");
  const bool same_peaks = packs_as_published();
  for (const std::string name : {"README.md", "docs/benchmarks.md"}) {
    std::istringstream lines(text_of_file(kRoot + name));
    std::string now;
    int rows = 0;
    for (std::string line; std::getline(lines, line); now += line + "\n") {
      std::smatch found;
      if (!std::regex_match(line, found, row)) continue;
      ++rows;
      const PlanFigures figures = planned(found[2], found[3]);
      const std::string peak = same_peaks ? figures.peak_mib : found[4].str();
      line =
          found[1].str() + peak + found[5].str() + figures.kib + found[7].str() + figures.collectives + found[9].str();
    }
    EXPECT_EQ(rows, 5) << name;
    expect_page(name, now);
  }
}

TEST_F(Figures, of_the_example_of_memory_are_those_of_its_plans) {
  const std::string model = written("examples/gpt/gpt.sh 4 2048 16 32000 256", "large.onnxtxt");
  expect_table("examples/memory/README.md", model + " --shapes batch=256,sequence=256", 1 << 30, " GiB",
               {{"one device", ""},
                {"`tp=2`, `megatron`", "--mesh tp=2 --preset megatron"},
                {"`fsdp=2`", "--mesh fsdp=2"},
                {"one device, `--recompute selective`", "--recompute selective"},
                {"one device, `--recompute full`", "--recompute full"}});
}

TEST_F(Figures, of_the_table_of_ZeRO_are_those_of_its_plans) {
  const std::string model = written("examples/gpt/gpt.sh 36 4096 32 32000 1024", "gpt.onnxtxt");
  expect_table("examples/zero_table/README.md", model + " --shapes batch=64,sequence=128 --mesh dp=64", 1e9, "",
               {{"`dp`", "--preset dp"},
                {"`zero2`", "--preset zero2"},
                {"`fsdp`", "--preset fsdp"},
                {"`dp`, bfloat16", "--preset dp --dtype bf16"},
                {"`fsdp --keep-gathered '*'`, bfloat16", "--preset fsdp --dtype bf16 --keep-gathered '*'"},
                {"`fsdp`, bfloat16", "--preset fsdp --dtype bf16"}});
}

}  // namespace
}  // namespace tessera
