#include <unistd.h>

// A disk that takes far longer than whoever ends a process waits.
extern "C" int fsync(int) {
  sleep(20);
  return 0;
}
