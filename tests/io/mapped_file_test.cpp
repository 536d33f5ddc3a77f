#include "tessera/io/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "io/temporary_folder.h"

namespace tessera {
namespace {

constexpr size_t kPages = 64;
const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

/// Bytes of the mapping that this process has in its page table.
size_t resident_bytes(const void* begin) {
  std::ifstream maps("/proc/self/smaps");
  char address[32];
  std::snprintf(address, sizeof address, "%lx-", static_cast<unsigned long>(reinterpret_cast<uintptr_t>(begin)));
  bool own = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.starts_with(address)) own = true;
    if (own && line.starts_with("Rss:")) return std::stoul(line.substr(4)) << 10;
  }
  return SIZE_MAX;
}

class LettingGo : public testing::Test {
 protected:
  LettingGo() {
    std::ofstream(path_) << std::string(kPages * kPage, 'x');
    file_ = MappedFile::open(path_, "test");
    tensor_ = {DType::uint8, {static_cast<int64_t>(file_->size())}, file_, file_->data(), file_->size()};
  }

  void touch_all() const {
    for (size_t at = 0; at < tensor_.bytes; at += kPage) EXPECT_EQ(tensor_.data[at], std::byte{'x'});
  }

  testing_io::TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_ / "data";
  std::shared_ptr<const MappedFile> file_;
  Tensor tensor_;
};

TEST_F(LettingGo, of_a_part_of_a_file_keeps_the_rest_and_the_bytes) {
  EXPECT_TRUE(MappedFile::holds(tensor_));
  touch_all();
  EXPECT_EQ(resident_bytes(file_->data()), kPages * kPage);
  MappedFile::let_go(tensor_, static_cast<int64_t>(kPage), static_cast<int64_t>(8 * kPage));
  EXPECT_EQ(resident_bytes(file_->data()), (kPages - 8) * kPage);
  touch_all();
}

TEST_F(LettingGo, of_memory_changes_nothing) {
  const Tensor copy = Tensor::copy_of(DType::uint8, tensor_.dims, tensor_.data, tensor_.bytes);
  EXPECT_FALSE(MappedFile::holds(copy));
  MappedFile::let_go(copy, 0, copy.count());
  for (size_t at = 0; at < copy.bytes; at += kPage) EXPECT_EQ(copy.data[at], std::byte{'x'});
  EXPECT_FALSE(MappedFile::holds(Tensor()));
}

}  // namespace
}  // namespace tessera
