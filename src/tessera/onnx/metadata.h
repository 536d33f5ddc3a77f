#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/ir/graph.h"

// metadata_props of values, nodes, functions and so on: pairs of key and value that travel with a model. They live in
// the `extra` strings.
namespace tessera {

std::optional<std::string> get_metadata(const Value& value, std::string_view key);
std::optional<std::string> get_metadata(const Node& node, std::string_view key);
std::optional<std::string> get_metadata(const Graph& graph, std::string_view key);
std::optional<std::string> get_metadata(const OnnxModel& model, std::string_view key);
std::optional<std::string> get_metadata(const Function& function, std::string_view key);

/// All pairs; if a key occurs twice, the first.
std::map<std::string, std::string> all_metadata(const Value& value);
std::map<std::string, std::string> all_metadata(const Node& node);
std::map<std::string, std::string> all_metadata(const Graph& graph);
std::map<std::string, std::string> all_metadata(const OnnxModel& model);

/// Replaces the value of the key or adds the pair. A value with metadata is written to the model's value_info.
void set_metadata(Value& value, std::string_view key, std::string_view text);
void set_metadata(Node& node, std::string_view key, std::string_view text);
void set_metadata(Graph& graph, std::string_view key, std::string_view text);
void set_metadata(OnnxModel& model, std::string_view key, std::string_view text);
void set_metadata(Function& function, std::string_view key, std::string_view text);

/// Removes every pair of that key.
void remove_metadata(Value& value, std::string_view key);
void remove_metadata(Node& node, std::string_view key);
void remove_metadata(Graph& graph, std::string_view key);
void remove_metadata(OnnxModel& model, std::string_view key);

}  // namespace tessera
