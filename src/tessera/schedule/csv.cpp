// The CSV of torch.distributed.pipelining. A line is a rank, a cell one of
//
//   (empty)                     idle
//   0F0 1I2 1W2 1B3             stage, work, micro-batch
//   2SEND_F1 3RECV_F1           communication, in tables that PyTorch has lowered
//   1UNSHARD 1RESHARD           without a micro-batch
//   (0F7;7B3)OVERLAP_F_B        two that overlap
#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <sstream>

#include "tessera/schedule/generators.h"
#include "tessera/schedule/table.h"

namespace tessera::schedule {
namespace {

// Where a cell stands, for errors.
struct Spot {
  std::string_view source, text;
  size_t line, column;

  [[noreturn]] void refuse(std::string_view why) const {
    fail("pipeline", "{}, rank {}, slot {}: '{}' {}", source, line, column, text, why);
  }
};

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blank = " \t\r\"";
  const size_t begin = text.find_first_not_of(blank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blank) - begin + 1);
}

std::vector<std::string_view> divided(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

// Takes a number from the front of `text`; -1 if there is none.
int64_t take_number(std::string_view& text, const Spot& spot) {
  int32_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::result_out_of_range) spot.refuse("has a number that is too large");
  if (error != std::errc() || text.front() == '-') return -1;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

Action parse_action(std::string_view text, const Spot& spot) {
  constexpr std::string_view form =
      "is not an action; write stage, work and micro-batch, as 0F0, 1I2, 1W2, 1B3 or 2SEND_F1";
  std::string_view rest = trimmed(text);
  const int64_t stage = take_number(rest, spot);
  if (stage < 0) spot.refuse(form);
  if (rest.starts_with("BW"))
    spot.refuse("is of an older PyTorch; write B for BW, and I for the B that stands beside W");
  for (const WorkName& name : kWorkNames) {
    if (!rest.starts_with(name.name)) continue;
    rest.remove_prefix(name.name.size());
    const int64_t micro_batch = take_number(rest, spot);
    if (!rest.empty()) spot.refuse(form);
    if (name.has_micro_batch && micro_batch < 0) spot.refuse("lacks a micro-batch; write it last, as in 0F3");
    if (!name.has_micro_batch && micro_batch >= 0) spot.refuse("is for all micro-batches; leave the last number out");
    return {name.work, stage, micro_batch};
  }
  spot.refuse(form);
}

Cell parse_cell(const Spot& spot) {
  if (!spot.text.starts_with('(')) return {parse_action(spot.text, spot), {}};
  constexpr std::string_view form = "is not a pair; write it as (0F7;7B3)OVERLAP_F_B";
  const size_t close = spot.text.find(')');
  if (close == std::string_view::npos || trimmed(spot.text.substr(close + 1)) != "OVERLAP_F_B") spot.refuse(form);
  const std::vector<std::string_view> parts = divided(spot.text.substr(1, close - 1), ';');
  if (parts.size() != 2) spot.refuse(form);
  const Cell pair{parse_action(parts[0], spot), parse_action(parts[1], spot)};
  for (const Action& action : {pair.first, pair.second})
    if (!computes(action.work)) spot.refuse("overlaps communication; give it a slot of its own");
  return pair;
}

// Numbers of stages and micro-batches, and the rank of each stage: the one that has most of its cells.
void infer_sizes(PipelineTable& table, std::string_view source) {
  std::map<int64_t, std::map<int64_t, int64_t>> cells;  // by stage, by rank
  int64_t actions = 0;
  Action largest_stage, largest_micro_batch;
  for (size_t rank = 0; rank < table.ranks.size(); ++rank)
    for (const Cell& each : table.ranks[rank])
      for_each_action(each, [&](const Action& action) {
        ++actions;
        cells[action.stage][static_cast<int64_t>(rank)] += computes(action.work) ? 2 : 1;
        if (action.stage > largest_stage.stage) largest_stage = action;
        if (action.micro_batch > largest_micro_batch.micro_batch) largest_micro_batch = action;
      });
  for (const Action& action : {largest_stage, largest_micro_batch})
    if (std::max(action.stage, action.micro_batch) >= actions)
      fail("pipeline",
           "{}: '{}' has a number that is too large for a table of {} cells; stages and micro-batches "
           "count from 0 without gaps",
           source, text_of(action), actions);
  table.stages = largest_stage.stage + 1;
  table.micro_batches = largest_micro_batch.micro_batch + 1;
  for (int64_t stage = 0; stage < table.stages; ++stage) {
    const auto found = cells.find(stage);
    if (found == cells.end())
      fail("pipeline", "{}: stage {} has no cells, but stage {} has; number stages without gaps", source, stage,
           table.stages - 1);
    const auto most = std::max_element(found->second.begin(), found->second.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    table.rank_of.push_back(most->first);
  }
}

}  // namespace
}  // namespace tessera::schedule

namespace tessera {
inline namespace v1 {

PipelineTable parse_pipeline(std::string_view csv, std::string_view source) {
  using namespace schedule;
  PipelineTable table;
  while (csv.ends_with('\n') || csv.ends_with('\r')) csv.remove_suffix(1);
  if (csv.empty()) fail("pipeline", "{} is empty; write a line for each rank, as 0F0,0F1,0B0,0B1", source);
  for (const std::string_view line : divided(csv, '\n')) {
    std::vector<Cell>& cells = table.ranks.emplace_back();
    for (const std::string_view raw : divided(line, ',')) {
      const std::string_view text = trimmed(raw);
      const Spot spot{source, text, table.ranks.size() - 1, cells.size()};
      cells.push_back(text.empty() ? Cell() : parse_cell(spot));
    }
    while (!cells.empty() && cells.back().idle()) cells.pop_back();
  }
  infer_sizes(table, source);
  return table;
}

PipelineTable load_pipeline(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) schedule::fail_unknown(path.string(), "cannot be read as a table");
  return parse_pipeline(text.str(), path.string());
}

std::string pipeline_csv(const PipelineTable& table) {
  std::string text;
  for (const std::vector<PipelineCell>& cells : table.ranks) {
    if (cells.empty()) text += ',';  // an empty line at the end would not be one
    for (size_t slot = 0; slot < cells.size(); ++slot) text.append(slot == 0 ? "" : ",").append(cells[slot].str());
    text += '\n';
  }
  return text;
}

}  // namespace v1
}  // namespace tessera
