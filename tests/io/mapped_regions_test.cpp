#include "tessera/io/mapped_regions.h"

#include <gtest/gtest.h>

#include <thread>

#include "io/temporary_folder.h"
#include "tessera/io/mapped_file.h"

namespace tessera {
namespace {

using testing_io::put;
using testing_io::TemporaryFolder;

TEST(mapped_regions, name_the_file_at_an_address_while_it_is_mapped) {
  TemporaryFolder folder;
  put(folder / "a", "some");
  put(folder / "b", "more");
  const char here = 0;
  EXPECT_EQ(mapped_file_at(&here), nullptr);
  const void* gone = nullptr;
  {
    const auto a = MappedFile::open(folder / "a", "test"), b = MappedFile::open(folder / "b", "test");
    gone = a->data();
    EXPECT_EQ(mapped_file_at(a->data()), (folder / "a").string());
    EXPECT_EQ(mapped_file_at(b->data() + 3), (folder / "b").string());
    EXPECT_EQ(mapped_file_at(b->data() + 4), nullptr);
    EXPECT_TRUE(is_mapped(folder / "a"));
  }
  EXPECT_EQ(mapped_file_at(gone), nullptr);
  EXPECT_FALSE(is_mapped(folder / "a"));
  EXPECT_FALSE(is_mapped(folder / "none"));
}

TEST(mapped_regions, know_a_file_by_its_links) {
  TemporaryFolder folder;
  put(folder / "a", "some");
  std::filesystem::create_hard_link(folder / "a", folder / "hard");
  std::filesystem::create_symlink("a", folder / "soft");
  const auto file = MappedFile::open(folder / "soft", "test");
  for (const char* name : {"a", "hard", "soft"}) EXPECT_TRUE(is_mapped(folder / name)) << name;
}

TEST(mapped_regions, are_kept_by_several_threads) {
  TemporaryFolder folder;
  put(folder / "a", "some");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int turn = 0; turn < 500; ++turn) {
        const auto file = MappedFile::open(folder / "a", "test");
        EXPECT_EQ(mapped_file_at(file->data()), (folder / "a").string());
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(is_mapped(folder / "a"));
}

}  // namespace
}  // namespace tessera
