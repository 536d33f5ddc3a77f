// Fuzzes the small readers; the first byte chooses one.
#include "fuzz/reader.h"
#include "tessera/io/npy.h"
#include "tessera/mesh/sharding.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tessera::Expr;
  if (size == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  tessera::fuzz::run([&] {
    switch (data[0]) {
      case 'a':
        tessera::parse_npy(rest, "array");
        break;
      case 's':
        parse_sharding(rest, {Expr::symbol("batch"), 192, 576}, tessera::Mesh::parse("dp=2,tp=6"), "value");
        break;
      case 'm':
        tessera::Mesh::parse(rest);
        break;
      case 'e':
        Expr::parse(rest);
        break;
      default:
        break;
    }
  });
  return 0;
}
