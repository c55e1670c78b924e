#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace sluice {

// The threads on which names are looked up, since getaddrinfo blocks, for up to a minute if a name server does not
// respond. A name has one look-up at a time, so it blocks one thread. Names that have not been found before may block
// all threads but kForKnown, which always look up names that were found the last time. There is one for each executor.
// Thread-safe.
class LookUpThreads {
 public:
  static constexpr size_t kThreads = 32;  // at most; each begins when it is needed
  static constexpr size_t kForKnown = 8;

  // Blocks. Returns whether the name was found, or nothing if it was not looked up.
  using LookUp = std::function<std::optional<bool>()>;

  LookUpThreads() = default;
  ~LookUpThreads();  // as Stop, and waits for the look-ups that are under way
  LookUpThreads(const LookUpThreads&) = delete;
  LookUpThreads& operator=(const LookUpThreads&) = delete;

  void Run(const std::string& host, LookUp look_up);
  void Stop();  // destroys the look-ups that have not begun

 private:
  struct Name {
    bool known = false;    // found the last time
    bool running = false;  // one of its look-ups is under way
    std::deque<LookUp> waiting;
  };

  void Serve();
  void Queue(const std::string& host, const Name& name);
  std::string Next();
  size_t Ready() const;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::unordered_map<std::string, Name> names_;  // that are known, or have look-ups
  std::deque<std::string> known_;                // in their order: with look-ups, and none is under way
  std::deque<std::string> others_;
  size_t others_running_ = 0;
  size_t idle_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace sluice
