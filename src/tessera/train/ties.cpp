#include "tessera/train/ties.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "tessera/base/error.h"
#include "tessera/io/mapped_file.h"
#include "tessera/ir/glob.h"

namespace tessera::train {
namespace {

bool is_matrix(const Tensor& tensor) {
  return tensor.dims.size() == 2;
}

Dims turned(const Tensor& tensor) {
  return {tensor.dims.rbegin(), tensor.dims.rend()};
}

// Calls visit(place in the transposed matrix, place in the matrix), block by block; until it says false.
template <typename Visit>
bool for_each_transposed(const Tensor& matrix, const Visit& visit) {
  constexpr int64_t kBlock = 64;
  const int64_t rows = matrix.dims[0], columns = matrix.dims[1];
  for (int64_t top = 0; top < rows; top += kBlock)
    for (int64_t left = 0; left < columns; left += kBlock)
      for (int64_t r = top; r < std::min(rows, top + kBlock); ++r)
        for (int64_t c = left; c < std::min(columns, left + kBlock); ++c)
          if (!visit(static_cast<size_t>(c * rows + r), static_cast<size_t>(r * columns + c))) return false;
  return true;
}

// Calls visit with a number of the tensor's width, so that the compiler knows how many bytes an element has.
template <typename Visit>
auto by_width(const Tensor& tensor, const Visit& visit) {
  switch (bits_of(tensor.dtype)) {
    case 64:
      return visit(uint64_t{0});
    case 32:
      return visit(uint32_t{0});
    case 16:
      return visit(uint16_t{0});
    default:
      return visit(uint8_t{0});
  }
}

bool equal_elements(const Tensor& copy, const Tensor& source, Tie::How how) {
  if (how != Tie::How::transposed) return std::memcmp(copy.data, source.data, source.bytes) == 0;
  return by_width(source, [&](auto element) {
    constexpr size_t kWidth = sizeof(element);
    return for_each_transposed(source, [&](size_t to, size_t from) {
      return std::memcmp(copy.data + to * kWidth, source.data + from * kWidth, kWidth) == 0;
    });
  });
}

bool fits(const Tensor& copy, const Tensor& source, Tie::How how) {
  if (copy.dtype != source.dtype || copy.count() != source.count()) return false;
  if (how == Tie::How::transposed)
    return is_matrix(source) && copy.dims == turned(source) && bits_of(source.dtype) >= 8;
  return how == Tie::How::reshaped || copy.dims == source.dims;
}

// The initializer of that name, or the one that holds the exported model's parameter of that name.
Value* initializer(const Graph& graph, const ExportRecord& record, const std::string& name) {
  const auto is_float_data = [](const Value& value) { return value.has_data() && is_float(value.dtype()); };
  if (Value* exact = graph.find(name); exact && is_float_data(*exact)) return exact;
  std::vector<std::string_view> names;
  for (const auto& value : graph.values()) {
    if (!is_float_data(*value)) continue;
    const Provenance& provenance = record.of(*value);
    if (provenance.role == Role::parameter || provenance.role == Role::copy)
      for (const std::string& source : provenance.sources)
        if (source == name) return value.get();
    names.push_back(value->name);
  }
  fail("train", "`tie`: '{}' is not a float initializer of the model{}", name, nearest_names(names, name));
}

Tie parsed(const Graph& graph, const ExportRecord& record, std::string text, std::vector<std::string>& notes) {
  const std::string whole = text;
  const bool is_transposed = text.ends_with("^T");
  if (is_transposed) text.resize(text.size() - 2);
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    fail("train", "`tie` '{}' is not COPY=SOURCE; write for example 'lm_head.weight=embed.weight^T'", whole);
  const Value& copy = *initializer(graph, record, text.substr(0, equals));
  const Value& source = *initializer(graph, record, text.substr(equals + 1));
  const Tie::How how = is_transposed ? Tie::How::transposed : Tie::How::same;
  if (&copy == &source) fail("train", "`tie` '{}': both are '{}'", whole, copy.name);
  if (!fits(copy.data, source.data, how))
    fail("train", "`tie` '{}': '{}' is {} {} and '{}' is {} {}{}", whole, copy.name, name_of(copy.dtype()),
         to_string(copy.shape()), source.name, name_of(source.dtype()), to_string(source.shape()),
         is_transposed ? "; a transposed copy has the extents of its source in the other order"
                       : "; a copy has the extents of its source ('^T' after it: in the other order)");
  if (!holds(copy.data, source.data, how))
    notes.push_back(fmt::format("'{}' begins with the values of '{}', since `tie` makes them one; its own differ",
                                copy.name, source.name));
  return {copy.name, source.name, how, copy.data.dims};
}

// How a copy of a copy follows from the source; nullopt if neither way expresses it.
std::optional<Tie::How> composed(Tie::How first, Tie::How second) {
  if (first == Tie::How::same) return second;
  if (second == Tie::How::same) return first;
  if (first != second) return std::nullopt;
  return first == Tie::How::transposed ? Tie::How::same : Tie::How::reshaped;
}

// The source of a copy that the exporter made may be tied itself, as asked.
void add_recorded(Tie tie, std::vector<Tie>& ties, std::vector<std::string>& notes) {
  for (const Tie& asked : ties) {
    if (asked.copy != tie.source) continue;
    const auto how = composed(asked.how, tie.how);
    if (!how) {
      notes.push_back(fmt::format("'{}' trains on its own: it is '{}' in another shape, and `tie` makes {}", tie.copy,
                                  tie.source, asked.text()));
      return;
    }
    tie.source = asked.source;
    tie.how = *how;
    break;
  }
  ties.push_back(std::move(tie));
}

// How the exporter's copy of a parameter is laid out; a matrix is copied to be transposed.
std::optional<Tie::How> how_copied(const Tensor& copy, const Tensor& source) {
  for (const Tie::How how : {Tie::How::transposed, Tie::How::same, Tie::How::reshaped})
    if (holds(copy, source, how)) return how;
  return std::nullopt;
}

}  // namespace

std::string Tie::text() const {
  return fmt::format("'{}' = '{}'{}", copy, source, how == How::transposed ? "^T" : "");
}

bool holds(const Tensor& copy, const Tensor& source, Tie::How how) {
  if (!fits(copy, source, how) || !copy.data || !source.data) return false;
  const bool equal = equal_elements(copy, source, how);
  for (const Tensor* read : {&copy, &source}) MappedFile::let_go(*read, 0, read->count());
  return equal;
}

Tensor copied(const Tie& tie, const Tensor& source) {
  if (tie.how != Tie::How::transposed) {
    Tensor copy = source;
    copy.dims = tie.dims;
    return copy;
  }
  Tensor copy = Tensor::uninitialized(source.dtype, tie.dims);
  std::byte* const elements = copy.mutable_data();
  by_width(source, [&](auto element) {
    constexpr size_t kWidth = sizeof(element);
    return for_each_transposed(source, [&](size_t to, size_t from) {
      std::memcpy(elements + to * kWidth, source.data + from * kWidth, kWidth);
      return true;
    });
  });
  return copy;
}

std::vector<Tie> ties_of(const Graph& graph, const ExportRecord& record, const std::vector<std::string>& asked,
                         std::vector<std::string>& notes) {
  std::vector<Tie> ties;
  bool recorded = true;
  for (const std::string& text : asked) {
    if (text == "none") {
      recorded = false;
      continue;
    }
    const Tie tie = parsed(graph, record, text, notes);
    for (const Tie& other : ties)
      if (other.copy == tie.copy || other.copy == tie.source || other.source == tie.copy)
        fail("train", "`tie`: {} and {} form a chain; tie all copies to one source", other.text(), tie.text());
    ties.push_back(tie);
  }
  if (!recorded) return ties;
  std::map<std::string, const Value*> holders;  // of the exported model's parameters
  for (const Role role : {Role::parameter, Role::copy})
    for (const auto& value : graph.values()) {
      const Provenance& provenance = record.of(*value);
      if (provenance.role != role || (role == Role::copy && provenance.sources.size() != 1)) continue;
      const auto is_tied = [&](const Tie& tie) { return tie.copy == value->name || tie.source == value->name; };
      const bool is_asked = std::any_of(ties.begin(), ties.end(), is_tied);
      if (role == Role::parameter || is_asked || !holders.contains(provenance.sources[0])) {
        for (const std::string& source : provenance.sources) holders.emplace(source, value.get());
        continue;
      }
      const Value& source = *holders.at(provenance.sources[0]);
      if (const auto how = how_copied(value->data, source.data))
        add_recorded({value->name, source.name, *how, value->data.dims}, ties, notes);
      else
        notes.push_back(fmt::format("'{}' trains on its own: the exporter copied it from '{}', but their values differ",
                                    value->name, source.name));
    }
  return ties;
}

void compute_copies(Graph& graph, const std::vector<Tie>& ties) {
  for (const Tie& tie : ties) {
    Value* copy = graph.find(tie.copy);
    Value* source = graph.find(tie.source);
    graph.rename(copy, tie.copy + ".copy");
    const char* op = tie.how == Tie::How::transposed ? "Transpose" : tie.how == Tie::How::same ? "Identity" : "Reshape";
    std::vector<Value*> operands = {source};
    if (tie.how == Tie::How::reshaped) operands.push_back(graph.constant_int64(tie.dims));
    const Node* first = graph.nodes().empty() ? nullptr : graph.nodes().front().get();
    Node* node = graph.add_node(op, operands, {tie.copy}, "", first);
    node->output()->type = copy->type;
    graph.replace_uses(copy, node->output());
    graph.erase(copy);
  }
}

namespace {

// By elements all over the tensor: files that describe a large model may hold zeros that are nowhere on the disk, and
// to read them all takes minutes.
bool seems_of_one_value(const Tensor& data) {
  constexpr int64_t kLooks = 64;
  const size_t width = data.bytes / static_cast<size_t>(data.count());
  for (int64_t look = 1; look < kLooks; ++look) {
    const auto index = static_cast<size_t>((data.count() - 1) * look / (kLooks - 1));
    if (std::memcmp(data.data, data.data + index * width, width) != 0) return false;
  }
  return true;
}

}  // namespace

std::vector<Tie> equal_states(const Graph& graph, const ExportRecord& record) {
  using Key = std::tuple<DType, Dims, std::string, std::string>;  // first and last elements stay in their places
  std::map<Key, std::vector<const Value*>> alike;
  for (const Value* state : graph.values_of(ValueKind::state)) {
    const Tensor& data = state->data;
    if (!is_float(data.dtype) || data.dims.size() < 2 || !data.data || data.count() < 2 || state->uses.empty())
      continue;
    const size_t width = data.bytes / static_cast<size_t>(data.count());
    // Tensors of one value only are equal because they have not been trained.
    if (seems_of_one_value(data)) continue;
    const auto* bytes = reinterpret_cast<const char*>(data.data);
    Dims extents = data.dims;
    std::sort(extents.begin(), extents.end());
    alike[{data.dtype, extents, std::string(bytes, width), std::string(bytes + data.bytes - width, width)}].push_back(
        state);
  }
  std::vector<Tie> pairs;
  for (const auto& [key, states] : alike) {
    std::set<const Value*> paired;
    for (size_t i = 0; i < states.size(); ++i)
      for (size_t j = i + 1; j < states.size(); ++j) {
        const Tensor &first = states[i]->data, &second = states[j]->data;
        if (paired.contains(states[j])) continue;
        if (record.of(*states[i]).role == Role::parameter && record.of(*states[j]).role == Role::parameter) continue;
        for (const Tie::How how : {Tie::How::same, Tie::How::transposed})
          if (holds(second, first, how)) {
            pairs.push_back({states[j]->name, states[i]->name, how, second.dims});
            paired.insert(states[j]);
            break;
          }
      }
  }
  return pairs;
}

}  // namespace tessera::train
