#include "tessera/io/atomic_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "io/file_size_limit.h"
#include "io/temporary_folder.h"
#include "tessera/base/error.h"
#include "tessera/io/npz.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_io::contents;
using testing_io::FileSizeLimit;
using testing_io::put;
using testing_io::TemporaryFolder;

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

// A thread that still writes while another one ends the process leaves nothing behind.
TEST(atomic_file, nothing_is_written_once_the_process_is_about_to_end) {
  TemporaryFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    AtomicFile open(folder / "a");
    open.write("half");
    remove_unfinished();
    bool refused = false;
    try {
      write_file(folder / "b", "late");
    } catch (const Error& error) {
      refused = error.kind() == ErrorKind::running;
    }
    _exit(refused && folder.entries() == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
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

// The number of a process that ends at once.
pid_t ended_process() {
  const pid_t process = fork();
  if (process == 0) _exit(0);
  waitpid(process, nullptr, 0);
  return process;
}

TEST(atomic_file, what_killed_processes_have_left_is_removed) {
  TemporaryFolder folder;
  const std::string dead = std::to_string(ended_process()), alive = std::to_string(getpid());
  fs::create_directory(folder / (".out." + dead + ".0.tmp").c_str());
  put(folder / (".out." + dead + ".0.tmp/weights").c_str(), "many");
  put(folder / (".out." + dead + ".17.tmp").c_str(), "half");
  put(folder / (".out." + dead + ".17.tmp.x3W9aq").c_str(), "a library's");
  put(folder / (".out." + dead + ".18.tmp.x3W9aq").c_str(), "a library's, alone");
  const std::vector<std::string> others = {".out." + alive + ".99.tmp",    ".out." + alive + ".99.tmp.x3W9aq",
                                           ".out." + dead + ".0.tmporary", ".other." + dead + ".0.tmp",
                                           ".out.x." + dead + ".0.tmp",    ".out.0." + dead,
                                           "out." + dead + ".0.tmp"};
  for (const std::string& name : others) put(folder / name.c_str(), "somebody's");
  AtomicFolder(folder / "out", [](const fs::path&) { return std::nullopt; }).commit();
  EXPECT_EQ(folder.entries(), others.size() + 1);
  for (const std::string& name : others) EXPECT_TRUE(fs::exists(folder / name.c_str())) << name;
  put(folder / (".out.json." + dead + ".0.tmp").c_str(), "half");
  write_file(folder / "out.json", "whole");
  EXPECT_EQ(folder.entries(), others.size() + 2);
}

TEST(atomic_file, what_is_locked_is_being_written) {
  TemporaryFolder folder;
  const fs::path sibling = folder / (".a." + std::to_string(ended_process()) + ".0.tmp").c_str();
  put(sibling, "of another machine");
  const int descriptor = open(sibling.c_str(), O_RDONLY);
  ASSERT_EQ(flock(descriptor, LOCK_EX), 0);
  const fs::path of_library = sibling.string() + ".x3W9aq";
  put(of_library, "beside it");
  write_file(folder / "a", "new");
  EXPECT_TRUE(fs::exists(sibling));
  EXPECT_TRUE(fs::exists(of_library));
  close(descriptor);
  write_file(folder / "a", "newer");
  EXPECT_FALSE(fs::exists(sibling));
  EXPECT_FALSE(fs::exists(of_library));
}

TEST(atomic_file, follows_links) {
  TemporaryFolder folder;
  put(folder / "target", "old");
  fs::create_symlink("target", folder / "link");
  write_file(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(contents(folder / "target"), "new");
}

TEST(atomic_file, keeps_the_permissions_of_what_it_replaces) {
  TemporaryFolder folder;
  for (fs::perms mode : {fs::perms(0600), fs::perms(0640), fs::perms(0666)}) {
    put(folder / "a", "old");
    fs::permissions(folder / "a", mode);
    write_file(folder / "a", "new");
    EXPECT_EQ(fs::status(folder / "a").permissions(), mode);
    write_npz(folder / "a", {{"x", Tensor::zeros(DType::float32, {2})}});  // by a library, which makes its own file
    EXPECT_EQ(fs::status(folder / "a").permissions(), mode);
  }
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

std::optional<std::string> refused(const fs::path&) {
  return "holds a thesis";
}

TEST(atomic_folder, appears_whole) {
  TemporaryFolder folder;
  AtomicFolder output(folder / "program", refused);
  put(output.temporary() / "manifest.json", "{}");
  fs::create_directory(output.temporary() / "weights");
  put(output.temporary() / "weights" / "0", "w");
  EXPECT_FALSE(fs::exists(folder / "program"));
  output.commit();
  EXPECT_EQ(contents(folder / "program" / "weights" / "0"), "w");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(atomic_folder, is_replaced_only_without_an_objection) {
  TemporaryFolder folder;
  fs::create_directory(folder / "program");
  put(folder / "program" / "thesis.txt", "years of work");
  Error error = error_of([&] { AtomicFolder(folder / "program", refused); });
  EXPECT_EQ(error.kind(), ErrorKind::user);
  EXPECT_THAT(error.what(), HasSubstr("program holds a thesis; name a new folder"));
  EXPECT_EQ(contents(folder / "program" / "thesis.txt"), "years of work");
  AtomicFolder output(folder / "program", [](const fs::path&) { return std::nullopt; });
  put(output.temporary() / "manifest.json", "{1}");
  output.commit();
  EXPECT_EQ(contents(folder / "program" / "manifest.json"), "{1}");
  EXPECT_FALSE(fs::exists(folder / "program" / "thesis.txt"));
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(atomic_folder, fills_an_empty_folder) {
  TemporaryFolder folder;
  fs::create_directory(folder / "program");
  AtomicFolder output(folder / "program/", refused);
  put(output.temporary() / "manifest.json", "{}");
  output.commit();
  EXPECT_EQ(contents(folder / "program" / "manifest.json"), "{}");
}

TEST(atomic_folder, without_commit_nothing_changes) {
  TemporaryFolder folder;
  {
    AtomicFolder output(folder / "program", refused);
    put(output.temporary() / "manifest.json", "{}");
  }
  EXPECT_EQ(folder.entries(), 0u);
}

}  // namespace
}  // namespace tessera
