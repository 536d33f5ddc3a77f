// Goldens: model text, mesh and annotations in; program text out. One behaviour a file, named by it.
//
// A file is `key: value` lines (mesh, preset, annotate: NAME=[…] any number of times, place: RESULT=pp:1 the same,
// shapes: a=1,b=2, topology: the axes of a topology file, after which the passes run, rings: "one way" or "both ways"
// and the pieces of a block, after which collectives beside products go around rings), the model in ONNX text, a line
// "----", and the expected program as print_program writes it. Run with TESSERA_UPDATE_GOLDENS=1 to rewrite the
// expectations, then read the difference.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "passes/product_rings.h"
#include "tessera/ir/text.h"
#include "tessera/ops/op.h"
#include "tessera/passes/pipeline.h"
#include "tessera/spmd/partition/partition.h"
#include "tessera/spmd/presets/presets.h"
#include "tessera/spmd/print.h"

namespace tessera::spmd {
namespace {

namespace fs = std::filesystem;

struct Golden {
  std::string header;  // the key lines, as they stand
  std::string mesh, preset, topology, rings;
  std::vector<std::pair<std::string, std::string>> annotations, places;
  Hints shapes;
  std::string model;
  std::string expected;
};

Golden read(const fs::path& path) {
  std::ifstream file(path);
  Golden golden;
  std::string line;
  bool in_header = true, in_expected = false;
  while (std::getline(file, line)) {
    if (in_expected) {
      golden.expected += line + "\n";
      continue;
    }
    if (line == "----") {
      in_expected = true;
      continue;
    }
    size_t colon = line.find(": ");
    std::string key = line.substr(0, colon);
    std::string value = colon == std::string::npos ? "" : line.substr(colon + 2);
    if (in_header && key == "mesh") {
      golden.mesh = value;
    } else if (in_header && key == "preset") {
      golden.preset = value;
    } else if (in_header && key == "topology") {
      golden.topology = value;
    } else if (in_header && key == "rings") {
      golden.rings = value;
    } else if (in_header && key == "annotate") {
      size_t equals = value.rfind('=', value.rfind('['));
      golden.annotations.emplace_back(value.substr(0, equals), value.substr(equals + 1));
    } else if (in_header && key == "place") {
      const size_t equals = value.rfind('=');
      golden.places.emplace_back(value.substr(0, equals), value.substr(equals + 1));
    } else if (in_header && key == "shapes") {
      std::stringstream items(value);
      for (std::string item; std::getline(items, item, ',');)
        golden.shapes[item.substr(0, item.find('='))] = std::stoll(item.substr(item.find('=') + 1));
    } else if (in_header && line.starts_with("#")) {
      // a comment
    } else {
      in_header = false;
      golden.model += line + "\n";
      continue;
    }
    golden.header += line + "\n";
  }
  return golden;
}

std::string program_of(const Golden& golden) {
  OnnxModel model = parse_text(golden.model);
  ops::infer_types(*model.graph);
  Mesh mesh = Mesh::parse(golden.mesh);
  std::vector<Annotation> annotations;
  std::multimap<const Value*, Sharding> cuts;
  for (const auto& [name, text] : golden.annotations) {
    const Value* value = model.graph->find(name);
    EXPECT_NE(value, nullptr) << name;
    if (!value) return "";
    annotations.push_back({value, parse_sharding(text, value->shape(), mesh, name), "annotation"});
    cuts.emplace(value, annotations.back().sharding);
  }
  Places places;
  for (const auto& [name, place] : golden.places) {
    const Value* value = model.graph->find(name);
    EXPECT_NE(value, nullptr) << name;
    if (!value) return "";
    places[value->producer] = parse_place(place, mesh, name);
  }
  Layout layout(*model.graph, golden.shapes, cuts, places);
  std::string warned;
  const Storage storage;
  if (!golden.preset.empty())
    for (const PresetRequest& request : parse_presets(golden.preset, mesh)) {
      std::vector<std::string> warnings, notes;
      PresetContext context{*model.graph, layout,      storage,  golden.shapes, request.axis,
                            "preset",     annotations, warnings, notes};
      request.preset->apply(context);
      for (const std::string& warning : warnings) warned += "# warning: " + warning + "\n";
    }
  propagate(layout, annotations, mesh);
  Decisions decisions = decide(*model.graph, layout, mesh, golden.shapes, annotations);
  Program program = partition(*model.graph, layout, decisions, mesh, golden.shapes);
  if (!golden.rings.empty())
    for (const std::string& note : passes::put_products_in_rings(
             program,
             {golden.rings.starts_with("both ways"), std::stoll(golden.rings.substr(golden.rings.rfind(' ')))}))
      warned += "# note: " + note + "\n";
  if (!golden.topology.empty()) {
    const Topology topology = Topology::from_json("{\"axes\": " + golden.topology + "}");
    topology.require_fits(mesh);
    std::vector<std::string> notes;
    passes::Context context{topology, notes};
    for (const passes::Pass& pass : passes::passes()) pass.run(program, context);
    for (const std::string& note : notes) warned += "# note: " + note + "\n";
  }
  return warned + print_program(program);
}

class GoldenTest : public testing::TestWithParam<fs::path> {};

TEST_P(GoldenTest, ProgramIsAsWritten) {
  Golden golden = read(GetParam());
  std::string actual;
  try {
    actual = program_of(golden);
  } catch (const std::exception& error) {
    actual = std::string("error: ") + error.what() + "\n";
  }
  if (std::getenv("TESSERA_UPDATE_GOLDENS")) {
    std::ofstream(GetParam()) << golden.header << golden.model << "----\n" << actual;
    return;
  }
  EXPECT_EQ(actual, golden.expected) << "in " << GetParam();
}

std::vector<fs::path> all_goldens() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(fs::path(TESSERA_TEST_DATA) / "spmd" / "goldens"))
    if (entry.path().extension() == ".golden") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

INSTANTIATE_TEST_SUITE_P(Goldens, GoldenTest, testing::ValuesIn(all_goldens()),
                         [](const auto& info) { return info.param.stem().string(); });

TEST(Goldens, AreThere) {
  EXPECT_GE(all_goldens().size(), 40u);
}

}  // namespace
}  // namespace tessera::spmd
