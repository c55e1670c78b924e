#include "lib/storage/blocks/stripe_stream.h"

#include <future>
#include <utility>

namespace sluice {
namespace {

struct NextTask {
  std::shared_ptr<StripeRead> read;
  ReadStream::Callback callback;
  StripeRead::CallOn call_on;

  void operator()(LinkCore&) { read->Next(std::move(callback), call_on); }
};

}  // namespace

absl::StatusOr<ReadPart> ReadStream::Next() {
  const auto part = std::make_shared<std::promise<absl::StatusOr<ReadPart>>>();
  Next([part](absl::StatusOr<ReadPart> next) { part->set_value(std::move(next)); });
  return part->get_future().get();
}

StripeStream::StripeStream(std::shared_ptr<ReaderGate> gate, std::shared_ptr<StripeRead> read)
    : gate_(std::move(gate)), read_(std::move(read)) {}

// The read is destroyed on the link's thread, unless the reader is gone, and then it holds nothing of it.
StripeStream::~StripeStream() {
  auto drop = [read = std::move(read_)](LinkCore&) { read->Drop(); };
  gate_->Post(drop);
}

void StripeStream::Next(Callback callback) {
  Post(std::move(callback), StripeRead::CallOn::kCallbackThread);
}

absl::StatusOr<ReadPart> StripeStream::Next() {
  const auto part = std::make_shared<std::promise<absl::StatusOr<ReadPart>>>();
  Post([part](absl::StatusOr<ReadPart> next) { part->set_value(std::move(next)); }, StripeRead::CallOn::kLinkThread);
  return part->get_future().get();
}

void StripeStream::Post(Callback callback, StripeRead::CallOn call_on) {
  NextTask next{.read = read_, .callback = std::move(callback), .call_on = call_on};
  if (!gate_->Post(next)) next.callback(read_->TellGone());
}

void StripeStream::Cancel() {
  auto cancel = [read = read_](LinkCore&) { read->Cancel(absl::CancelledError("the read was cancelled")); };
  gate_->Post(cancel);
}

}  // namespace sluice
