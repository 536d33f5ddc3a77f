#include "tessera/comm/gloo/gloo_world.h"

#include <exception>

#include "tessera/base/error.h"
#include "tessera/comm/gloo/gloo_communicator.h"
#include "tessera/comm/group.h"

namespace tessera::comm {
namespace {

class GlooWorld : public World {
 public:
  GlooWorld(const Launched& launch, const WorldOptions& options, int most_direct)
      : fabric_(std::make_shared<GlooFabric>(launch, options, most_direct)) {}
  ~GlooWorld() override {
    if (std::uncaught_exceptions() > 0) fabric_->watch().abort("it gave up", ErrorKind::running);
  }

  int size() const override { return fabric_->size(); }
  std::vector<int> local_ranks() const override { return {fabric_->rank()}; }

  std::unique_ptr<Communicator> join(int rank, std::span<const int> members) override {
    check(rank == fabric_->rank(), "a process is one rank of Gloo's, and joins as that");
    member_of(rank, members, size());
    return std::make_unique<GlooCommunicator>(fabric_, members);
  }

  void abort(int, std::string_view message, ErrorKind kind) override { fabric_->watch().abort(message, kind); }
  bool first_has_heard(std::chrono::milliseconds most) override { return fabric_->watch().first_has_heard(most); }
  std::optional<End> end() const override { return fabric_->watch().end(); }

 private:
  std::shared_ptr<GlooFabric> fabric_;  // lives on in the communicators
};

}  // namespace

std::unique_ptr<World> make_gloo_world(const Launched& launch, const WorldOptions& options, int most_direct) {
  return std::make_unique<GlooWorld>(launch, options, most_direct);
}

}  // namespace tessera::comm
