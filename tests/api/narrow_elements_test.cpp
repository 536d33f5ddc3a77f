// Elements of 4 and 2 bits share bytes. They are split and moved over a mesh by the bytes that they fill.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "api/same_bits.h"
#include "api/small_model.h"
#include "sample.h"

namespace tessera::test {
namespace {

constexpr DType kNarrow[] = {DType::int4, DType::uint4, DType::float4e2m1, DType::int2, DType::uint2};

Tensors answers_of(const Model& model, const std::string& mesh, std::vector<Plan::Annotation> annotations,
                   const Tensors& inputs) {
  Plan plan;
  plan.annotations = std::move(annotations);
  const Program program = compile(model, Mesh::parse(mesh), plan);
  return Session(program, one_thread()).run(inputs);
}

// Every layout of what is narrow, and every other one of what is made of it: gathered, cut, and exchanged. Elements
// fill bytes in the last dimension, or only in several together.
TEST(NarrowElements, MoveByTheirBytes) {
  TemporaryFolder folder;
  const std::vector<std::string> layouts = {"[-, -, -]", "[t, -, -]", "[-, t, -]",
                                            "[t, u, -]", "[u, t, -]", "[-, {u,t}, -]"};
  int moved = 0;
  size_t turn = 0;
  for (const DType dtype : kNarrow)
    for (const Dims& dims : {Dims{6, 4, 8}, {5, 6, 4}, {6, 4, 2}, {4, 2, 3}, {3, 8, 1}}) {
      const std::string extents = fmt::format("{}", fmt::join(dims, ", "));
      const std::filesystem::path path = write_model(
          folder, fmt::format("m (float[{0}] x) => ({1}[{0}] y, float[{0}] z) {{\n  y = Cast <to = {2}> (x)\n"
                              "  z = Cast <to = 1> (y)\n}}",
                              extents, name_of(dtype), static_cast<int>(dtype)));
      const Model model = Model::load(path);
      Tensor x = Tensor::zeros(DType::float32, dims);
      for (int64_t i = 0; i < x.count(); ++i)
        reinterpret_cast<float*>(x.mutable_data())[i] = static_cast<float>(i * 5 % 4 - (dtype == DType::int2 ? 2 : 0));
      const Tensors inputs = {{"x", x}};
      const Tensors alone = answers_of(model, "t=1", {}, inputs);
      EXPECT_NE(std::count(alone.at("z").data, alone.at("z").data + alone.at("z").bytes, std::byte{0}),
                static_cast<int64_t>(alone.at("z").bytes));
      for (const std::string& before : layouts)
        // Types of equally many bits are moved alike: one of them is laid out in all ways.
        for (const std::string& after :
             one_in(dtype == DType::int4 || dtype == DType::int2 ? 1 : layouts.size(), layouts, turn++)) {
          SCOPED_TRACE(fmt::format("{} [{}]: {} to {}", name_of(dtype), extents, before, after));
          try {
            expect_same(alone, answers_of(model, "t=2,u=3", {{"y=" + before}, {"z=" + after}}, inputs));
            ++moved;
          } catch (const Error& error) {
            EXPECT_THAT(error.what(), testing::HasSubstr("may be cut within bytes"));
            EXPECT_TRUE(dims.back() * bits_of(dtype) % 8 != 0);
          }
        }
    }
  EXPECT_GT(moved, 200);
}

// Weights of codes are cut, packed or not, also where a program is written and read.
TEST(NarrowElements, AreCutAsWeights) {
  TemporaryFolder folder;
  const std::string text =
      "m (float[2, 6] x) => (float[2, 16] y) <float[6, 16] w> {\n"
      "  codes = Cast <to = 22> (w)\n  scale = Constant <value = float {0.5}> ()\n"
      "  d = DequantizeLinear (codes, scale)\n  y = MatMul (x, d)\n}";
  OnnxModel made = parse_text(text);
  Value* w = made.graph->find("w");
  Tensor codes = Tensor::zeros(DType::int4, {6, 16});
  for (size_t i = 0; i < codes.bytes; ++i) codes.mutable_data()[i] = static_cast<std::byte>(i * 37 + 11);
  w->data = codes;
  w->type.dtype = DType::int4;
  Node* cast = made.graph->find("codes")->producer;
  made.graph->replace_uses(made.graph->find("codes"), w);
  made.graph->erase(cast);
  export_model(made, folder / "codes.onnx");
  const Model model = Model::load(folder / "codes.onnx");
  const Tensors inputs = {{"x", ramp({2, 6})}};
  const Tensors alone = answers_of(model, "t=1", {}, inputs);
  for (const char* mesh : {"t=2", "t=3", "t=4"}) {
    SCOPED_TRACE(mesh);
    const Tensors split = answers_of(model, mesh, {{"w=[t, -]"}}, inputs);
    for (int64_t i = 0; i < alone.at("y").count(); ++i)
      EXPECT_NEAR(split.at("y").as<float>()[i], alone.at("y").as<float>()[i], 1e-5f);
    Plan plan;
    plan.annotations = {{"w=[t, -]"}};
    const std::filesystem::path written = folder / fmt::format("written {}", mesh).c_str();
    compile(model, Mesh::parse(mesh), plan).write(written, {});
    expect_same(split, Session(Program::read(written), one_thread()).run(inputs));
  }
  EXPECT_THAT([&] { answers_of(model, "t=2", {{"w=[-, t]"}}, inputs); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("dimension 1 of [6, 16] may be cut within bytes")));
}

}  // namespace
}  // namespace tessera::test
