#include "tessera/cli/resident_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace tessera::cli {
namespace {

constexpr int64_t kMebi = 1 << 20;

// Reads all pages of a file, and leaves it.
void read_file(const std::string& path, size_t bytes) {
  const int file = open(path.c_str(), O_RDONLY);
  ASSERT_GE(file, 0);
  void* at = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
  ASSERT_NE(at, MAP_FAILED);
  volatile char last = static_cast<const char*>(at)[bytes - 1];
  EXPECT_EQ(last, 'x');
  munmap(at, bytes);
  close(file);
}

void hold(int64_t bytes) {
  const std::vector<char> memory(static_cast<size_t>(bytes), 'y');
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
}

TEST(ResidentPeak, LeavesOutFilesThatWereReadMeanwhile) {
  if (access("/proc/self/clear_refs", W_OK) != 0) GTEST_SKIP() << "the kernel does not reset peaks";
  const std::string path = std::filesystem::temp_directory_path() / ("resident_" + std::to_string(getpid()));
  {
    std::FILE* file = std::fopen(path.c_str(), "w");
    ASSERT_NE(file, nullptr);
    const std::vector<char> text(64 * kMebi, 'x');
    EXPECT_EQ(std::fwrite(text.data(), 1, text.size(), file), text.size());
    std::fclose(file);
  }
  ResidentPeak resident;
  read_file(path, 64 * kMebi);
  hold(16 * kMebi);
  resident.pause();
  std::filesystem::remove(path);
  EXPECT_GE(resident.bytes(), 15 * kMebi);
  EXPECT_LT(resident.bytes(), 40 * kMebi);
  hold(200 * kMebi);  // which does not count
  resident.go_on();
  hold(48 * kMebi);
  resident.pause();
  EXPECT_GE(resident.bytes(), 47 * kMebi);
  EXPECT_LT(resident.bytes(), 72 * kMebi);
}

}  // namespace
}  // namespace tessera::cli
