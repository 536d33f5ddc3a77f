// Shows what tessera printed as a page: report_page OUTPUT INPUTS…, as report_page page.html run.json trace.json
#include <cstdio>

#include "tessera/error.h"
#include "tessera/files.h"
#include "tessera/report.h"

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::fprintf(stderr, "usage: report_page OUTPUT INPUTS...\n");
    return 2;
  }
  tessera::write_file(argv[1], tessera::report_page({argv + 2, argv + argc}));
  return 0;
} catch (const tessera::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.kind());
}
