#include "tessera/io/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <functional>

#include "io/temporary_folder.h"
#include "tessera/base/error.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_io::contents;
using testing_io::put;
using testing_io::TemporaryFolder;

// A full disk for this process: no file may grow past `bytes`.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit small{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_;
  void (*handler_)(int);
};

Error error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorKind::user, "", "");
}

TEST(atomic_file, commit_replaces_the_old_file) {
  TemporaryFolder folder;
  put(folder / "a", "old");
  AtomicFile file(folder / "a");
  file.write("ne");
  file.write("w");
  EXPECT_EQ(file.position(), 3u);
  EXPECT_EQ(contents(folder / "a"), "old");
  file.commit();
  EXPECT_EQ(contents(folder / "a"), "new");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(atomic_file, without_commit_the_old_file_stays) {
  TemporaryFolder folder;
  put(folder / "a", "old");
  { AtomicFile(folder / "a").write("new"); }
  EXPECT_EQ(contents(folder / "a"), "old");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(atomic_file, full_disk_is_a_running_error_and_leaves_no_litter) {
  TemporaryFolder folder;
  put(folder / "a", "old");
  FileSizeLimit limit(1024);
  Error error = error_of([&] { write_file(folder / "a", std::string(4096, 'x')); });
  EXPECT_EQ(error.kind(), ErrorKind::running);
  EXPECT_THAT(error.what(), HasSubstr((folder / "a").string()));
  EXPECT_EQ(contents(folder / "a"), "old");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(atomic_file, follows_links) {
  TemporaryFolder folder;
  put(folder / "target", "old");
  fs::create_symlink("target", folder / "link");
  write_file(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(contents(folder / "target"), "new");
}

TEST(atomic_file, refuses_what_is_no_file) {
  TemporaryFolder folder;
  for (const fs::path& path : {folder.path(), folder / "none" / "a", fs::path("/dev/null"), fs::path()}) {
    Error error = error_of([&] { write_file(path, "x"); });
    EXPECT_EQ(error.kind(), ErrorKind::user) << path;
    EXPECT_THAT(error.what(), HasSubstr(path.string()));
  }
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST(atomic_folder, appears_whole) {
  TemporaryFolder folder;
  AtomicFolder output(folder / "program", "manifest.json");
  put(output.temporary() / "manifest.json", "{}");
  fs::create_directory(output.temporary() / "weights");
  put(output.temporary() / "weights" / "0", "w");
  EXPECT_FALSE(fs::exists(folder / "program"));
  output.commit();
  EXPECT_EQ(contents(folder / "program" / "weights" / "0"), "w");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(atomic_folder, replaces_its_own_kind_and_nothing_else) {
  TemporaryFolder folder;
  fs::create_directory(folder / "program");
  put(folder / "program" / "thesis.txt", "years of work");
  Error error = error_of([&] { AtomicFolder(folder / "program", "manifest.json"); });
  EXPECT_EQ(error.kind(), ErrorKind::user);
  EXPECT_THAT(error.what(), HasSubstr("holds other files and no manifest.json"));
  put(folder / "program" / "manifest.json", "{}");
  AtomicFolder output(folder / "program", "manifest.json");
  put(output.temporary() / "manifest.json", "{1}");
  output.commit();
  EXPECT_EQ(contents(folder / "program" / "manifest.json"), "{1}");
  EXPECT_FALSE(fs::exists(folder / "program" / "thesis.txt"));
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(atomic_folder, fills_an_empty_folder) {
  TemporaryFolder folder;
  fs::create_directory(folder / "program");
  AtomicFolder output(folder / "program/", "manifest.json");
  put(output.temporary() / "manifest.json", "{}");
  output.commit();
  EXPECT_EQ(contents(folder / "program" / "manifest.json"), "{}");
}

TEST(atomic_folder, without_commit_nothing_changes) {
  TemporaryFolder folder;
  {
    AtomicFolder output(folder / "program", "manifest.json");
    put(output.temporary() / "manifest.json", "{}");
  }
  EXPECT_EQ(folder.entries(), 0u);
}

}  // namespace
}  // namespace tessera
