#include "tessera/forecast/chakra.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <tessera/chakra.pb.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tessera/base/error.h"
#include "tessera/ir/collective.h"
#include "tessera/mesh/group.h"

namespace tessera::forecast {
namespace {

using bind::Phase;
using sim::Predicted;
using sim::PredictedClass;

constexpr double kMicrosPerSecond = 1e6;

void add_message(std::string& bytes, const google::protobuf::MessageLite& message) {
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.WriteVarint32(static_cast<uint32_t>(message.ByteSizeLong()));
  check(message.SerializeToCodedStream(&coded), "a node of a trace is written");
}

template <typename Message>
chakra::AttributeProto& attribute(Message& message, const char* name) {
  chakra::AttributeProto& added = *message.add_attr();
  added.set_name(name);
  return added;
}

chakra::CollectiveCommType type_of(Collective kind) {
  switch (kind) {
    case Collective::all_reduce:
      return chakra::ALL_REDUCE;
    case Collective::all_gather:
      return chakra::ALL_GATHER;
    case Collective::reduce_scatter:
      return chakra::REDUCE_SCATTER;
    case Collective::all_to_all:
      return chakra::ALL_TO_ALL;
    case Collective::broadcast:
      return chakra::BROADCAST;
    case Collective::reduce:
      return chakra::REDUCE;
    case Collective::gather:
      return chakra::GATHER;
    case Collective::scatter:
      return chakra::SCATTER;
    case Collective::barrier:
      return chakra::BARRIER;
    case Collective::permute:
    case Collective::send:
    case Collective::recv:
      break;
  }
  check(false, "messages are nodes of their own");
  return chakra::BARRIER;
}

// "Send tp": messages of one kind over the same axes pair in order.
std::string channel_of(const bind::StepInfo& info) {
  const bool permutes = collective_of_op(info.op) == Collective::permute;
  return fmt::format("{} {}", permutes ? "permute" : "message", fmt::join(info.axes, ","));
}

// What all files agree on: the numbers of groups and of channels.
class Names {
 public:
  Names(const Predicted& predicted, const Mesh& mesh) : mesh_(mesh) {
    std::set<std::vector<std::string>> axes;
    for (const PredictedClass& each : predicted.classes)
      for (const bind::StepInfo& info : *each.infos) {
        if (!info.communication || info.members == 1) continue;
        axes.insert(info.axes);
        channels_.emplace(channel_of(info), 0);
      }
    int32_t number = 0;
    for (auto& [name, channel] : channels_) channel = number++;
    for (const std::vector<std::string>& each : axes) add_groups(each);
  }

  /// The number of the group in which `rank` communicates.
  std::string group_of_rank(int rank, const std::vector<std::string>& axes) const {
    return std::to_string(numbers_.at(axes)[static_cast<size_t>(rank)]);
  }
  int32_t channel(const bind::StepInfo& info) const { return channels_.at(channel_of(info)); }
  int32_t channels() const { return static_cast<int32_t>(channels_.size()); }
  const nlohmann::json& groups() const { return groups_; }

 private:
  void add_groups(const std::vector<std::string>& axes) {
    std::vector<int>& numbers = numbers_[axes];
    numbers.assign(static_cast<size_t>(mesh_.size()), 0);
    const std::vector<AxisRef> parsed = parse_axes(axes, mesh_);
    for (int rank = 0; rank < static_cast<int>(mesh_.size()); ++rank) {
      if (numbers[static_cast<size_t>(rank)] != 0) continue;
      const std::vector<int> members = group_of(rank, parsed, mesh_);
      const int number = static_cast<int>(groups_.size()) + 1;  // 0 would be all ranks
      for (int member : members) numbers[static_cast<size_t>(member)] = number;
      groups_[std::to_string(number)] = members;
    }
  }

  const Mesh& mesh_;
  std::map<std::string, int32_t> channels_;
  std::map<std::vector<std::string>, std::vector<int>> numbers_;
  nlohmann::json groups_ = nlohmann::json::object();
};

class Writer {
 public:
  Writer(const PredictedClass& of_class, const sim::ClassTimes& times, const Names& names)
      : class_(of_class), names_(names), nodes_of_(of_class.steps.size()), end_of_(of_class.actions.size()) {
    event_of_.assign(of_class.actions.size(), nullptr);
    for (const sim::Event& event : times.events) event_of_[static_cast<size_t>(event.action)] = &event;
  }

