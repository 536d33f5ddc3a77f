#pragma once

#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tessera/comm/rendezvous/frames.h"

namespace tessera::comm {

/// The store where the ranks of a run meet: keys and values by which they exchange addresses, and notices from each to
/// all. Rank 0 serves it from a thread. It carries no tensors. If a rank's connection ends without a farewell, the rank
/// has died, and the others get a notice in its name.
class StoreServer {
 public:
  StoreServer(const std::string& host, int port, int size);
  /// Serves on until all ranks have joined and left, for three seconds at most.
  ~StoreServer();

 private:
  struct Client {
    Socket socket;
    std::string bytes;  // received, but no whole frame yet
    int rank = -1;      // before its hello
    bool through = false;
    std::vector<std::string> wanted;
  };

  void serve();
  void answer(Client& client, const Frame& frame);
  void welcome(Client& client, const std::string& content);
  void refuse(Client& client, const std::string& why);
  void end_for_all(Client& client, const std::string& why);
  void drop(Client& client);
  void tell(int from, const std::string& text);
  void say_bye_if_all_are_through();

  const int size_;
  Socket listener_;
  Socket wake_read_, wake_write_;  // ends the thread's poll
  std::map<std::string, std::string> values_;
  std::vector<Client> clients_;
  int come_ = 0;                           // ranks, so far
  std::vector<std::string> last_notices_;  // that the run has ended, and later ones, for ranks that join late
  std::thread thread_;
};

}  // namespace tessera::comm
