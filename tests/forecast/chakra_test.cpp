#include "tessera/forecast/chakra.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <google/protobuf/io/coded_stream.h>
#include <gtest/gtest.h>
#include <tessera/chakra.pb.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tessera/compiler/programs.h"
#include "tessera/ir/collective.h"
#include "tessera/ir/text.h"

namespace tessera::forecast {
namespace {

using nlohmann::json;
using testing::Contains;

constexpr std::string_view kLayers = R"(<opset_import: ["" : 21]>
layers (float[batch, 64] x) => (float[batch, 64] y) <float[64, 256] up, float[256, 64] down, float[64, 64] last> {
  a = MatMul (x, up)
  b = Gelu (a)
  c = MatMul (b, down)
  d = Add (x, c)
  y = MatMul (d, last)
})";

// Rows beside each other exchange halos.
constexpr std::string_view kWindows = R"(<opset_import: ["" : 21]>
windows (float[batch, 4, 32, 8] x) => (float[batch, 4, 32, 8] y) <float[4, 4, 3, 3] w> {
  a = Conv <pads = [1, 1, 1, 1]> (x, w)
  y = Conv <pads = [1, 1, 1, 1]> (a, w)
})";

struct Case {
  std::string_view text;
  std::string mesh, presets;
  std::vector<std::string> annotations;  ///< of x
  bool fold = true;
};

struct Node {
  chakra::Node message;
  const chakra::AttributeProto* find(const std::string& name) const {
    for (const chakra::AttributeProto& each : message.attr())
      if (each.name() == name) return &each;
    return nullptr;
  }
  int64_t number(const std::string& name) const {
    const chakra::AttributeProto* found = find(name);
    EXPECT_NE(found, nullptr) << name;
    return found ? found->int64_val() : 0;
  }
};

struct Trace {
  chakra::GlobalMetadata metadata;
  std::vector<Node> nodes;

  explicit Trace(const std::string& bytes) {
    google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(bytes.data()),
                                                  static_cast<int>(bytes.size()));
    read(stream, metadata);
    while (static_cast<size_t>(stream.CurrentPosition()) < bytes.size()) read(stream, nodes.emplace_back().message);
  }

 private:
  static void read(google::protobuf::io::CodedInputStream& stream, google::protobuf::MessageLite& message) {
    uint32_t length = 0;
    ASSERT_TRUE(stream.ReadVarint32(&length));
    const auto limit = stream.PushLimit(static_cast<int>(length));
    ASSERT_TRUE(message.ParseFromCodedStream(&stream));
    stream.PopLimit(limit);
  }
};

struct Traced {
  sim::Predicted predicted;
  std::map<std::string, std::string> files;  ///< by suffix
  json groups, classes;
};

Traced traced(const Case& each) {
  compiler::ProgramOptions options;
  options.mesh = Mesh::parse(each.mesh);
  options.presets = each.presets;
  options.shapes = {{"batch", 32}};
  for (const std::string& sharding : each.annotations) options.annotations.push_back({"x", sharding, "annotation"});
  const auto source = std::make_shared<const compiler::Source>("model", parse_text(each.text), std::vector<uint64_t>());
  const runtime::DryRun run = compiler::compile_program(source, options).dry_run({{"batch", 32}});
  MachineModel machine;
  machine.device = "simulated";
  machine.kernel = 1e-6;
  machine.products[DType::float32] = {1e9, {0, 0, 0}};
  machine.bandwidths = {{std::numeric_limits<double>::infinity(), 1e9}};
  machine.links = {{"near", 4, 1e-6, 1e9}, {"far", 0, 1e-5, 1e8}};
  sim::PredictOptions with;
  with.machine = &machine;
  with.topology = machine.topology(options.mesh);
  with.fold = each.fold;
  Traced made;
  made.predicted = sim::predict(run, with);
  for (TraceFile& file : chakra_traces(made.predicted, options.mesh)) made.files[file.suffix] = std::move(file.bytes);
  made.groups = json::parse(made.files.at(".groups.json"));
  made.classes = json::parse(made.files.at(".classes.json"));
  return made;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const bool fold : {true, false})
    for (const auto& [mesh, presets] : std::vector<std::pair<std::string, std::string>>{
             {"tp=4", "megatron"}, {"dp=2,tp=4", "dp+megatron"}, {"dp=4", "fsdp"}, {"dp=2,tp=2", "fsdp+megatron"}})
      all.push_back({kLayers, mesh, presets, {}, fold});
  all.push_back({kWindows, "rows=4", "none", {"[-,-,rows,-]"}, false});
  return all;
}

TEST(Chakra, NodesDependOnEarlierOnesOnly) {
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.mesh + " " + each.presets);
    const Traced made = traced(each);
    for (const sim::PredictedClass& of_class : made.predicted.classes) {
      const Trace trace(made.files.at(fmt::format(".{}.et", of_class.rank)));
      EXPECT_EQ(trace.metadata.version(), "0.0.4");
      ASSERT_FALSE(trace.nodes.empty());
      std::set<uint64_t> known;
      for (const Node& node : trace.nodes) {
        for (uint64_t id : node.message.data_deps()) EXPECT_TRUE(known.contains(id)) << node.message.name();
        EXPECT_EQ(node.message.ctrl_deps_size(), 0) << node.message.name();
        EXPECT_TRUE(known.insert(node.message.id()).second);
      }
    }
  }
}

