#pragma once

#include <atomic>
#include <memory>
#include <utility>

// Boost 1.74 misses <utility> in C++20.
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>

#include "sluice/fan_out.h"

namespace sluice {

namespace internal {

// Runs a handler on its executor once the call has ended and its start has returned. The executor has work until then.
template <class Handler>
class HandlerOfCall : public std::enable_shared_from_this<HandlerOfCall<Handler>> {
 public:
  explicit HandlerOfCall(Handler handler)
      : handler_(std::move(handler)), work_(boost::asio::get_associated_executor(handler_)) {}

  void OnDone(FanOutResult result) {
    result_ = std::move(result);
    Advance();
  }
  // The handler of a coroutine destroys the objects that started it, so it must not run before the start has returned.
  void OnStarted() { Advance(); }

 private:
  void Advance() {
    if (steps_.fetch_add(1) == 0) return;
    boost::asio::post(work_.get_executor(), [self = this->shared_from_this()] {
      self->work_.reset();
      Handler handler = std::move(self->handler_);
      std::move(handler)(std::move(self->result_));
    });
  }

  Handler handler_;
  boost::asio::executor_work_guard<boost::asio::associated_executor_t<Handler>> work_;
  FanOutResult result_;
  std::atomic<int> steps_ = 0;
};

}  // namespace internal

// FanOut::CallAsync with a completion token of Boost.Asio: a handler, boost::asio::use_future, or
// boost::asio::use_awaitable in a C++20 coroutine. The token's handler takes a FanOutResult. It runs on its own
// executor, or on the executor of the coroutine, and never inside this call. The executor has work until then. `merge`
// still runs where the link's callbacks run. The FanOut must outlive the call. `call`, if given, receives the handle to
// cancel with when the call starts: at once, or for a lazy token such as use_awaitable when it is awaited.
//
// In a coroutine, give `options` a name first: GCC 12 destroys a braced temporary in a co_await expression twice.
template <class Request, class Response, class CompletionToken>
auto AsyncCall(FanOut& fan_out, const Method<Request, Response>& method,
               const std::type_identity_t<FanOut::Map<Request>>& map,
               std::type_identity_t<FanOut::Merge<Response>> merge, const FanOutOptions& options,
               CompletionToken&& token, std::shared_ptr<FanOutCall>* call = nullptr) {
  return boost::asio::async_initiate<CompletionToken, void(FanOutResult)>(
      [&fan_out, call](auto handler, const Method<Request, Response>& method, const FanOut::Map<Request>& map,
                       FanOut::Merge<Response> merge, const FanOutOptions& options) {
        // std::function copies what it holds, and handlers only move.
        auto pending = std::make_shared<internal::HandlerOfCall<decltype(handler)>>(std::move(handler));
        auto started = fan_out.CallAsync<Request, Response>(
            method, map, std::move(merge), options,
            [pending](FanOutResult result) { pending->OnDone(std::move(result)); });
        if (call != nullptr) *call = std::move(started);
        pending->OnStarted();
      },
      token, method, map, std::move(merge), options);
}

}  // namespace sluice