  std::string write(const Mesh& mesh) {
    chakra::GlobalMetadata metadata;
    metadata.set_version("0.0.4");
    attribute(metadata, "creator").set_string_val("tessera");
    attribute(metadata, "rank").set_int64_val(class_.rank);
    attribute(metadata, "ranks_alike").set_int64_val(class_.count);
    attribute(metadata, "mesh").set_string_val(mesh.str());
    add_message(bytes_, metadata);
    for (size_t a = 0; a < class_.actions.size(); ++a)
      if (event_of_[a]) add(a);  // others are in branches that are not taken
    return std::move(bytes_);
  }

 private:
  using Ids = std::vector<uint64_t>;

  // The nodes of the action and what comes after it in its queue: after a kernel, the kernel; after a start, what came
  // before it, unless the queue is there for communications; after a wait, what came before it and what it waits for.
  void add(size_t a) {
    const bind::Enqueued& enqueued = class_.actions[a];
    const auto task = static_cast<size_t>(enqueued.action.task);
    Ids& last = last_[enqueued.queue];
    Ids before = last;
    if (enqueued.after >= 0) add_to(before, end_of_[static_cast<size_t>(enqueued.after)]);
    switch (enqueued.action.phase) {
      case Phase::run:
        nodes_of_[task] = {add_kernel(a, before)};
        last = nodes_of_[task];
        break;
      case Phase::start:
        nodes_of_[task] = add_communication(a, before);
        last = before;
        if (enqueued.queue != bind::kComputing) add_to(last = {}, nodes_of_[task]);
        break;
      case Phase::wait:
        add_to(last = before, nodes_of_[task]);
        break;
    }
    end_of_[a] = last;
  }

  static void add_to(Ids& ids, const Ids& more) {
    for (uint64_t id : more)
      if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }

  chakra::Node node_of(size_t a, const Ids& before, chakra::NodeType type) {
    const sim::Event& event = *event_of_[a];
    chakra::Node node;
    node.set_id(next_id_++);
    node.set_name((*class_.infos)[a].name);
    node.set_type(type);
    node.set_start_time_micros(static_cast<uint64_t>(std::llround(event.begin * kMicrosPerSecond)));
    Ids needed = data_of(class_.actions[a].action.task);
    add_to(needed, before);  // Chakra's reader ignores ctrl_deps
    for (uint64_t id : needed) node.add_data_deps(id);
    attribute(node, "is_cpu_op").set_bool_val(false);
    return node;
  }

  Ids data_of(int task) const {
    Ids data;
    for (int need : (*class_.needs)[static_cast<size_t>(task)]) add_to(data, nodes_of_[static_cast<size_t>(need)]);
    return data;
  }

  // Whole microseconds, such that what is rounded off one kernel goes to the next.
  uint64_t micros(double& sum, double seconds) const {
    const double before = std::round(sum);
    sum += seconds * kMicrosPerSecond;
    return static_cast<uint64_t>(std::round(sum) - before);
  }

  uint64_t add_kernel(size_t a, const Ids& before) {
    const auto task = static_cast<size_t>(class_.actions[a].action.task);
    chakra::Node node = node_of(a, before, chakra::COMP_NODE);
    node.set_duration_micros(micros(computed_, class_.steps[task].seconds));
    const bind::Cost& cost = class_.costs[task];
    attribute(node, "num_ops").set_int64_val(std::llround(cost.flops * class_.repeats[task]));
    attribute(node, "tensor_size").set_uint64_val(times(cost.read + cost.written, task));
    attribute(node, "op").set_string_val((*class_.infos)[a].op);
    add_message(bytes_, node);
    return node.id();
  }

  uint64_t times(size_t bytes, size_t task) const {
    return static_cast<uint64_t>(std::llround(static_cast<double>(bytes) * class_.repeats[task]));
  }

