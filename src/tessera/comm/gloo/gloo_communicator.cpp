#include "tessera/comm/gloo/gloo_communicator.h"

#include "tessera/base/error.h"
#include "tessera/comm/gloo/gloo_collective.h"

namespace tessera::comm {
namespace {

constexpr std::chrono::milliseconds kLook{20};
/// When a connection breaks, the store's notice of who has died may be a moment later.
constexpr std::chrono::milliseconds kGrace{1000};
/// A slot that no message and no algorithm uses.
constexpr uint64_t kNeverSent = uint64_t{0x42} << 56;
/// For messages to leave after a run's end.
constexpr std::chrono::milliseconds kFarewell{5000};

/// Ends every operation on the context with an exception. Gloo does so only to a wait that times out.
void break_off(GlooContext& context) {
  std::byte nothing{};
  const auto buffer = context.createUnboundBuffer(&nothing, 1);
  try {
    buffer->recv(context.rank == 0 ? 1 : 0, kNeverSent);
    buffer->waitRecv(std::chrono::milliseconds(1));
  } catch (const gloo::Exception&) {
    // as intended, or the connections are broken already
  }
}

/// Waits for the reason of a broken connection, and throws it; if there is none, what Gloo says.
[[noreturn]] void throw_cause(Watch& watch, const std::exception& error) {
  const auto deadline = std::chrono::steady_clock::now() + kGrace;
  while (std::chrono::steady_clock::now() < deadline) {
    watch.check_alive();
    std::this_thread::sleep_for(kLook / 4);
  }
  watch.abort(error.what());
  fail_running("gloo", "{}", error.what());
}

/// A transfer whose failures are explained by the watch.
class Watched : public Transfer {
 public:
  Watched(std::unique_ptr<Transfer> transfer, Watch& watch) : transfer_(std::move(transfer)), watch_(watch) {}
  bool advance() override {
    try {
      return transfer_->advance();
    } catch (const gloo::Exception& error) {
      throw_cause(watch_, error);
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
  Collective(GlooCommunicator& owner, std::shared_ptr<Job> job) : owner_(owner), job_(std::move(job)) {}
  bool advance() override {
    std::unique_lock lock(owner_.mutex_);
    if (!owner_.ended_.wait_for(lock, kLook, [&] { return job_->done; })) return false;
    if (job_->failure) std::rethrow_exception(job_->failure);
    return true;
  }
  bool test() override {
    std::lock_guard lock(owner_.mutex_);
    return job_->done;
  }

 private:
  GlooCommunicator& owner_;
  std::shared_ptr<Job> job_;
};

GlooCommunicator::GlooCommunicator(std::shared_ptr<GlooFabric> fabric, std::span<const int> members)
    : RemoteCommunicator(fabric->shared_watch(), fabric->rank(), members, fabric->size()),
      fabric_(std::move(fabric)),
      context_(members.size() > 1 ? fabric_->connect(members) : nullptr),
      messages_(context_, fabric_->alarm()),
      thread_([this] { work(); }) {}

GlooCommunicator::~GlooCommunicator() {
  if (!fabric_->watch().ended()) messages_.flush(kFarewell);
  {
    std::lock_guard lock(mutex_);
    // What has been started and not waited for never ends by itself if another member does not come.
    if (!jobs_.empty() && context_) break_off(*context_);
    stop_ = true;
  }
  started_.notify_all();
  thread_.join();
}

std::unique_ptr<Transfer> GlooCommunicator::begin(Staged& staged, uint64_t number) {
  const Kind kind = staged.operation().kind;
  std::unique_ptr<Transfer> transfer;
  try {
    if (kind == Kind::send || kind == Kind::recv || kind == Kind::permute) {
      transfer = messages_.begin(staged, number);
    } else {
      auto job = std::make_shared<Job>(&staged, number);
      {
        std::lock_guard lock(mutex_);
        jobs_.push_back(job);
      }
      started_.notify_one();
      transfer = std::make_unique<Collective>(*this, std::move(job));
    }
  } catch (const gloo::Exception& error) {
    throw_cause(fabric_->watch(), error);
  }
  return std::make_unique<Watched>(std::move(transfer), fabric_->watch());
}

void GlooCommunicator::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    started_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    std::shared_ptr<Job> job = jobs_.front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      run_collective(context_, *job->staged, job->number);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    job->failure = failure;
    job->done = true;
    jobs_.pop_front();
    ended_.notify_all();
  }
}

}  // namespace tessera::comm
