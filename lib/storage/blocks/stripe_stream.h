#pragma once

#include <memory>

#include "sluice/read_stream.h"

#include "lib/storage/blocks/reader_gate.h"
#include "lib/storage/blocks/stripe_read.h"

namespace sluice {

// A consumer's handle of a StripeRead, which lives on the link's thread. It may outlive the reader. Thread-safe.
class StripeStream final : public ReadStream {
 public:
  StripeStream(std::shared_ptr<ReaderGate> gate, std::shared_ptr<StripeRead> read);
  ~StripeStream() override;

  void Next(Callback callback) override;
  absl::StatusOr<ReadPart> Next() override;
  void Cancel() override;

 private:
  void Post(Callback callback, StripeRead::CallOn call_on);

  const std::shared_ptr<ReaderGate> gate_;
  std::shared_ptr<StripeRead> read_;
};

}  // namespace sluice
