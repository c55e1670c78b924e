#pragma once

#include <memory>
#include <utility>

// Boost 1.74 misses <utility> in C++20.
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>

#include "sluice/fan_out.h"

namespace sluice {

// FanOut::CallAsync with a completion token of Boost.Asio: a handler, boost::asio::use_future, or
// boost::asio::use_awaitable in a C++20 coroutine. The token's handler takes a FanOutResult, and runs on its own
// executor (the coroutine's). The FanOut outlives the call. `merge` runs on a thread of the link all the same.
template <class Request, class Response, class CompletionToken>
auto AsyncCall(FanOut& fan_out, const Method<Request, Response>& method,
               const std::type_identity_t<FanOut::Map<Request>>& map,
               std::type_identity_t<FanOut::Merge<Response>> merge, const FanOutOptions& options,
               CompletionToken&& token) {
  return boost::asio::async_initiate<CompletionToken, void(FanOutResult)>(
      [&fan_out](auto handler, const Method<Request, Response>& method, const FanOut::Map<Request>& map,
                 FanOut::Merge<Response> merge, const FanOutOptions& options) {
        // std::function copies what it holds, and handlers only move.
        auto shared = std::make_shared<decltype(handler)>(std::move(handler));
        auto executor = boost::asio::get_associated_executor(*shared);
        auto work = boost::asio::make_work_guard(executor);
        fan_out.CallAsync<Request, Response>(
            method, map, std::move(merge), options, [shared, executor, work](FanOutResult result) {
              boost::asio::post(executor,
                                [shared, result = std::move(result)]() mutable { (*shared)(std::move(result)); });
            });
      },
      token, method, map, std::move(merge), options);
}

}  // namespace sluice
