#pragma once

#include <sys/prctl.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/compiler/programs.h"
#include "tessera/ir/text.h"
#include "tessera/runtime/process_share.h"
#include "tessera/runtime/rank_plan.h"
#include "tessera/sim/predict.h"

/// Runs of the simulated device whose kernels and links do nothing but take the predicted time.
namespace tessera::forecast {

using Clock = std::chrono::steady_clock;

/// When messages were sent, in seconds of Pace, so that receivers know when they arrive. One for all ranks.
class Mail {
 public:
  /// Of the n-th message from one rank to another; a receiver takes it once the message has come.
  void send(int from, int to, int64_t n, double begin) {
    const std::lock_guard lock(mutex_);
    begun_[{from, to, n}] = begin;
  }
  double take(int from, int to, int64_t n) {
    const std::lock_guard lock(mutex_);
    return begun_.extract({from, to, n}).mapped();
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<int, int, int64_t>, double> begun_;
};

/// What a rank's kernels and communications take. They sleep, or they add to their queue's seconds, which are a number:
/// then no thread has to wake in time.
struct Pace {
  bool sleeps = true;
  std::map<const kernels::Kernel*, double> kernels;
  std::map<std::string, double, std::less<>> communications;  ///< by label
  double end = 0;                                             ///< seconds of the last queue that finished
  Mail* mail = nullptr;
};

/// Of the queue whose thread this is, since its first work.
inline thread_local double queue_seconds = 0;

// The end of a sleep is late by what the system takes to wake a thread, so that the last bit is spent awake.
inline void pass_until(bool sleeps, double seconds) {
  if (!sleeps) {
    queue_seconds = std::max(queue_seconds, seconds);
    return;
  }
  constexpr std::chrono::microseconds kAwake{300};
  const Clock::time_point end(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
  std::this_thread::sleep_until(end - kAwake);
  while (Clock::now() < end) std::this_thread::yield();
}

// Those of the queue, or of the clock.
inline double seconds_now(bool sleeps) {
  return sleeps ? std::chrono::duration<double>(Clock::now().time_since_epoch()).count() : queue_seconds;
}

inline void pass(bool sleeps, double seconds) {
  pass_until(sleeps, seconds_now(sleeps) + seconds);
}

struct PacedEvent : device::Event {
  std::shared_ptr<Event> event;
  double seconds = 0;  ///< of its queue
};

class PacedQueue : public device::Queue {
 public:
  PacedQueue(std::unique_ptr<Queue> queue, Pace& pace) : queue_(std::move(queue)), pace_(pace) {}

  void run(kernels::Kernel& kernel, const kernels::KernelArgs& args) override {
    const auto found = pace_.kernels.find(&kernel);
    if (found == pace_.kernels.end()) {  // packs a weight, before the run
      queue_->run(kernel, args);
      return;
    }
    in_turn([sleeps = pace_.sleeps, seconds = found->second] { pass(sleeps, seconds); });
  }
  void call(device::Work work, const kernels::KernelArgs& args) override { queue_->call(std::move(work), args); }
  void set(void* to, const void* bytes, size_t count) override { queue_->set(to, bytes, count); }
  void copy(void* to, const void* from, size_t bytes, device::Direction direction) override {
    queue_->copy(to, from, bytes, direction);
  }
  void copy_box(void* to, const Box& to_box, const void* from, const Box& from_box, size_t element_bytes) override {
    queue_->copy_box(to, to_box, from, from_box, element_bytes);
  }
  void clear(void* memory, size_t bytes) override { queue_->clear(memory, bytes); }
  void discard(void* memory, size_t bytes) override { queue_->discard(memory, bytes); }
  std::shared_ptr<device::Event> record() override {
    auto made = std::make_shared<PacedEvent>();
    in_turn([made] { made->seconds = queue_seconds; });
    made->event = queue_->record();
    return made;
  }
  void wait(std::shared_ptr<device::Event> event) override {
    auto paced = std::static_pointer_cast<PacedEvent>(std::move(event));
    queue_->wait(paced->event);
    in_turn([paced] { queue_seconds = std::max(queue_seconds, paced->seconds); });
  }
  void note(const char* step) override { queue_->note(step); }
  void note_time(std::chrono::steady_clock::time_point& time) override { queue_->note_time(time); }
  void finish(const std::function<void()>& look) override {
    double seconds = 0;
    in_turn([&seconds] { seconds = queue_seconds; });
    queue_->finish(look);
    pace_.end = std::max(pace_.end, seconds);
  }
  void settle() noexcept override { queue_->settle(); }

 private:
  template <typename Work>
  void in_turn(Work work) {
    queue_->call([work](const kernels::KernelArgs&) { work(); }, {});
  }

  std::unique_ptr<Queue> queue_;
  Pace& pace_;
};

/// A communication ends the predicted time after its last member has started it; a message, after its sender has.
class PacedCommunicator : public comm::Communicator {
 public:
  PacedCommunicator(std::unique_ptr<Communicator> inner, const Pace& pace) : inner_(std::move(inner)), pace_(pace) {}

  int member() const override { return inner_->member(); }
  int size() const override { return inner_->size(); }
  comm::Ticket start(const comm::Operation& operation) override {
    // Its receiver may have it at once.
    if (operation.kind == comm::Kind::send)
      pace_.mail->send(member(), operation.to, sent_[operation.to]++, seconds_now(pace_.sleeps));
    const comm::Ticket ticket = inner_->start(operation);
    const auto found = pace_.communications.find(operation.label);
    check(found != pace_.communications.end(), "each communication has a predicted time");
    Started& made = started_[ticket];
    made.seconds = found->second;
    if (operation.kind == comm::Kind::recv) {
      made.from = operation.from;
      made.number = received_[operation.from]++;
      return ticket;
    }
    if (operation.kind == comm::Kind::send || pace_.sleeps) return ticket;
    made.begin = queue_seconds;
    comm::Operation latest{.kind = comm::Kind::all_reduce, .dtype = DType::float64, .reduction = Reduction::max};
    latest.in = &made.begin;
    latest.out = &made.last_begin;
    latest.count = 1;
    made.latest = inner_->start(latest);
    return ticket;
  }
  void wait(comm::Ticket ticket) override {
    inner_->wait(ticket);
    const auto made = started_.extract(ticket);
    if (made.mapped().from >= 0) {
      const double begin = pace_.mail->take(made.mapped().from, member(), made.mapped().number);
      return pass_until(pace_.sleeps, begin + made.mapped().seconds);
    }
    if (!pace_.sleeps && made.mapped().latest) {
      inner_->wait(*made.mapped().latest);
      queue_seconds = std::max(queue_seconds, made.mapped().last_begin);
    }
    pass(pace_.sleeps, made.mapped().seconds);
  }
  bool reduces_by_element(const comm::Operation& operation) const override {
    return inner_->reduces_by_element(operation);
  }

 private:
  struct Started {
    double seconds = 0;                  // that it takes
    double begin = 0, last_begin = 0;    // the seconds of this member's queue and of the last one's
    std::optional<comm::Ticket> latest;  // tells the last one's
    int from = -1;                       // of a message that is received: its sender
    int64_t number = 0;                  // among those from there
  };
  std::unique_ptr<Communicator> inner_;
  const Pace& pace_;
  std::map<comm::Ticket, Started> started_;
  std::map<int, int64_t> sent_, received_;  // messages, by the other member
};

class PacedDevice : public device::Device {
 public:
  explicit PacedDevice(Pace& pace) : device_(device::make_simulated()), pace_(pace) {}

  std::string_view name() const override { return device_->name(); }
  bool uses_host_memory() const override { return device_->uses_host_memory(); }
  bool is_asynchronous() const override { return device_->is_asynchronous(); }
  device::Memory allocate(size_t bytes, const char* what, const device::HostMemory& host) override {
    return device_->allocate(bytes, what, host);
  }
  std::unique_ptr<device::Queue> make_queue(int threads, std::atomic<const char*>* working_on) override {
    return std::make_unique<PacedQueue>(device_->make_queue(threads, working_on), pace_);
  }
  std::unique_ptr<comm::Communicator> communicator(std::unique_ptr<comm::Communicator> host) override {
    return device_->communicator(std::make_unique<PacedCommunicator>(std::move(host), pace_));
  }
  const kernels::Library& kernels() const override { return device_->kernels(); }

 private:
  std::shared_ptr<device::Device> device_;
  Pace& pace_;
};

/// Of a model's input, and of its output.
constexpr int64_t kElements = 32 * 64;

/// Layers of two towers, so that the sum that tp takes of one can go on beside the other.
inline std::string layers(int count) {
  std::string weights, nodes;
  for (int i = 0; i < count; ++i) {
    const std::string from = "h" + std::to_string(i), to = "h" + std::to_string(i + 1);
    for (const char* tower : {"l", "r"}) {
      const std::string n = tower + std::to_string(i);
      weights += (weights.empty() ? "" : ", ") + ("float[64, 256] up" + n) + ", float[256, 64] down" + n;
      nodes += "  a" + n + " = MatMul (" + from + ", up" + n + ")\n  b" + n + " = Gelu (a" + n + ")\n  c" + n +
               " = MatMul (b" + n + ", down" + n + ")\n  d" + n + " = Softmax <axis = 1> (c" + n + ")\n";
    }
    nodes += "  " + to + " = Add (dl" + std::to_string(i) + ", dr" + std::to_string(i) + ")\n";
  }
  return "<opset_import: [\"\" : 21]>\nstack (float[batch, 64] h0) => (float[batch, 64] h" + std::to_string(count) +
         ") <" + weights + "> {\n" + nodes + "}";
}

/// `kernel`: seconds of one, in the mean about.
inline MachineModel slow_machine(double kernel) {
  MachineModel machine;
  machine.name = "asleep";
  machine.device = "simulated";
  machine.kernel = kernel;
  // The largest product here takes about twice as long as a kernel at least does.
  machine.products[DType::float32] = {2 * 32 * 64 * 256 / kernel, {0, 0, 0}};
  machine.bandwidths = {{std::numeric_limits<double>::infinity(), 1e15}};
  machine.links = {{"near", 0, kernel / 4, 32 * 64 * 4 / kernel}};
  return machine;
}

/// Runs the ranks as the executor does, once, and returns the seconds that passed, or those of the queues.
inline double run(const runtime::DryRun& run, const sim::Predicted& predicted, bool sleeps) {
  const Mesh& mesh = run.programs->mesh();
  const auto ranks = static_cast<size_t>(mesh.size());
  const std::unique_ptr<comm::World> world = comm::make_local_world(static_cast<int>(ranks));
  runtime::ProcessShare share(0);
  runtime::StateStore store(share.weights);
  std::vector<Pace> paces(ranks);
  Mail mail;
  std::barrier together(static_cast<std::ptrdiff_t>(ranks));
  std::vector<Clock::time_point> begins(ranks), ends(ranks);
  std::mutex planning;
  const auto one_rank = [&](size_t r) {
    prctl(PR_SET_TIMERSLACK, 1UL);  // that of the queues' threads, too, which inherit it
    Pace& pace = paces[r];
    pace.sleeps = sleeps;
    pace.mail = &mail;
    std::unique_lock lock(planning);
    runtime::RankState state(mesh, static_cast<int>(r), 1, share.limit, store.of(static_cast<int>(r)),
                             std::make_shared<PacedDevice>(pace), share.weights);
    state.connect(world.get());
    runtime::RankPlan plan(state, run.programs, run.symbols,
                           {run.options.keep_all, run.options.overlap, run.options.prefetch});
    lock.unlock();
    const sim::PredictedClass& own = predicted.classes[r];
    check(own.steps.size() == plan.machine().steps.size(), "what runs is what was simulated");
    for (size_t s = 0; s < own.steps.size(); ++s) {
      const bind::Step& step = *plan.machine().steps[s];
      if (step.kernel)
        pace.kernels[step.kernel.get()] = own.steps[s].seconds;
      else
        pace.communications[step.info.name] = own.steps[s].seconds;
    }
    std::vector<float> input(kElements), output(kElements);
    for (const bool warm : {false, true}) {
      if (!warm && !sleeps) continue;  // it is there since communicators are made at their first use, which takes time
      together.arrive_and_wait();
      begins[r] = Clock::now();
      plan.run({input.data()}, {output.data()});
      ends[r] = Clock::now();
      if (!warm) together.arrive_and_wait();
    }
    state.connect(nullptr);
  };
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      try {
        one_rank(r);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %zu: %s\n", r, error.what());
        std::_Exit(2);  // the others wait for it
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (!sleeps)
    return std::max_element(paces.begin(), paces.end(), [](const Pace& a, const Pace& b) { return a.end < b.end; })
        ->end;
  return std::chrono::duration<double>(*std::max_element(ends.begin(), ends.end()) -
                                       *std::max_element(begins.begin(), begins.end()))
      .count();
}

/// A run that is predicted, and the prediction.
struct PacedRun {
  runtime::DryRun dry;
  sim::Predicted predicted;
};
/// `options` have a mesh; the machine prices choices if `chooses`.
inline PacedRun paced_run(const std::string& text, compiler::ProgramOptions options, const MachineModel& machine,
                          bool chooses = false) {
  const Topology links = options.mesh.size() > 1 ? machine.topology(options.mesh) : Topology();
  if (chooses) {
    options.machine = std::make_shared<const MachineModel>(machine);
    options.topology = links;
  }
  const auto source = std::make_shared<const compiler::Source>("model", parse_text(text), std::vector<uint64_t>());
  const Symbols sizes(options.shapes.begin(), options.shapes.end());
  PacedRun made{compiler::compile_program(source, options).dry_run(sizes), {}};
  sim::PredictOptions with;
  with.machine = &machine;
  with.topology = links;
  with.fold = false;
  made.predicted = sim::predict(made.dry, with);
  return made;
}

inline PacedRun paced_run(const std::string& mesh, const std::string& presets, double kernel) {
  compiler::ProgramOptions options;
  options.mesh = Mesh::parse(mesh);
  options.presets = presets;
  options.shapes = {{"batch", 32}};
  return paced_run(layers(6), options, slow_machine(kernel));
}

/// Two products over four ranks, before which rows are gathered and after which they are scattered, on links that take
/// as long as a product.
inline PacedRun paced_pair(double kernel, compiler::ProductRings rings) {
  constexpr int64_t kRows = 64, kColumns = kElements / kRows;
  compiler::ProgramOptions options;
  options.mesh = Mesh::parse("t=4");
  options.presets = "none";
  for (const char* each : {"x=[t, -]", "v=[-, t]", "w=[t, -]", "y=[t, -]"})
    options.annotations.push_back(compiler::AnnotationRequest::parse(each, "annotation"));
  options.product_rings = rings;
  MachineModel machine = slow_machine(kernel);
  machine.kernel = 0;
  machine.products[DType::float32] = {2.0 * kRows * kColumns * 256 / 4 / kernel, {0, 0, 0}};
  machine.links = {{"near", 0, 0, kElements * 4.0 * 3 / 4 / kernel}};
  return paced_run(
      fmt::format("<opset_import: [\"\" : 21]>\npair (float[{0}, {1}] x) => (float[{0}, {1}] y) <float[{1}, "
                  "256] v, float[256, {1}] w> {{\n  h = MatMul (x, v)\n  a = Relu (h)\n  y = MatMul (a, "
                  "w)\n}}",
                  kRows, kColumns),
      options, machine, true);
}

}  // namespace tessera::forecast
