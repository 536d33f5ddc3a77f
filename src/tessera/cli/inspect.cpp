#include "tessera/inspect.h"

#include "tessera/cli/command.h"
#include "tessera/cli/help.h"
#include "tessera/cli/models.h"
#include "tessera/cli/options.h"
#include "tessera/cli/path_options.h"
#include "tessera/cli/program_tables.h"
#include "tessera/cli/progress.h"

namespace tessera::cli {
namespace {

Json operators_json(const std::vector<OperatorCount>& counts) {
  Json list = Json::array();
  for (const OperatorCount& entry : counts)
    list.push_back({{"op", entry.op}, {"count", entry.count}, {"covered", entry.covered}});
  return list;
}

std::string operators_text(const std::vector<OperatorCount>& counts) {
  std::vector<std::string> items;
  for (const OperatorCount& entry : counts)
    items.push_back(entry.op + " " + std::to_string(entry.count) + (entry.covered ? "" : " (not covered)"));
  return joined(items);
}

int64_t total(const std::vector<OperatorCount>& counts) {
  int64_t sum = 0;
  for (const OperatorCount& entry : counts) sum += entry.count;
  return sum;
}

class Inspect : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("model", model_, "an ONNX file")->required();
    under(app, Heading::model);
    app.add_option("--shapes", shapes_, "sizes of symbolic dimensions, e.g. batch=8,sequence=128")->type_name("SIZES");
    under(app, Heading::output);
    app.add_flag("--weights", weights_,
                 "list the parameters: names, as --annotate takes them, types, shapes, and the nodes that use them");
    declare_paths(app, {{"model", PathUse::reads, files_of_model}});
  }

  int run(Console& console) override {
    Model model = load_model(console, model_);
    SymbolSizes sizes = parse_shapes(shapes_);
    std::string note;
    model.complete(sizes, &note);
    Progress progress(console, "inspecting");
    Inspection found = inspect(model, sizes);
    progress.end();
    if (console.json)
      console.emit(json(found));
    else
      print(console, found, note);
    return kGood;
  }

 private:
  Json json(const Inspection& found) const {
    Json error = found.rewrite_error.empty() ? Json() : Json(found.rewrite_error);
    Json object = {{"model", model_},
                   {"producer", found.producer},
                   {"ir_version", found.ir_version},
                   {"opset", found.opset},
                   {"inputs", ports_json(found.inputs)},
                   {"outputs", ports_json(found.outputs)},
                   {"symbols", found.sizes},
                   {"parameters", found.parameters},
                   {"parameter_bytes", found.parameter_bytes},
                   {"flops", found.flops},
                   {"bytes", found.moved_bytes},
                   {"operators", operators_json(found.read)},
                   {"operators_rewritten", operators_json(found.rewritten)},
                   {"rewrite_error", error},
                   {"value_inputs", found.value_inputs},
                   {"size_symbols", found.size_symbols},
                   {"runs_in_parts", found.runs_in_parts},
                   {"why_in_parts", found.why_in_parts},
                   {"uncovered", found.uncovered},
                   {"device_configurations", found.device_configurations},
                   {"annotated_nodes", found.annotated_nodes}};
    if (!weights_) return object;
    object["weights"] = Json::array();
    for (const WeightInfo& weight : found.weights) {
      Json entry = port_json(weight.tensor);
      entry["bytes"] = weight.bytes;
      entry["used_by"] = weight.used_by;
      if (!weight.sources.empty()) entry["sources"] = weight.sources;
      object["weights"].push_back(std::move(entry));
    }
    return object;
  }

  static void print_weights(const Console& console, const std::vector<WeightInfo>& weights) {
    Table table({"parameter", "type", "bytes", "used by"});
    for (const WeightInfo& weight : weights)
      table.add({weight.tensor.name, type_text(weight.tensor), bytes_text(static_cast<double>(weight.bytes)),
                 joined(weight.used_by)});
    if (!table.empty()) table.print(console);
  }

  void print(const Console& console, const Inspection& found, const std::string& note) const {
    console.say(model_ + ": IR " + std::to_string(found.ir_version) + ", opset " + std::to_string(found.opset) +
                (found.producer.empty() ? "" : ", by " + found.producer));
    Table ports({"", "name", "type"});
    for (const TensorInfo& port : found.inputs) ports.add({"input", port.name, type_text(port)});
    for (const TensorInfo& port : found.outputs) ports.add({"output", port.name, type_text(port)});
    ports.print(console);
    console.say("parameters: " + count_text(static_cast<double>(found.parameters)) + " (" +
                bytes_text(static_cast<double>(found.parameter_bytes)) + ")");
    if (weights_) print_weights(console, found.weights);
    if (!note.empty()) console.note("note: " + note);
    if (!found.rewritten.empty()) {
      std::string sizes = sizes_text(found.sizes);
      console.say("one step" + (sizes.empty() ? "" : " at " + sizes) + ": " +
                  count_text(static_cast<double>(found.flops)) + "FLOP, " +
                  bytes_text(static_cast<double>(found.moved_bytes)) + " read and written by operators");
    }
    console.say("operators in the file, " + std::to_string(total(found.read)) + ": " + operators_text(found.read));
    if (!found.rewritten.empty())
      console.say("after rewriting, " + std::to_string(total(found.rewritten)) + ": " +
                  operators_text(found.rewritten));
    if (!found.value_inputs.empty())
      console.say("shapes depend on the elements of " + joined(found.value_inputs) +
                  ": give these with --inputs wherever the model is compiled");
    if (!found.size_symbols.empty())
      console.say("each size of " + joined(found.size_symbols) +
                  " has a program of its own, since it decides how many tensors a sequence has");
    if (found.runs_in_parts)
      console.say("shapes depend on what the model computes: tessera run compiles it in parts while it runs");
    if (!found.why_in_parts.empty())
      console.say("since no program holds one of its loops or branches: " + found.why_in_parts);
    if (!found.rewrite_error.empty()) console.say("cannot be compiled: " + found.rewrite_error);
    console.say(found.uncovered.empty() && found.rewrite_error.empty()
                    ? "coverage: all operators"
                    : "coverage: lacks " + (found.uncovered.empty() ? "no operator" : joined(found.uncovered)));
    for (const std::string& configuration : found.device_configurations)
      console.say("device configuration " + configuration + ", on " + counted(found.annotated_nodes, "node"));
  }

  std::string model_, shapes_;
  bool weights_ = false;
};

}  // namespace

std::unique_ptr<Command> make_inspect() {
  return std::make_unique<Inspect>();
}

}  // namespace tessera::cli
