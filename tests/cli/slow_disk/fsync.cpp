#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace {

// What a file descriptor stands for; "" if that cannot be found out.
void name_of(int file, char* name, size_t size) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, name, size - 1);
  name[length > 0 ? length : 0] = '\0';
}

}  // namespace

// A disk that takes far longer than a user waits after Ctrl-C. With TESSERA_DISK_FILE, only files whose paths hold that
// text suffer: they wait until the file TESSERA_DISK_HELD is gone, or, without that, cannot be written.
extern "C" int fsync(int file) {
  const char *suffers = getenv("TESSERA_DISK_FILE"), *held = getenv("TESSERA_DISK_HELD");
  if (!suffers) {
    sleep(20);
    return 0;
  }
  char name[4096];
  name_of(file, name, sizeof name);
  if (!strstr(name, suffers)) return 0;
  if (!held) {
    errno = EIO;
    return -1;
  }
  while (access(held, F_OK) == 0) usleep(10'000);
  return 0;
}
