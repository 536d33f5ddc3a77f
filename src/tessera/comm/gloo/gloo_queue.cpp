#include "tessera/comm/gloo/gloo_queue.h"

namespace tessera::comm {
namespace {

/// A slot that no message and no algorithm uses.
constexpr uint64_t kNeverSent = uint64_t{0x42} << 56;
constexpr std::chrono::milliseconds kPatience{1000};

/// Ends every operation on the context with an exception. Gloo does that only when a wait times out.
void break_off(GlooContext& context) {
  std::byte nothing{};
  const auto buffer = context.createUnboundBuffer(&nothing, 1);
  try {
    buffer->recv(context.rank == 0 ? 1 : 0, kNeverSent);
    buffer->waitRecv(std::chrono::milliseconds(1));
  } catch (const gloo::Exception&) {
    // as intended, or the connections are already broken
  }
}

}  // namespace

GlooQueue::GlooQueue(std::shared_ptr<GlooContext> context) : shared_(std::make_shared<Shared>()) {
  shared_->context = std::move(context);
  thread_ = std::thread([shared = shared_] { work(*shared); });
}

GlooQueue::~GlooQueue() {
  std::unique_lock lock(shared_->mutex);
  // An operation that was started but not waited for never ends by itself if another member does not arrive.
  if (!shared_->jobs.empty() && shared_->context) break_off(*shared_->context);
  shared_->stop = true;
  shared_->started.notify_all();
  if (shared_->ended.wait_for(lock, kPatience, [this] { return shared_->stopped; })) {
    lock.unlock();
    thread_.join();
  } else {
    thread_.detach();
  }
}

std::shared_ptr<GlooQueue::Job> GlooQueue::add(Staged& staged, uint64_t number) {
  auto job = std::make_shared<Job>(&staged, number);
  {
    std::lock_guard lock(shared_->mutex);
    shared_->jobs.push_back(job);
  }
  shared_->started.notify_one();
  return job;
}

bool GlooQueue::wait(const Job& job, std::chrono::milliseconds most) {
  std::unique_lock lock(shared_->mutex);
  if (!shared_->ended.wait_for(lock, most, [&] { return job.done; })) return false;
  if (job.failure) std::rethrow_exception(job.failure);
  return true;
}

bool GlooQueue::is_done(const Job& job) {
  std::lock_guard lock(shared_->mutex);
  return job.done;
}

void GlooQueue::work(Shared& shared) {
  std::unique_lock lock(shared.mutex);
  while (true) {
    shared.started.wait(lock, [&] { return shared.stop || !shared.jobs.empty(); });
    if (shared.jobs.empty()) break;
    const std::shared_ptr<Job> job = shared.jobs.front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      run_collective(shared.context, *job->staged, job->number);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    job->failure = failure;
    job->done = true;
    shared.jobs.pop_front();
    shared.ended.notify_all();
  }
  shared.stopped = true;
  shared.ended.notify_all();
}

}  // namespace tessera::comm
