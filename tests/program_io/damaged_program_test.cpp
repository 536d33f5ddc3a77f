// The error names whatever is wrong with the folder of a written program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "io/temporary_folder.h"
#include "program_io/compiled_models.h"
#include "tessera/base/error.h"
#include "tessera/program_io/written_program.h"

namespace tessera::program_io {
namespace {

namespace fs = std::filesystem;
using test::compile_on;
using testing::AllOf;
using testing::HasSubstr;
using testing_io::contents;
using testing_io::put;
using testing_io::TemporaryFolder;

std::string error_of_reading(const fs::path& folder) {
  try {
    read_program(folder);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user) << error.what();
    return error.what();
  }
  return "no error";
}

class DamagedProgram : public testing::Test {
 protected:
  DamagedProgram() { write_program(*compile_on("mlp", "tp=3"), "mlp", path_); }

  std::string error() const { return error_of_reading(path_); }

  void change_manifest(const std::function<void(nlohmann::ordered_json&)>& change) {
    auto manifest = nlohmann::ordered_json::parse(contents(path_ / "manifest.json"));
    change(manifest);
    put(path_ / "manifest.json", manifest.dump());
  }

  TemporaryFolder folder_;
  fs::path path_ = folder_ / "out";
};

TEST_F(DamagedProgram, is_whole_at_first) {
  EXPECT_EQ(error(), "no error");
}

TEST_F(DamagedProgram, missing_weights_are_named) {
  fs::remove(path_ / "weights/1.bin");
  EXPECT_THAT(error(), AllOf(HasSubstr("weights/1.bin' is missing"), HasSubstr("write the program again")));
}

TEST_F(DamagedProgram, missing_model_is_named) {
  fs::remove(path_ / "rank_2.onnx");
  EXPECT_THAT(error(), HasSubstr("rank_2.onnx' is missing"));
}

TEST_F(DamagedProgram, truncated_weights_are_named) {
  fs::resize_file(path_ / "weights/2.bin", 100);
  EXPECT_THAT(error(), AllOf(HasSubstr("weights/2.bin' has 100 bytes, but was written with")));
}

TEST_F(DamagedProgram, one_flipped_bit_is_found) {
  std::string bytes = contents(path_ / "weights/0.bin");
  bytes[bytes.size() / 2] ^= 1;
  put(path_ / "weights/0.bin", bytes);
  EXPECT_THAT(error(), AllOf(HasSubstr("the shard of 'm.m.2.weight' that rank 0 finds in"),
                             HasSubstr("weights/0.bin' from byte"), HasSubstr("has changed since it was written")));
}

TEST_F(DamagedProgram, folder_without_manifest_is_no_program) {
  fs::remove(path_ / "manifest.json");
  EXPECT_FALSE(is_written_program(path_));
  EXPECT_THAT(error(), HasSubstr("holds no manifest.json"));
}

TEST_F(DamagedProgram, truncated_manifest_is_said_to_be) {
  put(path_ / "manifest.json", contents(path_ / "manifest.json").substr(0, 300));
  EXPECT_THAT(error(), AllOf(HasSubstr("manifest.json"), HasSubstr("damaged or truncated")));
}

TEST_F(DamagedProgram, unknown_entry_is_refused) {
  change_manifest([](auto& manifest) { manifest["states"][0]["colour"] = "red"; });
  EXPECT_THAT(error(), HasSubstr("states[0] has an unknown entry 'colour'"));
}

TEST_F(DamagedProgram, newer_format_is_refused) {
  change_manifest([](auto& manifest) { manifest["version"] = 6; });
  EXPECT_THAT(error(), HasSubstr("has format version 6, but this tessera reads version 5"));
}

TEST_F(DamagedProgram, form_that_does_not_exist_is_named) {
  change_manifest([](auto& manifest) { manifest["form"]["order"] = "chance"; });
  EXPECT_THAT(error(), AllOf(HasSubstr("form is invalid"), HasSubstr("order cannot be 'chance'; it is one of tokens")));
}

TEST_F(DamagedProgram, form_that_the_models_do_not_have_is_refused) {
  change_manifest([](auto& manifest) { manifest["form"]["order"] = "position"; });
  EXPECT_THAT(error(), AllOf(HasSubstr("rank_0.onnx' does not match its manifest, whose form is order=position"),
                             HasSubstr("is ordered by tokens; write the program again")));
  change_manifest([](auto& manifest) {
    manifest["form"]["order"] = "tokens";
    manifest["form"]["lower"] = "primitives";
  });
  EXPECT_THAT(error(), HasSubstr("form is lower=primitives: tessera.comm.AllReduce producing 'y' is a collective"));
}

TEST_F(DamagedProgram, pieces_that_do_not_fit_are_refused) {
  change_manifest([](auto& manifest) {
    manifest["states"][0]["origin"] = {{"name", "all"}, {"shape", {1}}, {"begin", {0}}};
  });
  EXPECT_THAT(error(), HasSubstr("states[0].origin says that the state is a piece of 'all' that 'all' does not have"));
  change_manifest([](auto& manifest) { manifest["states"][0]["origin"]["colour"] = "red"; });
  EXPECT_THAT(error(), HasSubstr("states[0].origin has an unknown entry 'colour'"));
  change_manifest([](auto& manifest) { manifest["states"][0]["origin"] = {{"name", "all"}, {"shape", {-1}}}; });
  EXPECT_THAT(error(), HasSubstr("states[0].origin.shape[0] is not a number of 0 or more"));
}

TEST_F(DamagedProgram, missing_entry_is_named) {
  change_manifest([](auto& manifest) { manifest["inputs"][0].erase("dtype"); });
  EXPECT_THAT(error(), HasSubstr("inputs[0] has no entry 'dtype'"));
}

TEST_F(DamagedProgram, sharding_that_cannot_be_is_named) {
  change_manifest([](auto& manifest) { manifest["inputs"][0]["sharding"] = "[nobody, -]"; });
  EXPECT_THAT(error(), AllOf(HasSubstr("inputs[0].sharding"), HasSubstr("nobody")));
}

TEST_F(DamagedProgram, rank_without_model_is_named) {
  change_manifest([](auto& manifest) { manifest["models"].erase(1); });
  EXPECT_THAT(error(), HasSubstr("models has no file for rank 2"));
}

TEST_F(DamagedProgram, rank_with_two_weights_is_named) {
  change_manifest([](auto& manifest) { manifest["weights"][1]["ranks"] = "0-1"; });
  EXPECT_THAT(error(), HasSubstr("weights[1].ranks gives rank 0 a second file"));
}

TEST_F(DamagedProgram, file_outside_of_the_folder_is_refused) {
  change_manifest([](auto& manifest) { manifest["weights"][0]["file"] = "../secret"; });
  EXPECT_THAT(error(), HasSubstr("leads out of the program's folder"));
}

// A link that leads elsewhere names a file that others may change, or that is not ours to read.
TEST_F(DamagedProgram, links_out_of_the_folder_are_refused) {
  const fs::path elsewhere = folder_ / "elsewhere";
  const auto link_away = [&](const fs::path& entry) {
    fs::rename(entry, elsewhere);
    fs::create_symlink(elsewhere, entry);
  };
  const auto put_back = [&](const fs::path& entry) {
    fs::remove(entry);
    fs::rename(elsewhere, entry);
  };
  std::vector<fs::path> entries;
  for (const auto& entry : fs::recursive_directory_iterator(path_)) entries.push_back(entry.path());
  ASSERT_GT(entries.size(), 6u) << "a manifest, models, a folder of weights, weights";
  for (const fs::path& entry : entries) {
    link_away(entry);
    EXPECT_THAT(error(), HasSubstr("leads out of the program's folder through a symbolic link")) << entry;
    put_back(entry);
  }
  EXPECT_EQ(error(), "no error");
  fs::create_symlink(path_, folder_ / "link");
  EXPECT_EQ(error_of_reading(folder_ / "link"), "no error") << "the folder itself may be linked to";
  fs::rename(path_ / "rank_0.onnx", path_ / "other.onnx");
  fs::create_symlink("other.onnx", path_ / "rank_0.onnx");
  EXPECT_EQ(error(), "no error") << "a link within";
}

TEST_F(DamagedProgram, tensor_that_the_model_lacks_is_named) {
  change_manifest([](auto& manifest) { manifest["outputs"][0]["value"] = "z"; });
  EXPECT_THAT(error(), AllOf(HasSubstr("rank_0.onnx"), HasSubstr("there is no tensor 'z'")));
}

TEST_F(DamagedProgram, weights_without_a_hash_are_not_read) {
  change_manifest([](auto& manifest) { manifest["weights"][1]["hashes"].erase("m.m.0.weight"); });
  EXPECT_THAT(error(), HasSubstr("the shard of 'm.m.0.weight' that rank 1 finds"));
  change_manifest([](auto& manifest) { manifest["weights"][1]["hashes"]["m.m.0.weight"] = "12"; });
  EXPECT_THAT(error(), HasSubstr("weights[1].hashes.m.m.0.weight '12' is not a hash of 16 hexadecimal digits"));
  change_manifest([](auto& manifest) { manifest["weights"][1].erase("hashes"); });
  EXPECT_THAT(error(), HasSubstr("weights[1] has no entry 'hashes'"));
}

TEST_F(DamagedProgram, weights_of_equal_ranks_do_not_change_places) {
  change_manifest([](auto& manifest) { std::swap(manifest["weights"][0]["file"], manifest["weights"][1]["file"]); });
  EXPECT_THAT(error(), AllOf(HasSubstr("the shard of 'm.m.0.weight' that rank 0 finds"),
                             HasSubstr("it is that of 'm.m.0.weight' on rank 1")));
}

TEST_F(DamagedProgram, weights_of_another_rank_do_not_fit) {
  change_manifest([](auto& manifest) { std::swap(manifest["weights"][0]["ranks"], manifest["weights"][2]["ranks"]); });
  EXPECT_THAT(error(), AllOf(HasSubstr("the shard of 'm.m.0.weight' that rank 2 finds in"),
                             HasSubstr("weights/0.bin' from byte 0 on has changed since it was written: "
                                       "write the program again, or copy its folder whole")));
}

}  // namespace
}  // namespace tessera::program_io
