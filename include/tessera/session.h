#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "tessera/program.h"

namespace tessera {
inline namespace v1 {

class Connection;

/// The names of devices that ranks can compute on (SessionOptions::device).
const std::vector<std::string>& devices();

/// The most ranks that a process runs as threads.
inline constexpr int64_t kMostRankThreads = 256;

struct SessionOptions {
  /// 0: the cores divided among the machine's ranks, for all runs that go on at once; at least 1.
  int threads_per_rank = 0;
  /// What each rank computes on: "cpu", or "simulated", a CPU that behaves like an accelerator, for tests, with the
  /// memory that "simulated:512M" names (docs/devices.md).
  std::string device = "cpu";
  /// This process is one rank of several, which all make the same sessions and calls in the same order; see launch.h.
  /// Null: all ranks are threads of this process.
  std::shared_ptr<Connection> connection;
  std::chrono::milliseconds timeout{60'000};  ///< longest wait of one rank for another, where there is no connection
  /// A file for what ranks did last, written when a run fails; the error names it. "": none.
  std::string flight_record;
  /// Called with the error if a rank has failed and a rank of this process hangs: a thread cannot be ended, and run()
  /// does not return. Lets the caller end the process.
  std::function<void(const std::string& message)> abandoned;
  /// Bytes that this process may hold for all of its ranks: buffers, outputs (also those of earlier runs that the
  /// caller still holds), and weights, except those that stay mapped from files. A run that needs more is a user error
  /// that names its largest tensors, before they are allocated. 0: the memory of the machine, or of the process's
  /// control group. Sessions that share states have one limit together: that of the first.
  size_t memory_limit = 0;
  /// A session on the same mesh and connection that shares its changing states with this one: each sees what the other
  /// updates or sets. Only one of the two runs at a time. The programs must store these states in the same way
  /// (CompileOptions::sharing). Null: the session has its own states.
  const class Session* share_states = nullptr;
  /// The most runs that go on at once; others wait. Each has threads of its own for all ranks, and memory for its
  /// buffers and outputs, for which plans leave room; weights are there once. Runs of a program whose states change
  /// take turns, and so do those on processes, on a device with memory of its own, with `profile` or `keep_all`, and of
  /// models that are compiled for the sizes or values of a run.
  int concurrent_runs = 1;
  /// For so many sets of sizes of inputs plans are kept, each of which takes a few ms to make, and which take no more
  /// than about so many bytes together (for each of the runs that go on at once). The set that was not used for the
  /// longest time makes room; the latest stays.
  size_t kept_plans = 64, kept_plan_bytes = size_t{1} << 28;
  bool checkpoints = false;  ///< peak and limit count the copies of states that Checkpoints writes (training.h)
  bool overlap = true;       ///< run what does not depend on a communication while it is under way
  /// The most communications that a rank starts before it needs their results. A split state (Plan::storage) is
  /// gathered this many uses ahead, and freed after the use.
  int prefetch = 4;
  /// Ranks that wait for one another look for some microseconds without yielding, if each of their threads has a core
  /// of its own. False: they yield at once, which leaves cores to others and makes short runs longer. With a
  /// connection, ConnectOptions::spin decides.
  bool spin = true;
  bool profile = false;   ///< note the times of each operator; see profile.h
  bool keep_all = false;  ///< keep every intermediate tensor of a run, for comparisons
};

/// When a run ends without a result.
struct RunLimits {
  std::stop_token stop;                   ///< when it is told to stop
  std::chrono::milliseconds deadline{0};  ///< from the call on; 0: never
};

struct Profile;

class Checkpoints;

/// A model or a program on its ranks: threads of this process, or the processes of a connection. run() may be called
/// from several threads where there is no connection; calls beyond SessionOptions::concurrent_runs queue.
class Session {
 public:
  explicit Session(const Program& program, const SessionOptions& options = {});
  /// Runs any model over a mesh: also one whose shapes depend on the elements of its inputs (Inspection::value_inputs),
  /// that must be compiled for certain sizes (Inspection::size_symbols), or whose shapes depend on what it computes
  /// (the count of NonZero's results, a computed k of TopK, what an iteration of a Loop appends). Such a model is
  /// compiled as runs need it: for the values that decide its shapes, on the first run with these, and again once eight
  /// other sets of values came after. Where shapes depend on computed data it runs in parts, one after the other; what
  /// a part hands to the next is whole, in memory of the host.
  ///
  /// Compiles what can be compiled before a run. Throws as compile() does; and a user error for a model that runs in
  /// parts where it has states that step, or `session` has a connection. What a model that is compiled as runs need it
  /// holds (states, bytes, times) is a user error before its first run; after that it is that of the last program.
  explicit Session(const Model& model, const Mesh& mesh = {}, const Plan& plan = {}, const CompileOptions& options = {},
                   const SessionOptions& session = {});
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  /// Whole inputs to whole outputs; then all states are updated on all ranks or, if a rank fails, on none. (If it fails
  /// while ranks overwrite states, set_states() must set all of them before the next run.) Throws a user error for an
  /// input that is missing, unknown, or of the wrong dtype or shape, and a running error if a rank fails; the session
  /// can be used again after both. With a connection, all processes give the same inputs; outputs are in that of rank
  /// 0, and there are none in the others; and a rank that fails ends the connection.
  ///
  /// A limit ends the run before the next operator, and before ranks write over states; once one does, it goes on.
  /// Ranks of one process stop together, and the session keeps their plans. Where ranks are processes, run unlike
  /// programs (Plan::places) or write over states, it is as if a rank had failed, and later runs make their plans anew.
  /// The wait for other runs of the session, and making plans, are not cut short.
  Tensors run(const Tensors& inputs, const RunLimits& limits = {});
  /// The same into the caller's memory: `outputs` has tensors of the outputs' types and shapes, whose elements become
  /// the results, and which no other code may use meanwhile. Outputs that it lacks are not given. Throws a user error
  /// for a tensor of another type or shape, and for memory that is an input's or another output's. Where the model runs
  /// in parts, and where ranks are processes, results are copied there.
  void run_into(const Tensors& inputs, Tensors& outputs, const RunLimits& limits = {});
  /// As run(), on another thread. The future has what run() returns or throws; the
  /// session may end before. Inputs that borrow memory of the caller need it until then.
  std::future<Tensors> run_async(Tensors inputs, const RunLimits& limits = {});

  /// Compiles, loads and plans what a run with these inputs needs, without a run. Returns the program; nullopt if the
  /// model runs in parts for such inputs (Model::runs_in_parts), which are compiled while it runs. With a connection,
  /// all processes call it. Plans for all of concurrent_runs. Throws as run() does.
  std::optional<Program> prepare(const Tensors& inputs);
  /// Of a session of a model: the programs that the last run ran, in order: one for each iteration, where a loop's body
  /// is a part. Else empty.
  std::vector<Program> programs() const;

  /// The states that change (Model::with_states), whole, by name, as the last run left them. With a connection, all
  /// processes call it; only that of rank 0 gets the states.
  Tensors states();
  /// The same of these states only; the others are not gathered. Throws a user error for a name that no such state has.
  Tensors states(const std::vector<std::string>& names);
  /// Sets states that change to these whole values; with a connection, all processes pass the same. Throws a user error
  /// for an unknown name, or another dtype or shape; then no state has changed.
  void set_states(const Tensors& states);

  /// Bytes of each rank at its peak in one run, weights included, for inputs of these shapes. Loads what a run would
  /// load.
  std::vector<int64_t> peak_bytes(const Tensors& inputs);
  /// Bytes that this process needs for all of its ranks, which is what SessionOptions::memory_limit counts, at the peak
  /// of the runs so far and of those that prepare() and peak_bytes() were asked for, with as many at once as
  /// SessionOptions allows. Waits for runs that go on. Weights that ranks share count once; weights that stay mapped
  /// from files do not count.
  int64_t process_bytes() const;
  int threads_per_rank() const;

  /// With SessionOptions::profile: the times of the last run, on all ranks. With a connection, all processes call it.
  Profile profile() const;

  struct Kept {
    std::string name;
    Tensor value;
  };
  /// With keep_all: the intermediate tensors of the last run, in running order; whole where the outputs are.
  std::vector<Kept> kept();

 private:
  friend class Checkpoints;
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace v1
}  // namespace tessera
