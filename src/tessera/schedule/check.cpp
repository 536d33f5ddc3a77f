// The proof that a table can be computed. Its cells and what they wait for are a graph:
//
//     rank 0:  0F0 -> 0F1 -> 0B0 -> 0B1       each cell waits for its rank's previous one,
//               |      |      ^      ^        and for the cells of other ranks that make its operands
//     rank 1:  1F0 -> 1B0 -> 1F1 -> 1B1
//
// Ranks finish if, and only if, no cells wait for each other in a circle. With queues of q messages a cell that sends
// ends only when the message q places before it on its link has been taken. That adds edges from the start of the cell
// that takes to the end of the cell that sends; so each cell is two nodes, its start and its end.
#include <algorithm>

#include "tessera/schedule/index.h"

namespace tessera::schedule {
namespace {

struct WaitsFor {
  explicit WaitsFor(size_t nodes) : first(nodes, -1), waiting(nodes, 0) {}

  void add(int64_t before, int64_t after) {
    edges.push_back({after, first[static_cast<size_t>(before)]});
    first[static_cast<size_t>(before)] = std::ssize(edges) - 1;
    ++waiting[static_cast<size_t>(after)];
  }

  // Removes nodes that wait for nothing until none is left, or only circles and what waits for them: true if none is.
  bool finishes() {
    std::vector<int64_t> ready;
    for (size_t node = 0; node < waiting.size(); ++node)
      if (waiting[node] == 0) ready.push_back(static_cast<int64_t>(node));
    size_t done = 0;
    for (; done < ready.size(); ++done)
      for (int64_t edge = first[static_cast<size_t>(ready[done])]; edge >= 0;
           edge = edges[static_cast<size_t>(edge)].next)
        if (--waiting[static_cast<size_t>(edges[static_cast<size_t>(edge)].after)] == 0)
          ready.push_back(edges[static_cast<size_t>(edge)].after);
    return done == waiting.size();
  }

