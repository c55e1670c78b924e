#include "lib/telemetry/thread_watch.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace sluice {

void ThreadWatch::Add(std::string thread, Post post) {
  threads_.push_back({.name = std::move(thread), .post = std::move(post)});
}

absl::Status ThreadWatch::Look(TimePoint now) {
  absl::Status alive;
  for (Thread& thread : threads_) {
    if (thread.ran == nullptr || *thread.ran) {
      thread.posted = now;
      thread.ran = std::make_shared<std::atomic<bool>>(false);
      thread.post([ran = thread.ran] { *ran = true; });
    } else if (now - thread.posted > kMaxWait) {
      const absl::Duration waited = absl::FromChrono(now - thread.posted);
      alive.Update(absl::UnavailableError(absl::StrCat("the ", thread.name, " has run no task for ",
                                                       absl::FormatDuration(absl::Trunc(waited, absl::Seconds(1))),
                                                       "; it hangs")));
    }
  }
  return alive;
}

}  // namespace sluice
