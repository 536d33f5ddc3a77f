// The one visible list of backends that pass the suite.
#include "backend_suite.h"
#include "run_on_processes.h"
#include "run_on_threads.h"

namespace tessera::comm {
namespace {

void run_on_sleeping_threads(int ranks, const RankBody& body) {
  run_on_threads(ranks, {}, body);
}
void run_on_spinning_threads(int ranks, const RankBody& body) {
  run_on_threads(ranks, {.spin = true}, body);
}

INSTANTIATE_TEST_SUITE_P(Local, BackendSuite,
                         ::testing::Values(Backend{"sleeping", run_on_sleeping_threads},
                                           Backend{"spinning", run_on_spinning_threads}),
                         name_of_backend);

#ifndef TESSERA_THREAD_SANITIZER  // it keeps for itself the addresses where ranks share memory
void run_on_sleeping_processes(int ranks, const RankBody& body) {
  run_on_processes(ranks, {}, body);
}
void run_on_spinning_processes(int ranks, const RankBody& body) {
  run_on_processes(ranks, {.spin = true}, body);
}

INSTANTIATE_TEST_SUITE_P(Shared, BackendSuite,
                         ::testing::Values(Backend{"sleeping", run_on_sleeping_processes},
                                           Backend{"spinning", run_on_spinning_processes}),
                         name_of_backend);
#endif

}  // namespace
}  // namespace tessera::comm
