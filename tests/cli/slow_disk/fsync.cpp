#include <unistd.h>

// A disk that takes far longer than a user waits after Ctrl-C.
extern "C" int fsync(int) {
  sleep(20);
  return 0;
}
