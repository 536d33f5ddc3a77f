#pragma once

#include <gloo/common/error.h>
#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>

#include <chrono>
#include <memory>
#include <string>

namespace tessera::comm {

/// Gloo's own deadline, which would end a run that only computes for long. Longer than any wait lasts: waits have
/// deadlines of ours, and the alarm ends them earlier.
inline constexpr std::chrono::hours kForever{24 * 365};

/// One member's connections to the others of a group, which members make one by one: Gloo's own way to connect a whole
/// group cannot be given up.
class GlooContext : public gloo::Context {
 public:
  GlooContext(int member, int size, std::shared_ptr<gloo::transport::Device> device);

  /// Where this member can be reached by another, in Gloo's form.
  std::string address_for(int other);
  /// Connects to another at its address for this member. Returns when it is connected, or given up; throws exceptions
  /// of Gloo's.
  void connect(int other, const std::string& address);
  /// Ends a connect() that another thread may wait in.
  void give_up_on(int other);
};

}  // namespace tessera::comm
