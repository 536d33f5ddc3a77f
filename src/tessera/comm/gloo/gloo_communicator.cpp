#include "tessera/comm/gloo/gloo_communicator.h"

#include "tessera/base/error.h"
#include "tessera/comm/group.h"

namespace tessera::comm {
namespace {

constexpr std::chrono::milliseconds kLook{20};
/// When a connection breaks, the store's notice of the dead rank may arrive a moment later.
constexpr std::chrono::milliseconds kGrace{1000};
/// The time for messages to leave after a run's end.
constexpr std::chrono::milliseconds kFarewell{5000};

/// Waits for the reason of a broken connection, which ends the run; without one, the reason is Gloo's message.
void await_cause(Watch& watch, const std::exception& error) {
  const auto deadline = std::chrono::steady_clock::now() + kGrace;
  while (std::chrono::steady_clock::now() < deadline) {
    if (watch.ended()) return;
    std::this_thread::sleep_for(kLook / 4);
  }
  const std::vector<int> left = watch.left(kGrace);
  const std::string why = left.empty()
                              ? error.what()
                              : fmt::format(
                                    "{} {} done and left, but others were not: ranks do not make the same calls; start "
                                    "all with the same command",
                                    rank_text(left), left.size() == 1 ? "was" : "were");
  watch.abort(why, left.empty() ? ErrorKind::running : ErrorKind::user);
}

/// A transfer whose failures the watch explains.
class Watched : public Transfer {
 public:
  Watched(std::unique_ptr<Transfer> transfer, Watch& watch) : transfer_(std::move(transfer)), watch_(watch) {}
  bool advance() override {
    try {
      return transfer_->advance();
    } catch (const gloo::Exception& error) {
      await_cause(watch_, error);
      return false;
    }
  }
  bool test() override { return transfer_->test(); }

 private:
  std::unique_ptr<Transfer> transfer_;
  Watch& watch_;
};

}  // namespace

class GlooCommunicator::Collective : public Transfer {
 public:
  Collective(GlooQueue& queue, std::shared_ptr<GlooQueue::Job> job) : queue_(queue), job_(std::move(job)) {}
  bool advance() override { return queue_.wait(*job_, kLook); }
  bool test() override { return queue_.is_done(*job_); }

 private:
  GlooQueue& queue_;
  std::shared_ptr<GlooQueue::Job> job_;
};

GlooCommunicator::GlooCommunicator(std::shared_ptr<GlooFabric> fabric, std::span<const int> members)
    : RemoteCommunicator(fabric->shared_watch(), fabric->rank(), members, fabric->size()),
      fabric_(std::move(fabric)),
      context_(members.size() > 1 ? fabric_->connect(members) : nullptr),
      messages_(context_, fabric_->alarm(), fabric_->group_of(members)),
      queue_(context_) {}

GlooCommunicator::~GlooCommunicator() {
  if (!fabric_->watch().ended()) messages_.flush(kFarewell);
}

std::unique_ptr<Transfer> GlooCommunicator::begin(Staged& staged, uint64_t number) {
  std::unique_ptr<Transfer> transfer;
  try {
    if (messages_.suits(staged.operation())) {
      transfer = messages_.begin(staged, number);
    } else {
      transfer = std::make_unique<Collective>(queue_, queue_.add(staged, number));
    }
  } catch (const gloo::Exception& error) {
    await_cause(fabric_->watch(), error);
    fabric_->watch().check_alive();
  }
  return std::make_unique<Watched>(std::move(transfer), fabric_->watch());
}

}  // namespace tessera::comm
