#pragma once

#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

// Boost 1.74 needs the header utility before it in C++20.
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>

#include "sluice/fan_out.h"

namespace sluice {

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
        auto work = boost::asio::make_work_guard(boost::asio::get_associated_executor(handler));
        // Shared, because std::function copies what it holds, and handlers only move. The mutex is locked until the
        // start has returned: the handler of a coroutine destroys the objects that started it.
        const auto pending = std::make_shared<std::pair<decltype(handler), std::mutex>>(
            std::piecewise_construct, std::forward_as_tuple(std::move(handler)), std::forward_as_tuple());
        const std::lock_guard<std::mutex> starting(pending->second);
        auto started = fan_out.CallAsync<Request, Response>(
            method, map, std::move(merge), options, [pending, work = std::move(work)](FanOutResult result) mutable {
              const auto executor = work.get_executor();
              boost::asio::post(executor, [pending, work = std::move(work), result = std::move(result)]() mutable {
                { const std::lock_guard<std::mutex> wait(pending->second); }
                work.reset();
                auto handler = std::move(pending->first);
                std::move(handler)(std::move(result));
              });
            });
        if (call != nullptr) *call = std::move(started);
      },
      token, method, map, std::move(merge), options);
}

}  // namespace sluice
