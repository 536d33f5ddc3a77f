#include "tessera/schedule/index.h"

#include <algorithm>

namespace tessera::schedule {

CellList::CellList(const PipelineTable& table) {
  for (size_t rank = 0; rank < table.ranks.size(); ++rank) {
    begin.push_back(static_cast<int64_t>(cells.size()));
    for (size_t slot = 0; slot < table.ranks[rank].size(); ++slot)
      if (const Cell& each = table.ranks[rank][slot]; !each.idle())
        cells.push_back({each, static_cast<int64_t>(rank), static_cast<int64_t>(slot)});
  }
  begin.push_back(static_cast<int64_t>(cells.size()));
}

std::string CellList::place(int64_t cell) const {
  const Entry& entry = cells[static_cast<size_t>(cell)];
  return fmt::format("rank {}, slot {}, '{}'", entry.rank, entry.slot, entry.cell.str());
}

namespace {

[[noreturn]] void missing(const PipelineTable& table, const Action& action, std::string_view why) {
  fail("pipeline", "stage {} lacks '{}'{}; add that cell to rank {}", action.stage, text_of(action), why,
       table.rank_of[static_cast<size_t>(action.stage)]);
}

void require_sizes(const PipelineTable& table) {
  if (table.stages < 1 || table.micro_batches < 1 || table.ranks.empty())
    fail("pipeline", "the table has no cells; it needs at least one rank, stage and micro-batch");
  if (std::ssize(table.rank_of) != table.stages)
    fail("pipeline", "the table has {} stages, but says the ranks of {}; give each stage's rank", table.stages,
         table.rank_of.size());
  for (const int64_t rank : table.rank_of)
    if (rank < 0 || rank >= std::ssize(table.ranks))
      fail("pipeline", "a stage is on rank {}, but the table has {} ranks; give one of these", rank,
           table.ranks.size());
}

// Before arrays of stages x micro-batches are made: names a forward pass that is missing if there are too few.
void require_forwards(const PipelineTable& table, const CellList& list) {
  std::vector<std::pair<int64_t, int64_t>> forwards;
  for (const CellList::Entry& entry : list.cells)
    for_each_action(entry.cell, [&](const Action& action) {
      if (action.work == Work::forward) forwards.emplace_back(action.stage, action.micro_batch);
    });
  std::sort(forwards.begin(), forwards.end());
  forwards.erase(std::unique(forwards.begin(), forwards.end()), forwards.end());
  auto next = forwards.begin();
  for (int64_t stage = 0; stage < table.stages; ++stage)
    for (int64_t micro_batch = 0; micro_batch < table.micro_batches; ++micro_batch) {
      while (next != forwards.end() && *next < std::pair(stage, micro_batch)) ++next;
      if (next == forwards.end() || *next != std::pair(stage, micro_batch))
        missing(table, {Work::forward, stage, micro_batch}, "");
    }
}

}  // namespace

Index::Index(const PipelineTable& table, const CellList& list)
    : micro_batches_(table.micro_batches), cells_(static_cast<size_t>(Work::reduce_gradients) + 1) {
  require_sizes(table);
  require_forwards(table, list);
  for (std::vector<int64_t>& cells : cells_) cells.assign(static_cast<size_t>(table.stages * table.micro_batches), -1);
  for (int64_t cell = 0; cell < std::ssize(list.cells); ++cell)
    for_each_action(list.cells[static_cast<size_t>(cell)].cell,
                    [&](const Action& action) { add(list, table, action, cell); });
  require_complete(table);
}

void Index::add(const CellList& list, const PipelineTable& table, const Action& action, int64_t cell) {
  const WorkName& name = name_of(action.work);
  if (action.stage < 0 || action.stage >= table.stages)
    fail("pipeline", "{}: the table has stages 0 to {}; name one of these", list.place(cell), table.stages - 1);
  const int64_t rank = table.rank_of[static_cast<size_t>(action.stage)];
  if (list.cells[static_cast<size_t>(cell)].rank != rank)
    fail("pipeline", "{}: stage {} is on rank {}; move the cell there, or name a stage of this rank", list.place(cell),
         action.stage, rank);
  if (!name.has_micro_batch) return;
  if (action.micro_batch < 0 || action.micro_batch >= table.micro_batches)
    fail("pipeline", "{}: there are micro-batches 0 to {}; name one of these", list.place(cell),
         table.micro_batches - 1);
  trains_ |= name.computes && action.work != Work::forward;
  communicates_ |= !name.computes;
  const size_t at = static_cast<size_t>(action.stage * micro_batches_ + action.micro_batch);
  int64_t& own = cells_[static_cast<size_t>(action.work)][at];
  if (own >= 0)
    fail("pipeline", "{}: the same is done in {}; remove one of them", list.place(cell),
         list.cells[static_cast<size_t>(own)].slot == list.cells[static_cast<size_t>(cell)].slot ? "the same cell"
                                                                                                 : list.place(own));
  own = cell;
  const int64_t both = cells_[static_cast<size_t>(Work::backward)][at];
  const int64_t parts = std::max(cells_[static_cast<size_t>(Work::input_gradient)][at],
                                 cells_[static_cast<size_t>(Work::weight_gradient)][at]);
  if (both >= 0 && parts >= 0)
    fail("pipeline", "{}: B computes both gradients, so that {} is one too many; remove it, or write I for B",
         list.place(both), list.place(parts));
}

void Index::require_complete(const PipelineTable& table) const {
  for (int64_t stage = 0; trains_ && stage < table.stages; ++stage)
    for (int64_t micro_batch = 0; micro_batch < micro_batches_; ++micro_batch) {
      if (at(Work::backward, stage, micro_batch) >= 0) continue;
      const bool input = at(Work::input_gradient, stage, micro_batch) >= 0;
      const bool weight = at(Work::weight_gradient, stage, micro_batch) >= 0;
      if (!input && !weight) missing(table, {Work::backward, stage, micro_batch}, ", or I and W for it");
      if (!input) missing(table, {Work::input_gradient, stage, micro_batch}, "");
      if (!weight) missing(table, {Work::weight_gradient, stage, micro_batch}, "");
    }
}

int64_t Index::input_gradient(int64_t stage, int64_t micro_batch) const {
  return std::max(at(Work::input_gradient, stage, micro_batch), at(Work::backward, stage, micro_batch));
}

int64_t Index::weight_gradient(int64_t stage, int64_t micro_batch) const {
  return std::max(at(Work::weight_gradient, stage, micro_batch), at(Work::backward, stage, micro_batch));
}

namespace {

// The message of a value that `stage` makes and `next` needs.
Message message(const PipelineTable& table, const CellList& list, const Index& index, const Action& send,
                const Action& receive, int64_t from, int64_t to) {
  Message made{from, to};
  const int64_t source = table.rank_of[static_cast<size_t>(send.stage)];
  made.crosses = source != table.rank_of[static_cast<size_t>(receive.stage)];
  const int64_t sends = index.at(send.work, send.stage, send.micro_batch);
  const int64_t receives = index.at(receive.work, receive.stage, receive.micro_batch);
  if (!made.crosses) {
    if (const int64_t extra = std::max(sends, receives); extra >= 0)
      fail("pipeline", "{}: stages {} and {} are on one rank, which needs no message; remove the cell",
           list.place(extra), send.stage, receive.stage);
    return made;
  }
  if (index.communicates()) {
    constexpr std::string_view why = ", although other cells send and receive";
    if (sends < 0) missing(table, send, why);
    if (receives < 0) missing(table, receive, why);
  }
  made.leaves = sends >= 0 ? sends : from;
  made.taken = receives >= 0 ? receives : to;
  made.link = 2 * std::min(send.stage, receive.stage) + (send.stage > receive.stage ? 1 : 0);
  return made;
}

// Sends and receives beyond the first and last stage.
void require_ends(const PipelineTable& table, const CellList& list, const Index& index) {
  const int64_t last = table.stages - 1;
  for (int64_t micro_batch = 0; micro_batch < table.micro_batches; ++micro_batch)
    for (const auto& [work, stage] : {std::pair(Work::receive_forward, int64_t{0}),
                                      {Work::send_backward, int64_t{0}},
                                      {Work::send_forward, last},
                                      {Work::receive_backward, last}})
      if (const int64_t cell = index.at(work, stage, micro_batch); cell >= 0)
        fail("pipeline", "{}: there is no stage at the other end; remove the cell", list.place(cell));
  if (index.trains()) return;
  for (int64_t stage = 0; stage < table.stages; ++stage)
    for (int64_t micro_batch = 0; micro_batch < table.micro_batches; ++micro_batch)
      for (const Work work : {Work::send_backward, Work::receive_backward})
        if (const int64_t cell = index.at(work, stage, micro_batch); cell >= 0)
          fail("pipeline", "{}: the table computes no gradients; remove the cell", list.place(cell));
}

}  // namespace

std::vector<Message> messages_of(const PipelineTable& table, const CellList& list, const Index& index) {
  std::vector<Message> messages;
  require_ends(table, list, index);
  for (int64_t stage = 0; stage < table.stages; ++stage)
    for (int64_t each = 0; each < table.micro_batches; ++each) {
      const int64_t forward = index.forward(stage, each);
      if (stage + 1 < table.stages)
        messages.push_back(message(table, list, index, {Work::send_forward, stage, each},
                                   {Work::receive_forward, stage + 1, each}, forward, index.forward(stage + 1, each)));
      if (!index.trains()) continue;
      const int64_t gradient = index.input_gradient(stage, each);
      if (stage > 0)
        messages.push_back(message(table, list, index, {Work::send_backward, stage, each},
                                   {Work::receive_backward, stage - 1, each}, gradient,
                                   index.input_gradient(stage - 1, each)));
      messages.push_back({forward, gradient});
      if (const int64_t weights = index.weight_gradient(stage, each); weights != gradient)
        messages.push_back({gradient, weights});
    }
  return messages;
}

}  // namespace tessera::schedule
