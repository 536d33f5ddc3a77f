#include "tessera/comm/fault.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "tessera/base/error.h"

namespace tessera::comm {
namespace {

constexpr const char* kVariable = "TESSERA_FAULT";

[[noreturn]] void mistake(std::string_view text) {
  fail("fault", "{} is '{}'; write rank=1,operation=5,do=die, or do=exit, do=throw, do=stall, do=stop", kVariable,
       text);
}

int64_t number_of(std::string_view digits, std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) mistake(text);
  return number;
}

}  // namespace

Fault Fault::parse(std::string_view text) {
  Fault fault;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos) mistake(text);
    const std::string_view name = item.substr(0, equals), value = item.substr(equals + 1);
    if (name == "rank")
      fault.rank = static_cast<int>(number_of(value, text));
    else if (name == "operation")
      fault.operation = number_of(value, text);
    else if (name == "after")
      fault.after = std::chrono::milliseconds(number_of(value, text));
    else if (name == "do" && value == "die")
      fault.act = Act::die;
    else if (name == "do" && value == "exit")
      fault.act = Act::leave;
    else if (name == "do" && value == "throw")
      fault.act = Act::fail;
    else if (name == "do" && value == "stall")
      fault.act = Act::stall;
    else if (name == "do" && value == "stop")
      fault.act = Act::stop;
    else
      mistake(text);
  }
  return fault;
}

std::optional<Fault> Fault::of(int rank, int ranks) {
  const char* text = std::getenv(kVariable);
  if (!text || !*text) return std::nullopt;
  const Fault fault = parse(text);
  if (fault.rank < 0 || fault.rank >= ranks)
    fail("fault", "{} is '{}', but the ranks are 0 to {}", kVariable, text, ranks - 1);
  return fault.rank == rank ? std::optional(fault) : std::nullopt;
}

void FaultCounter::strike() {
  std::this_thread::sleep_for(fault_->after);
  switch (fault_->act) {
    case Fault::Act::die:
      std::raise(SIGKILL);
      break;
    case Fault::Act::leave:
      _exit(9);
    case Fault::Act::fail:
      fail_running("fault", "rank {} fails at communication {}, in {}, as {} says", rank_, fault_->operation,
                   step_of(flight_), kVariable);
    case Fault::Act::stop:
      std::raise(SIGSTOP);
      break;
    case Fault::Act::stall:
      while (true) pause();
  }
}

}  // namespace tessera::comm
