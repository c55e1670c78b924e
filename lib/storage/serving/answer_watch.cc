#include "lib/storage/serving/answer_watch.h"

#include <utility>

#include "absl/time/time.h"

namespace sluice {
namespace {

constexpr absl::Duration kReportPeriod = absl::Milliseconds(250);

}  // namespace

AnswerWatch::AnswerWatch(IoThread& io_thread) {
  auto sampler =
      TcpSampler::Start(io_thread.context(), {.period = kReportPeriod, .on_sample = [this](auto, auto sockets) {
                                                metrics_.Update(sockets);
                                                reports_.Update(sockets);
                                              }});
  status_ = sampler.status();
  if (sampler.ok()) sampler_ = *std::move(sampler);
}

}  // namespace sluice
