#pragma once

#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "tessera/ir/graph.h"

/// Operators that are functions of others, as texts in ONNX's syntax in functions/. An operator whose computation
/// depends on optional operands or attributes has several forms: overloads "tessera.…", which do not occur in models.
namespace tessera::rewrite {

/// The identity of a function: domain ("" for ONNX's own), name and overload.
using FunctionKey = std::tuple<std::string, std::string, std::string>;
FunctionKey key_of(const Function& function);
/// The key of the function that the node calls, if it calls one.
FunctionKey key_of(const Node& node);

/// All functions with all their forms, in the order of the texts.
const std::vector<Function>& known_functions();

/// The function that the node calls: the first form that accepts its operands, and whose attributes without a default
/// it has. If there is none, the last form, so that an error can say what is missing. Null if the node calls none of
/// these functions.
const Function* known_function(const Node& node);

/// The number of operands or results without absent ones at the end, which a node may list or leave out.
size_t count_present(const std::vector<Value*>& values);

/// Adds the functions that the model's nodes call to the model's functions, and sets each call's form. The model's own
/// functions override them.
void add_known_functions(OnnxModel& model);

/// A text of functions/, as the build embeds it.
struct FunctionText {
  std::string_view file, text;
};
std::vector<FunctionText> function_texts();

}  // namespace tessera::rewrite
