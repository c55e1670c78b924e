#include "lib/storage/blocks/file_stream.h"

#include <future>
#include <utility>

namespace sluice {
namespace {

struct NextTask {
  std::shared_ptr<FileRead> read;
  ReadStream::Callback callback;
  FileRead::CallOn call_on;

  void operator()(LinkLoop&) { read->Next(std::move(callback), call_on); }
};

}  // namespace

absl::StatusOr<ReadPart> ReadStream::Next() {
  const auto part = std::make_shared<std::promise<absl::StatusOr<ReadPart>>>();
  Next([part](absl::StatusOr<ReadPart> next) { part->set_value(std::move(next)); });
  return part->get_future().get();
}

FileStream::FileStream(std::shared_ptr<ReaderGate> gate, std::shared_ptr<FileRead> read)
    : gate_(std::move(gate)), read_(std::move(read)) {}

// Destroys the read on the link's thread. If the reader is gone, the read holds nothing of the link.
FileStream::~FileStream() {
  auto drop = [read = std::move(read_)](LinkLoop&) { read->Drop(); };
  gate_->Post(drop);
}

void FileStream::Next(Callback callback) {
  Post(std::move(callback), FileRead::CallOn::kCallbackThread);
}

absl::StatusOr<ReadPart> FileStream::Next() {
  const auto part = std::make_shared<std::promise<absl::StatusOr<ReadPart>>>();
  Post([part](absl::StatusOr<ReadPart> next) { part->set_value(std::move(next)); }, FileRead::CallOn::kLinkThread);
  return part->get_future().get();
}

void FileStream::Post(Callback callback, FileRead::CallOn call_on) {
  NextTask next{.read = read_, .callback = std::move(callback), .call_on = call_on};
  if (!gate_->Post(next)) next.callback(read_->TellGone());
}

void FileStream::Cancel() {
  auto cancel = [read = read_](LinkLoop&) { read->Cancel(absl::CancelledError("the read was cancelled")); };
  gate_->Post(cancel);
}

}  // namespace sluice
