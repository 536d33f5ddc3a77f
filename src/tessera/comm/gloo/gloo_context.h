#pragma once

#include <gloo/common/error.h>
#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>

#include <chrono>
#include <memory>
#include <string>

namespace tessera::comm {

/// Gloo's own deadline, which would otherwise end a run that only computes for long. It is longer than any wait: waits
/// have our deadlines, and the alarm ends them earlier.
inline constexpr std::chrono::hours kForever{24 * 365};

/// One member's connections to the others of a group. Members make them one by one, because Gloo's own way to connect a
/// whole group cannot be interrupted.
class GlooContext : public gloo::Context {
 public:
  GlooContext(int member, int size, std::shared_ptr<gloo::transport::Device> device);

  /// The address at which another can reach this member, in Gloo's form.
  std::string address_for(int other);
  /// Connects to another at its address for this member. Returns when it is connected, or given up; throws Gloo's
  /// exceptions.
  void connect(int other, const std::string& address);
  /// Ends a connect() that another thread may wait in.
  void give_up_on(int other);
};

}  // namespace tessera::comm