  // A permutation is a message to another rank and one from another; within the rank, nothing moves.
  Ids add_communication(size_t a, const Ids& before) {
    const bind::StepInfo& info = (*class_.infos)[a];
    const auto task = static_cast<size_t>(class_.actions[a].action.task);
    const Collective kind = *collective_of_op(info.op);
    Ids made;
    if (kind == Collective::send || kind == Collective::recv || kind == Collective::permute) {
      if (kind != Collective::recv && info.to >= 0 && info.to != class_.rank)
        made.push_back(add_message_node(a, before, chakra::COMM_SEND_NODE, class_.rank, info.to));
      if (kind != Collective::send && info.from >= 0 && info.from != class_.rank)
        made.push_back(add_message_node(a, before, chakra::COMM_RECV_NODE, info.from, class_.rank));
    } else if (info.members > 1) {
      made.push_back(add_collective(a, before, kind));
    }
    if (made.empty()) {  // what needs it needs what it needs
      made = before;
      add_to(made, data_of(static_cast<int>(task)));
    }
    return made;
  }

  uint64_t add_message_node(size_t a, const Ids& before, chakra::NodeType type, int from, int to) {
    const bind::StepInfo& info = (*class_.infos)[a];
    const auto task = static_cast<size_t>(class_.actions[a].action.task);
    chakra::Node node = node_of(a, before, type);
    node.set_duration_micros(micros(moved_, class_.steps[task].seconds));
    const bind::Cost& cost = class_.costs[task];
    attribute(node, "comm_src").set_int32_val(from);
    attribute(node, "comm_dst").set_int32_val(to);
    attribute(node, "comm_size")
        .set_int64_val(static_cast<int64_t>(times(type == chakra::COMM_SEND_NODE ? cost.read : cost.written, task)));
    const int32_t channel = names_.channel(info);
    const int32_t number = messages_[{from, to, channel}]++;
    attribute(node, "comm_tag").set_int32_val(number * names_.channels() + channel);
    add_message(bytes_, node);
    return node.id();
  }

  uint64_t add_collective(size_t a, const Ids& before, Collective kind) {
    const bind::StepInfo& info = (*class_.infos)[a];
    const auto task = static_cast<size_t>(class_.actions[a].action.task);
    chakra::Node node = node_of(a, before, chakra::COMM_COLL_NODE);
    node.set_duration_micros(micros(moved_, class_.steps[task].seconds));
    const bind::Cost& cost = class_.costs[task];
    attribute(node, "comm_type").set_int64_val(type_of(kind));
    // Of the rank's operand; of its result, where it has none.
    attribute(node, "comm_size")
        .set_int64_val(static_cast<int64_t>(times(cost.read > 0 ? cost.read : cost.written, task)));
    attribute(node, "pg_name").set_string_val(names_.group_of_rank(class_.rank, info.axes));
    add_message(bytes_, node);
    return node.id();
  }

  const PredictedClass& class_;
  const Names& names_;
  std::string bytes_;
  uint64_t next_id_ = 1;
  std::vector<const sim::Event*> event_of_;  // by action
  std::vector<Ids> nodes_of_;                // by step
  std::vector<Ids> end_of_;                  // by action: the nodes after whose end it has ended
  std::map<int, Ids> last_;                  // by queue: the nodes that its next action comes after
  double computed_ = 0, moved_ = 0;          // microseconds
  std::map<std::tuple<int, int, int32_t>, int32_t> messages_;
};

}  // namespace

std::vector<TraceFile> chakra_traces(const Predicted& predicted, const Mesh& mesh) {
  const Names names(predicted, mesh);
  std::vector<TraceFile> files;
  nlohmann::json classes = nlohmann::json::array();
  std::vector<std::vector<int>> ranks(predicted.classes.size());
  for (size_t rank = 0; rank < predicted.ranks.of.size(); ++rank)
    ranks[static_cast<size_t>(predicted.ranks.of[rank])].push_back(static_cast<int>(rank));
  for (size_t c = 0; c < predicted.classes.size(); ++c) {
    const PredictedClass& each = predicted.classes[c];
    files.push_back({fmt::format(".{}.et", each.rank), Writer(each, predicted.timeline.classes[c], names).write(mesh)});
    classes.push_back({{"rank", each.rank}, {"ranks", ranks[c]}});
  }
  files.push_back({".groups.json", names.groups().dump()});
  files.push_back({".classes.json", classes.dump()});
  return files;
}

}  // namespace tessera::forecast