  struct Edge {
    int64_t after, next;
  };
  std::vector<int64_t> first;    // by node, the first of its edges
  std::vector<int64_t> waiting;  // by node, for how many others it waits
  std::vector<Edge> edges;
};

int64_t start_of(int64_t cell) {
  return 2 * cell;
}
int64_t end_of(int64_t cell) {
  return 2 * cell + 1;
}

// The messages of each link in the order in which they leave.
std::vector<std::vector<const Message*>> by_link(const PipelineTable& table, const std::vector<Message>& messages) {
  std::vector<std::vector<const Message*>> links(static_cast<size_t>(2 * table.stages));
  for (const Message& message : messages)
    if (message.crosses) links[static_cast<size_t>(message.link)].push_back(&message);
  for (std::vector<const Message*>& link : links)
    std::stable_sort(link.begin(), link.end(),
                     [](const Message* a, const Message* b) { return a->leaves < b->leaves; });
  return links;
}

// `queue` 0: as long as needed.
WaitsFor graph_of(const PipelineTable& table, const CellList& list, const std::vector<Message>& messages,
                  size_t queue) {
  WaitsFor graph(2 * list.cells.size());
  for (size_t rank = 0; rank + 1 < list.begin.size(); ++rank)
    for (int64_t cell = list.begin[rank]; cell < list.begin[rank + 1]; ++cell) {
      graph.add(start_of(cell), end_of(cell));
      if (cell > list.begin[rank]) graph.add(end_of(cell - 1), start_of(cell));
    }
  for (const Message& message : messages)
    graph.add(end_of(message.crosses ? message.leaves : message.from), start_of(message.to));
  if (queue == 0) return graph;
  for (const std::vector<const Message*>& link : by_link(table, messages))
    for (size_t each = queue; each < link.size(); ++each)
      graph.add(start_of(link[each - queue]->taken), end_of(link[each]->leaves));
  return graph;
}

// Names a circle: from any cell that still waits, goes back along what it waits for until a cell comes again.
[[noreturn]] void refuse_circle(const CellList& list, const std::vector<Message>& messages, const WaitsFor& graph) {
  const auto blocked = [&](int64_t cell) { return graph.waiting[static_cast<size_t>(start_of(cell))] > 0; };
  std::vector<int64_t> needs(list.cells.size(), -1);  // of each blocked cell, a blocked one that makes an operand
  for (const Message& message : messages) {
    const int64_t from = message.crosses ? message.leaves : message.from;
    if (blocked(message.to) && blocked(from)) needs[static_cast<size_t>(message.to)] = from;
  }
  // The first blocked cell of a rank waits for another rank's; each such cell leads to one of these again.
  const auto first_blocked = [&](int64_t cell) {
    int64_t first = cell;
    while (first > list.begin[static_cast<size_t>(list.cells[static_cast<size_t>(cell)].rank)] && blocked(first - 1))
      --first;
    return first;
  };
  int64_t cell = 0;
  while (!blocked(cell)) ++cell;
  cell = first_blocked(cell);
  std::vector<int64_t> path;
  while (std::find(path.begin(), path.end(), cell) == path.end()) {
    path.push_back(cell);
    cell = first_blocked(needs[static_cast<size_t>(cell)]);
  }
  path.erase(path.begin(), std::find(path.begin(), path.end(), cell));
  std::string text;
  for (const int64_t each : path) {
    const int64_t needed = needs[static_cast<size_t>(each)];
    text += fmt::format("{}{} waits for {}", text.empty() ? "" : ", which comes after: ", list.place(each),
                        list.place(needed));
  }
  const int64_t needed = needs[static_cast<size_t>(path.back())];
  fail("pipeline", "ranks wait for each other for ever: {}; move '{}' before '{}'", text,
       list.cells[static_cast<size_t>(needed)].cell.str(), list.cells[static_cast<size_t>(path.front())].cell.str());
}

// On one rank, what is needed comes first.
void require_local_order(const CellList& list, const std::vector<Message>& messages) {
  const auto require = [&](int64_t before, int64_t after) {
    if (before == after)
      fail("pipeline", "{}: one of the pair needs the other's result; give each a slot of its own", list.place(after));
    if (before > after)
      fail("pipeline", "{} needs {}, which comes later; put it after that", list.place(after), list.place(before));
  };
  for (const Message& message : messages) {
    if (!message.crosses) {
      require(message.from, message.to);
      continue;
    }
    if (message.leaves != message.from) require(message.from, message.leaves);
    if (message.taken != message.to) require(message.taken, message.to);
  }
}

// Parameters are gathered while their stage computes, and gradients reduced after the last of them.
void require_parameters(const CellList& list) {
  for (size_t rank = 0; rank + 1 < list.begin.size(); ++rank) {
    std::vector<std::pair<int64_t, int64_t>> resharded, reduced;  // stage, cell
    const auto of = [](auto& marks, int64_t stage) {
      return std::find_if(marks.begin(), marks.end(), [&](const auto& mark) { return mark.first == stage; });
    };
    for (int64_t cell = list.begin[rank]; cell < list.begin[rank + 1]; ++cell)
      for_each_action(list.cells[static_cast<size_t>(cell)].cell, [&](const Action& action) {
        if (action.work == Work::reshard && of(resharded, action.stage) == resharded.end())
          resharded.emplace_back(action.stage, cell);
        if (action.work == Work::reduce_gradients) reduced.emplace_back(action.stage, cell);
        if (action.work == Work::unshard)
          std::erase_if(resharded, [&](auto& mark) { return mark.first == action.stage; });
        if (!computes(action.work)) return;
        if (const auto mark = of(resharded, action.stage); mark != resharded.end())
          fail("pipeline", "{} comes after {}, which dropped the stage's parameters; put '{}UNSHARD' before it",
               list.place(cell), list.place(mark->second), action.stage);
        if (const auto mark = of(reduced, action.stage); mark != reduced.end() && action.work != Work::forward)
          fail("pipeline", "{} comes after {}, which reduces the stage's gradients; put it before that",
               list.place(cell), list.place(mark->second));
      });
  }
}

std::string first_out_of_order(const PipelineTable& table, const CellList& list, const Index& index) {
  for (int64_t stage = 0; index.trains() && stage < table.stages; ++stage)
    for (int64_t each = 1; each < table.micro_batches; ++each)
      if (const int64_t cell = index.weight_gradient(stage, each - 1); index.weight_gradient(stage, each) < cell)
        return list.place(cell);
  return "";
}

}  // namespace
}  // namespace tessera::schedule

namespace tessera {
inline namespace v1 {

PipelineProof check_pipeline(const PipelineTable& table) {
  using namespace schedule;
  const CellList list(table);
  const Index index(table, list);
  const std::vector<Message> messages = messages_of(table, list, index);
  require_local_order(list, messages);
  require_parameters(list);
  WaitsFor unbounded = graph_of(table, list, messages, 0);
  if (!unbounded.finishes()) refuse_circle(list, messages, unbounded);
  const auto finishes = [&](int64_t queue) {
    return graph_of(table, list, messages, static_cast<size_t>(queue)).finishes();
  };
  int64_t least = 1, enough = 1;
  while (!finishes(enough)) {  // as many as micro-batches are
    least = enough + 1;
    enough *= 2;
  }
  while (least < enough) {
    const int64_t middle = (least + enough) / 2;
    if (finishes(middle))
      enough = middle;
    else
      least = middle + 1;
  }
  return {index.trains(), least, first_out_of_order(table, list, index)};
}

}  // namespace v1
}  // namespace tessera
