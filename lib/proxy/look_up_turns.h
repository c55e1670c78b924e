#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>

#include <boost/intrusive/list.hpp>

namespace sluice {

// Bounds how many new names each group of clients has looked up at a time. A name server that does not respond holds a
// thread of the link for each name, so the names of one client would hold up those of all others. Names that were found
// before have threads of their own, and are not bounded here. There is one for each proxy. Used on the link's thread
// only.
class LookUpTurns {
 public:
  static constexpr size_t kAtOnce = 8;  // of a group; the executor has 24 threads for new names

  // The first look-up of one name.
  class Turn : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
   public:
    Turn(std::shared_ptr<LookUpTurns> turns, size_t group, std::function<void()> begin);
    ~Turn() { End(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    void Ask();  // calls `begin` now or later, unless it has asked before
    void End();  // the look-up has ended, or is not needed; lets the next one begin

   private:
    friend class LookUpTurns;

    enum class State { kNone, kWaiting, kRunning };

    const std::shared_ptr<LookUpTurns> turns_;
    const size_t group_;
    const std::function<void()> begin_;
    State state_ = State::kNone;
  };

 private:
  struct Group {
    size_t running = 0;
    boost::intrusive::list<Turn, boost::intrusive::constant_time_size<false>> waiting;  // the oldest first
  };

  void BeginNext(size_t group);

  std::map<size_t, Group> groups_;  // that have a turn
};

}  // namespace sluice
