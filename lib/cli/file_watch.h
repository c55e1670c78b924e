#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"

namespace boost::asio {
class io_context;
}

namespace sluice {

// Looks at a config file again and again, and at each SIGHUP, on the thread of an io_context. What is in it counts, not
// when it was written or what its path leads to: Kubernetes swaps the links that lead to a file of a ConfigMap. One for
// each file that is followed.
class FileWatch {
 public:
  // `on_change`, on the thread of the context: after the first look, for nobody knows when the file was read before;
  // whenever there is something else in it than at the last look, or it cannot be read any more; and at each SIGHUP.
  // `period` 0: at SIGHUP only.
  FileWatch(boost::asio::io_context& context, std::string path, absl::Duration period, std::function<void()> on_change);
  ~FileWatch();  // after it nothing is called; SIGHUP has its default action again
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;

 private:
  class Loop;
  boost::asio::io_context& context_;
  const std::shared_ptr<Loop> loop_;
};

}  // namespace sluice
