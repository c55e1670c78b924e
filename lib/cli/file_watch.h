#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"

namespace boost::asio {
class io_context;
}

namespace sluice {

// Checks a config file periodically, and at each SIGHUP, on the thread of an io_context. It compares the content, not
// the time or the target of the path: Kubernetes swaps the links that lead to a file of a ConfigMap. There is one for
// each followed file.
class FileWatch {
 public:
  // Calls `on_change` on the thread of the context in three cases. First, after the first check, because the time of
  // the caller's own read is unknown. Second, when the content differs from the last check, or the file has become
  // unreadable. Third, at each SIGHUP. `period` 0: at SIGHUP only.
  FileWatch(boost::asio::io_context& context, std::string path, absl::Duration period, std::function<void()> on_change);
  ~FileWatch();  // after it nothing is called, and SIGHUP has its default action again
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;

 private:
  class Loop;
  boost::asio::io_context& context_;
  const std::shared_ptr<Loop> loop_;
};

}  // namespace sluice
