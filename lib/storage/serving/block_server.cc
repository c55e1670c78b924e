#include "lib/storage/serving/block_server.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "lib/net/clock.h"
#include "lib/storage/serving/deadline.h"
#include "lib/storage/serving/grpc_status.h"
#include "lib/storage/serving/trace_context.h"
#include "lib/storage/stripe/crc32c.h"

namespace sluice {
namespace {

v1::ReadResponse ToResponse(ReadPart part) {
  struct Visitor {
    v1::ReadResponse operator()(const ReadHeader& header) const {
      v1::ReadResponse response;
      v1::ReadHeader& out = *response.mutable_header();
      out.set_file_bytes(header.file_bytes);
      out.set_offset(header.offset);
      out.set_length(header.length);
      out.set_block_bytes(header.block_bytes);
      out.set_sru_bytes(header.sru_bytes);
      out.set_workers(header.workers);
      out.set_file_crc32c(header.file_crc32c);
      return response;
    }
    v1::ReadResponse operator()(ReadChunk& chunk) const {
      v1::ReadResponse response;
      response.mutable_chunk()->set_offset(chunk.offset);
      response.mutable_chunk()->set_crc32c(Crc32c(chunk.data));
      response.mutable_chunk()->set_data(std::move(chunk.data));
      return response;
    }
    v1::ReadResponse operator()(MissingBytes& missing) const {
      v1::ReadResponse response;
      response.mutable_missing()->set_offset(missing.offset);
      response.mutable_missing()->set_length(missing.length);
      response.mutable_missing()->set_reason(std::move(missing.reason));
      return response;
    }
    v1::ReadResponse operator()(const ReadSummary& summary) const {
      v1::ReadResponse response;
      response.mutable_summary()->set_bytes_read(summary.bytes_read);
      response.mutable_summary()->set_bytes_wanted(summary.bytes_wanted);
      return response;
    }
  };
  return std::visit(Visitor{}, part);
}

// Returns the most bytes that a stream holds: two segments. A segment ends with its data block, and has at least one
// SRU.
uint64_t HeldBytes(const ReadHeader& header, int64_t segment_bytes) {
  const uint64_t segment = std::max<uint64_t>(static_cast<uint64_t>(segment_bytes), header.sru_bytes);
  return std::min(header.length, 2 * std::min(segment, header.block_bytes));
}

// One read of one client. gRPC runs its methods one after the other, except OnCancel, which only touches the stream.
class ReadReactor final : public grpc::ServerWriteReactor<v1::ReadResponse> {
 public:
  ReadReactor(std::shared_ptr<ReadStream> stream, std::shared_ptr<AnswerMemory::Share> memory)
      : memory_(std::move(memory)), stream_(std::move(stream)) {
    AskForPart();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) {
      stream_->Cancel();
      Finish(grpc::Status::CANCELLED);
    } else {
      memory_->OnTaken();
      AskForPart();
    }
  }

  void OnCancel() override { stream_->Cancel(); }
  void OnDone() override {
    memory_->OnOver();  // the context is gone after this
    delete this;
  }

 private:
  void AskForPart() {
    // The stream may call back on this thread or another. After Finish, nothing may touch the reactor.
    const std::shared_ptr<ReadStream> stream = stream_;
    stream->Next([this](absl::StatusOr<ReadPart> part) { OnPart(std::move(part)); });
  }

  void OnPart(absl::StatusOr<ReadPart> part) {
    // The reactor destroys the stream, which cancels its fetches.
    if (!part.ok()) return Finish(ToGrpc(part.status()));
    memory_->OnOffered(Now());
    const bool last = std::holds_alternative<ReadSummary>(*part);
    response_ = ToResponse(*std::move(part));
    if (last) return StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
    StartWrite(&response_);
  }

  const std::shared_ptr<AnswerMemory::Share> memory_;  // the stream has it, too
  const std::shared_ptr<ReadStream> stream_;
  v1::ReadResponse response_;
};

}  // namespace

grpc::ServerWriteReactor<v1::ReadResponse>* BlockServer::Read(grpc::CallbackServerContext* context,
                                                              const v1::ReadRequest* request) {
  if (absl::Status allowed = CheckAccess(access_.get(), *context, "BlockService/Read", request->file());
      !allowed.ok()) {
    return new RefusedStream<v1::ReadResponse>(allowed);
  }
  std::shared_ptr<BlockReader> reader = source_();
  if (!reader) return new RefusedStream<v1::ReadResponse>(absl::UnavailableError("no worker is known yet"));
  const std::optional<uint64_t> block = request->has_block() ? std::optional(request->block()) : std::nullopt;
  const auto memory =
      std::make_shared<AnswerMemory::Share>(memory_, ClientName(*context), [context] { context->TryCancel(); });
  ReadOptions options{.allow_partial = request->allow_partial(), .timeout = TimeLeft(*context)};
  options.metadata = TraceContext(*context);
  options.admit = [memory, segment_bytes = segment_bytes_.load()](const ReadHeader& header) {
    return memory->Take(HeldBytes(header, segment_bytes), Now());
  };
  // gRPC owns the reactor until OnDone, which deletes it.
  std::shared_ptr<ReadStream> stream = reader->Open(request->file(), block, options);
  return new ReadReactor(KeepReader(std::move(reader), std::move(stream)), memory);
}

}  // namespace sluice