// Readers start a node when its data_deps have ended.
TEST(Chakra, KernelsKeepTheirOrder) {
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.mesh + " " + each.presets);
    const Traced made = traced(each);
    const Trace trace(made.files.at(".0.et"));
    std::map<uint64_t, std::set<uint64_t>> before;  // by node: all that ends before it begins
    std::optional<uint64_t> kernel;
    for (const Node& node : trace.nodes) {
      std::set<uint64_t>& all = before[node.message.id()];
      for (const uint64_t id : node.message.data_deps()) {
        all.insert(id);
        all.insert(before[id].begin(), before[id].end());
      }
      if (node.message.type() != chakra::COMP_NODE) continue;
      EXPECT_TRUE(!kernel || all.contains(*kernel)) << node.message.name();
      kernel = node.message.id();
    }
  }
}

TEST(Chakra, OperationsBytesAndTimesAreThoseOfThePrediction) {
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.mesh + " " + each.presets);
    const Traced made = traced(each);
    for (const sim::PredictedClass& of_class : made.predicted.classes) {
      const Trace trace(made.files.at(fmt::format(".{}.et", of_class.rank)));
      int64_t operations = 0, received_bytes = 0;
      uint64_t micros = 0;
      for (const Node& node : trace.nodes) {
        const chakra::NodeType type = node.message.type();
        if (type == chakra::COMP_NODE) operations += node.number("num_ops");
        if (type == chakra::COMP_NODE) micros += node.message.duration_micros();
        if (type == chakra::COMM_RECV_NODE) received_bytes += node.number("comm_size");
        if (type != chakra::COMM_COLL_NODE) continue;
        const json& group = made.groups.at(node.find("pg_name")->string_val());
        EXPECT_THAT(group.get<std::vector<int>>(), Contains(of_class.rank));
        const auto members = static_cast<int64_t>(group.size());
        const int64_t size = node.number("comm_size");
        static const std::map<int64_t, Collective> kKinds = {{chakra::ALL_REDUCE, Collective::all_reduce},
                                                             {chakra::ALL_GATHER, Collective::all_gather},
                                                             {chakra::REDUCE_SCATTER, Collective::reduce_scatter},
                                                             {chakra::ALL_TO_ALL, Collective::all_to_all}};
        const Collective kind = kKinds.at(node.number("comm_type"));
        received_bytes += received(kind, size, kind == Collective::all_gather ? size * members : size, members,
                                   [](int64_t bytes, int64_t by) { return bytes / by; });
      }
      EXPECT_EQ(operations, std::llround(of_class.cost.flops));
      EXPECT_EQ(received_bytes, static_cast<int64_t>(of_class.cost.received));
      double seconds = 0;
      for (const bind::Enqueued& action : of_class.actions)
        if (action.action.phase == bind::Phase::run)
          seconds += of_class.steps[static_cast<size_t>(action.action.task)].seconds;
      EXPECT_NEAR(static_cast<double>(micros), seconds * 1e6, 1);
    }
  }
}

TEST(Chakra, EachRankIsInOneClass) {
  const Traced made = traced({kLayers, "dp=8,tp=4", "dp+megatron", {}});
  std::set<int> ranks;
  EXPECT_LT(made.classes.size(), 32U);
  for (const json& each : made.classes) {
    EXPECT_TRUE(made.files.contains(fmt::format(".{}.et", each["rank"].get<int>())));
    EXPECT_EQ(each["rank"], each["ranks"][0]);
    for (const json& rank : each["ranks"]) EXPECT_TRUE(ranks.insert(rank.get<int>()).second);
  }
  EXPECT_EQ(ranks.size(), 32U);
}

// What a simulator pairs: source, destination, tag.
TEST(Chakra, EverySendHasItsReceive) {
  const Traced made = traced({kWindows, "rows=4", "none", {"[-,-,rows,-]"}, false});
  using Message = std::tuple<int32_t, int32_t, int32_t, int64_t>;
  std::multiset<Message> sent, taken;
  for (const sim::PredictedClass& of_class : made.predicted.classes)
    for (const Node& node : Trace(made.files.at(fmt::format(".{}.et", of_class.rank))).nodes) {
      const chakra::NodeType type = node.message.type();
      if (type != chakra::COMM_SEND_NODE && type != chakra::COMM_RECV_NODE) continue;
      const Message message{node.find("comm_src")->int32_val(), node.find("comm_dst")->int32_val(),
                            node.find("comm_tag")->int32_val(), node.number("comm_size")};
      EXPECT_EQ(type == chakra::COMM_SEND_NODE ? std::get<0>(message) : std::get<1>(message), of_class.rank);
      (type == chakra::COMM_SEND_NODE ? sent : taken).insert(message);
    }
  EXPECT_FALSE(sent.empty());
  EXPECT_EQ(sent, taken);
}

}  // namespace
}  // namespace tessera::forecast
