#pragma once

#include <cstdint>

#include <boost/intrusive/list.hpp>

namespace sluice {

// What a call holds of its request, as the core has counted it. Linked while that is more than the call's share. Used
// on the link's thread only.
class HeldRequest
    : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  virtual ~HeldRequest() = default;
  // Lets go of all that the call can do without, and of the call itself if that is not enough.
  virtual void Release() = 0;

  int64_t bytes() const { return bytes_; }
  void set_bytes(int64_t bytes) { bytes_ = bytes; }

 private:
  int64_t bytes_ = 0;
};

}  // namespace sluice
