#include "tessera/comm/gloo/gloo_context.h"

#include <gloo/transport/address.h>
#include <gloo/transport/pair.h>

#include <chrono>
#include <vector>

namespace tessera::comm {

GlooContext::GlooContext(int member, int size, std::shared_ptr<gloo::transport::Device> device)
    : gloo::Context(member, size) {
  setTimeout(kForever);
  device_ = std::move(device);
  transportContext_ = device_->createContext(member, size);
  transportContext_->setTimeout(kForever);
  for (int other = 0; other < size; ++other)
    if (other != member) transportContext_->createPair(other);
}

std::string GlooContext::address_for(int other) {
  const std::vector<char> bytes = getPair(other)->address().bytes();
  return {bytes.begin(), bytes.end()};
}

void GlooContext::connect(int other, const std::string& address) {
  getPair(other)->connect(std::vector<char>(address.begin(), address.end()));
}

void GlooContext::give_up_on(int other) {
  getPair(other)->close();
}

}  // namespace tessera::comm
