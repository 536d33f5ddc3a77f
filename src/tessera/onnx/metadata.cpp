#include "tessera/onnx/metadata.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/kept.pb.h"
#include "tessera/onnx.pb.h"

namespace tessera {
namespace {

using Pairs = google::protobuf::RepeatedPtrField<onnx::StringStringEntryProto>;

template <typename Message>
Message parsed(const std::string& extra) {
  Message message;
  check(message.ParseFromString(extra), "what was kept of a message can be read back");
  return message;
}

// The kind of message in an element's `extra`, and the field of its pairs.
onnx::ValueInfoProto message_of(const Value& value) {
  auto info = parsed<onnx::ValueInfoProto>(value.extra);
  if (!info.has_name()) info.set_name(value.name);
  return info;
}
onnx::NodeProto message_of(const Node& node) {
  return parsed<onnx::NodeProto>(node.extra);
}
kept::Graph message_of(const Graph& graph) {
  return parsed<kept::Graph>(graph.extra);
}
onnx::ModelProto message_of(const OnnxModel& model) {
  return parsed<onnx::ModelProto>(model.extra);
}
onnx::FunctionProto message_of(const Function& function) {
  return parsed<onnx::FunctionProto>(function.extra);
}

template <typename Message>
Pairs& pairs_of(Message& message) {
  return *message.mutable_metadata_props();
}
Pairs& pairs_of(kept::Graph& graph) {
  return *graph.mutable_rest()->mutable_metadata_props();
}

template <typename Element>
std::map<std::string, std::string> all(const Element& element) {
  std::map<std::string, std::string> found;
  if (element.extra.empty()) return found;
  auto message = message_of(element);
  for (const auto& pair : pairs_of(message)) found.emplace(pair.key(), pair.value());
  return found;
}

template <typename Element>
std::optional<std::string> get(const Element& element, std::string_view key) {
  if (element.extra.empty()) return std::nullopt;
  auto message = message_of(element);
  for (const auto& pair : pairs_of(message))
    if (pair.key() == key) return pair.value();
  return std::nullopt;
}

template <typename Element>
void set(Element& element, std::string_view key, std::string_view text) {
  auto message = message_of(element);
  Pairs& pairs = pairs_of(message);
  auto found = std::find_if(pairs.begin(), pairs.end(), [&](const auto& pair) { return pair.key() == key; });
  auto* pair = found == pairs.end() ? pairs.Add() : &*found;
  pair->set_key(std::string(key));
  pair->set_value(std::string(text));
  element.extra = message.SerializeAsString();
}

template <typename Element>
void remove(Element& element, std::string_view key) {
  if (!get(element, key)) return;
  auto message = message_of(element);
  Pairs& pairs = pairs_of(message);
  pairs.erase(std::remove_if(pairs.begin(), pairs.end(), [&](const auto& pair) { return pair.key() == key; }),
              pairs.end());
  element.extra = message.SerializeAsString();
}

}  // namespace

std::optional<std::string> get_metadata(const Value& value, std::string_view key) {
  return get(value, key);
}
std::optional<std::string> get_metadata(const Node& node, std::string_view key) {
  return get(node, key);
}
std::optional<std::string> get_metadata(const Graph& graph, std::string_view key) {
  return get(graph, key);
}
std::optional<std::string> get_metadata(const OnnxModel& model, std::string_view key) {
  return get(model, key);
}
std::optional<std::string> get_metadata(const Function& function, std::string_view key) {
  return get(function, key);
}

std::map<std::string, std::string> all_metadata(const Value& value) {
  return all(value);
}
std::map<std::string, std::string> all_metadata(const Node& node) {
  return all(node);
}
std::map<std::string, std::string> all_metadata(const Graph& graph) {
  return all(graph);
}
std::map<std::string, std::string> all_metadata(const OnnxModel& model) {
  return all(model);
}

void set_metadata(Value& value, std::string_view key, std::string_view text) {
  set(value, key, text);
}
void set_metadata(Node& node, std::string_view key, std::string_view text) {
  set(node, key, text);
}
void set_metadata(Graph& graph, std::string_view key, std::string_view text) {
  set(graph, key, text);
}
void set_metadata(OnnxModel& model, std::string_view key, std::string_view text) {
  set(model, key, text);
}
void set_metadata(Function& function, std::string_view key, std::string_view text) {
  set(function, key, text);
}

void remove_metadata(Value& value, std::string_view key) {
  remove(value, key);
}
void remove_metadata(Node& node, std::string_view key) {
  remove(node, key);
}
void remove_metadata(Graph& graph, std::string_view key) {
  remove(graph, key);
}
void remove_metadata(OnnxModel& model, std::string_view key) {
  remove(model, key);
}

}  // namespace tessera
