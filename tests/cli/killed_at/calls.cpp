// Loaded before other libraries, kills the process at its n-th call that may change a file or folder, n being
// TESSERA_KILLED_AT, before the call does anything.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>

namespace {

void count() {
  static std::atomic<long> calls = 0;
  static const char* const text = getenv("TESSERA_KILLED_AT");
  if (text && ++calls == atol(text)) kill(getpid(), SIGKILL);
}

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

int opened(const char* name, const char* path, int flags, va_list rest) {
  const int mode = (flags & O_CREAT) != 0 ? va_arg(rest, int) : 0;
  if ((flags & (O_CREAT | O_TRUNC)) != 0) count();
  return next<int(const char*, int, ...)>(name)(path, flags, mode);
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const int file = opened("open", path, flags, rest);
  va_end(rest);
  return file;
}

int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const int file = opened("open64", path, flags, rest);
  va_end(rest);
  return file;
}

FILE* fopen(const char* path, const char* mode) {
  if (mode[0] != 'r') count();
  static auto* const call = next<FILE*(const char*, const char*)>("fopen");
  return call(path, mode);
}

int fflush(FILE* file) {
  count();
  static auto* const call = next<int(FILE*)>("fflush");
  return call(file);
}

ssize_t write(int file, const void* data, size_t bytes) {
  count();
  static auto* const call = next<ssize_t(int, const void*, size_t)>("write");
  return call(file, data, bytes);
}

int fsync(int file) {
  count();
  static auto* const call = next<int(int)>("fsync");
  return call(file);
}

int mkdir(const char* path, mode_t mode) {
  count();
  static auto* const call = next<int(const char*, mode_t)>("mkdir");
  return call(path, mode);
}

int rename(const char* from, const char* to) {
  count();
  static auto* const call = next<int(const char*, const char*)>("rename");
  return call(from, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  count();
  static auto* const call = next<int(int, const char*, int, const char*, unsigned)>("renameat2");
  return call(from_folder, from, to_folder, to, flags);
}

int unlink(const char* path) {
  count();
  static auto* const call = next<int(const char*)>("unlink");
  return call(path);
}

int unlinkat(int folder, const char* path, int flags) {
  count();
  static auto* const call = next<int(int, const char*, int)>("unlinkat");
  return call(folder, path, flags);
}
}
