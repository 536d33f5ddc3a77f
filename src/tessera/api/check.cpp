#include "tessera/check.h"

#include "tessera/api/impl.h"
#include "tessera/proof/prove.h"

namespace tessera {
inline namespace v1 {

CheckReport check_program(const Program& program) {
  return proof::prove(*program.impl().programs);
}

}  // namespace v1

namespace api {

void require_proof(const Program& program, ErrorKind kind) {
  const CheckReport report = check_program(program);
  if (report.good()) return;
  const std::string mend = kind == ErrorKind::running        ? ""
                           : program.impl().programs->placed ? "; write the program again"
                                                             : "; mend the ranks' models";
  throw Error(kind, "check", report.findings.front().message + mend);
}

}  // namespace api
}  // namespace tessera
