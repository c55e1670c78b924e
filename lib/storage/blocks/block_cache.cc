#include "lib/storage/blocks/block_cache.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/storage/blocks/block_cache_ticket.h"
#include "lib/storage/blocks/block_store.h"
#include "lib/storage/stripe/manifest.h"

namespace sluice {
namespace {

// The previous block, this block, and the block that is read ahead.
constexpr uint64_t kBlocksInOrder = 3;

// The caller of the range has time left: the deadline that ended the read of the block was not its own.
absl::Status WhyMissing(const MissingBytes& gap) {
  const bool lost = gap.code == absl::StatusCode::kDataLoss;
  return absl::Status(lost ? gap.code : absl::StatusCode::kUnavailable, gap.reason);
}

// A file that does not name a manifest of the level above may belong to any manifest.
bool IsOfVersion(const ReadHeader& header, uint32_t version) {
  return version == 0 || header.upper_manifest_crc32c == 0 || header.upper_manifest_crc32c == version;
}

absl::Status StripedAnew(const CachedBlock& block) {
  return absl::UnavailableError(absl::StrCat("file \"", block.file.first, "\" was striped anew while it was read"));
}

}  // namespace

class BlockCache::State : public std::enable_shared_from_this<State> {
 public:
  State(ReaderSource reader, uint64_t max_bytes, MidLevelMetrics& metrics)
      : reader_(std::move(reader)), metrics_(metrics), blocks_(max_bytes, metrics) {}

  void Read(const TicketPtr& ticket) {
    Outbox outbox;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!ticket->callback) return;  // cancelled
      if (reader_()) {
        Serve(ticket, outbox);
      } else {
        Answer(*ticket, absl::UnavailableError("no worker is known yet"), outbox);
      }
    }
    Deliver(outbox);
  }

  void Cancel(const TicketPtr& ticket) {
    Outbox outbox;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!ticket->callback) return;
      Answer(*ticket, absl::CancelledError("the range is not wanted any more"), outbox);
      if (const auto block = std::exchange(ticket->waits_for, nullptr)) {
        std::erase(block->waiters, ticket);
        if (block->waiters.empty() && !block->read_ahead) blocks_.Drop(block, outbox.streams);
      }
    }
    Deliver(outbox);
  }

  void Forget(const std::string& file) {
    Outbox outbox;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const auto& block : blocks_.All()) {
        if (block->waiters.empty() && block->file.first == file) blocks_.Drop(block, outbox.streams);
      }
    }
    Deliver(outbox);
  }

  void Close() {
    Outbox outbox;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
      for (const auto& block : blocks_.All()) {
        for (const auto& ticket : block->TakeWaiters()) Serve(ticket, outbox);
        blocks_.Drop(block, outbox.streams);
      }
    }
    Deliver(outbox);
  }

 private:
  // Work that must run without the lock, since it may call back.
  struct Outbox {
    struct Fetch {
      std::shared_ptr<CachedBlock> block;
      std::shared_ptr<ReadStream> stream;
    };
    std::vector<std::pair<Callback, absl::StatusOr<Range>>> answers;
    BlockStore::Streams streams;  // to cancel
    std::vector<Fetch> fetches;   // to begin
  };

  void Deliver(Outbox& outbox) {
    for (const auto& stream : outbox.streams) stream->Cancel();
    for (const auto& [block, stream] : outbox.fetches) Pull(block, stream);
    for (auto& [callback, answer] : outbox.answers) callback(std::move(answer));
  }

  static void Answer(Ticket& ticket, absl::StatusOr<Range> answer, Outbox& outbox) {
    outbox.answers.emplace_back(std::exchange(ticket.callback, nullptr), std::move(answer));
  }

  static void Wait(const TicketPtr& ticket, const std::shared_ptr<CachedBlock>& block) {
    ticket->waits_for = block;
    block->waiters.push_back(ticket);
  }

  // Advances a range to its end, or to a block that it must wait for.
  void Serve(const TicketPtr& ticket, Outbox& outbox) {  // with mutex_ held
    const Request& request = ticket->request;
    while (true) {
      if (closed_) return Answer(*ticket, absl::CancelledError("the cache is gone"), outbox);
      const std::shared_ptr<CachedFile> file = blocks_.File({request.file, request.version});
      if (file->block_bytes == 0) {
        if (!file->opening) {
          reader_()->ForgetLayout(request.file);
          ticket->FirstLookAt(ticket->opens_at());
          metrics_.CountLookup(CacheLookup::kMiss);
          file->opening = Open(*file, ticket->opens_at(), request, outbox);
        }
        return Wait(ticket, file->opening);
      }
      const absl::StatusOr<uint64_t> end = ticket->EndIn(file->bytes);
      if (!end.ok()) return Answer(*ticket, end.status(), outbox);
      const uint64_t at = ticket->at();
      ticket->range.file_bytes = file->bytes;
      if (at == *end) return Answer(*ticket, std::move(ticket->range), outbox);

      const auto block = Find(file, *ticket, at / file->block_bytes * file->block_bytes, outbox);
      if (!block) return Answer(*ticket, NoRoom(), outbox);
      const uint64_t until = std::min(*end, block->end());
      const MissingBytes* const gap = block->GapIn(at, until);
      const bool may_have_more = gap != nullptr && block->late && ticket->MayWaitLongerThan(*block);
      const bool settled = block->offset + block->settled >= until;
      if (!settled || (may_have_more && block->stream)) return Wait(ticket, block);
      if (may_have_more) {
        blocks_.Drop(block, outbox.streams);
      } else if (gap != nullptr && !request.allow_partial) {
        return Answer(*ticket, WhyMissing(*gap), outbox);
      } else {
        ticket->Append(*block, until);
      }
    }
  }

  absl::Status NoRoom() const {  // with mutex_ held
    return absl::ResourceExhaustedError(
        absl::StrCat("the cache of ", blocks_.max_bytes(), " bytes is full of blocks that are waited for"));
  }

  // Returns the block at `offset`, and begins its read if the cache does not hold it. Null: there is no room for it.
  std::shared_ptr<CachedBlock> Find(const std::shared_ptr<CachedFile>& file, Ticket& ticket, uint64_t offset,
                                    Outbox& outbox) {  // with mutex_ held
    const bool first_look = ticket.FirstLookAt(offset);
    auto found = file->blocks.find(offset);
    if (found != file->blocks.end() && found->second->IsStale()) {
      blocks_.Drop(found->second, outbox.streams);
      found = file->blocks.end();
    }
    std::shared_ptr<CachedBlock> block;
    if (found != file->blocks.end()) {
      block = found->second;
      blocks_.Use(*block);
      if (first_look) metrics_.CountLookup(block->stream ? CacheLookup::kJoined : CacheLookup::kHit);
      if (std::exchange(block->read_ahead, false)) metrics_.CountReadAhead(ReadAhead::kUsed);
    } else {
      const uint64_t length = file->BlockLength(offset);
      if (!blocks_.MakeRoom(length, outbox.streams)) return nullptr;
      metrics_.CountLookup(CacheLookup::kMiss);
      block = Open(*file, offset, ticket.request, outbox);
      blocks_.Enter(file, block, length);
    }
    if (first_look) {
      ++block->held;
      ReadAheadOf(file, *block, ticket.request, outbox);
      --block->held;
    }
    return block;
  }

  // If the cache still holds the previous block, the file is read in order.
  void ReadAheadOf(const std::shared_ptr<CachedFile>& file, const CachedBlock& block, const Request& request,
                   Outbox& outbox) {  // with mutex_ held
    const uint64_t next = block.offset + file->block_bytes;
    const bool in_order = block.offset >= file->block_bytes && file->blocks.contains(block.offset - file->block_bytes);
    if (!in_order || next >= file->bytes || file->blocks.contains(next)) return;
    if (kBlocksInOrder * file->block_bytes > blocks_.max_bytes()) return;
    const uint64_t length = file->BlockLength(next);
    if (!blocks_.MakeRoom(length, outbox.streams)) return;
    const auto ahead = Open(*file, next, request, outbox);
    ahead->read_ahead = true;
    blocks_.Enter(file, ahead, length);
  }

  std::shared_ptr<CachedBlock> Open(const CachedFile& file, uint64_t offset, const Request& request,
                                    Outbox& outbox) {  // with mutex_ held
    auto block = std::make_shared<CachedBlock>();
    block->file = file.name;
    block->offset = offset;
    block->deadline = request.deadline;
    std::shared_ptr<BlockReader> reader = reader_();
    std::shared_ptr<ReadStream> stream = reader->OpenBlockAt(
        file.name.first, offset,
        {.allow_partial = true, .timeout = absl::FromChrono(request.deadline - Now()), .metadata = request.metadata});
    block->stream = KeepReader(std::move(reader), std::move(stream));
    outbox.fetches.push_back({block, block->stream});
    return block;
  }

  // A request for the next part within a callback does not call back at once. But ranges that waited for this part may
  // begin other reads, and these may call back at once, which nests.
  void Pull(const std::shared_ptr<CachedBlock>& block, const std::shared_ptr<ReadStream>& stream) {
    stream->Next([self = shared_from_this(), block, stream](absl::StatusOr<ReadPart> part) {
      if (self->OnPart(block, stream, std::move(part))) self->Pull(block, stream);
    });
  }

  // Copy without the lock, since the part may be large. Only this thread changes `settled`.
  static void Write(const ReadPart& part, CachedBlock& block) {
    if (const auto* chunk = std::get_if<ReadChunk>(&part)) {
      std::memcpy(block.data.get() + (chunk->offset - block.offset), chunk->data.data(), chunk->data.size());
    } else if (const auto* missing = std::get_if<MissingBytes>(&part)) {
      std::memset(block.data.get() + (missing->offset - block.offset), 0, missing->length);
    }
  }

  // Returns whether more parts follow.
  bool OnPart(const std::shared_ptr<CachedBlock>& block, const std::shared_ptr<ReadStream>& stream,
              absl::StatusOr<ReadPart> part) {
    if (part.ok()) Write(*part, *block);
    Outbox outbox;
    bool more = false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (block->stream != stream) return false;
      absl::Status status = part.ok() ? Settle(block, *part, outbox) : part.status();
      // The file was longer when the worker reported the length of the block.
      if (absl::IsOutOfRange(status) && block->length > 0) status = FoundStripedAnew(block, outbox);
      if (status.ok()) {
        ServeWaiters(*block, outbox);
      } else {
        Fail(block, status, outbox);
      }
      more = block->stream == stream;
    }
    Deliver(outbox);
    return more;
  }

  // Serve all waiters first. One of them may continue with the next block, which may take the room of this block.
  void ServeWaiters(CachedBlock& block, Outbox& outbox) {  // with mutex_ held
    const std::vector<TicketPtr> waiters = block.TakeWaiters();
    block.held += waiters.size();
    for (const TicketPtr& ticket : waiters) {
      --block.held;
      Serve(ticket, outbox);
    }
  }

  void Fail(const std::shared_ptr<CachedBlock>& block, const absl::Status& status,
            Outbox& outbox) {  // with mutex_ held
    blocks_.Drop(block, outbox.streams);
    const bool late = Now() >= block->deadline;
    for (const TicketPtr& ticket : block->TakeWaiters()) {
      // The first range may have had less time, or have opened the file beyond its end.
      const bool more_time = late && ticket->MayWaitLongerThan(*block);
      const bool before_it = absl::IsOutOfRange(status) && ticket->opens_at() < block->offset;
      if (more_time || before_it) {
        Serve(ticket, outbox);
      } else {
        Answer(*ticket, status, outbox);
      }
    }
  }

  absl::Status Settle(const std::shared_ptr<CachedBlock>& block, ReadPart& part, Outbox& outbox) {  // with mutex_ held
    if (const auto* header = std::get_if<ReadHeader>(&part)) return OnHeader(block, *header, outbox);
    if (const auto* chunk = std::get_if<ReadChunk>(&part)) {
      block->settled = chunk->offset + chunk->data.size() - block->offset;
    } else if (auto* missing = std::get_if<MissingBytes>(&part)) {
      block->settled = missing->offset + missing->length - block->offset;
      block->late |= Now() >= block->deadline;
      block->gaps.push_back(std::move(*missing));
    } else {
      block->stream = nullptr;
      block->ended = Now();
    }
    return absl::OkStatus();
  }

  absl::Status OnHeader(const std::shared_ptr<CachedBlock>& block, const ReadHeader& header,
                        Outbox& outbox) {  // with mutex_ held
    if (!IsOfVersion(header, block->file.second)) return FoundStripedAnew(block, outbox);
    const std::shared_ptr<CachedFile> file = blocks_.File(block->file);
    if (file->opening == block) {
      if (header.block_bytes > kMaxSruBytes) {
        return absl::FailedPreconditionError(absl::StrCat("data blocks of file \"", block->file.first, "\" have ",
                                                          header.block_bytes, " bytes; an SRU has at most ",
                                                          kMaxSruBytes));
      }
      if (!blocks_.MakeRoom(header.length, outbox.streams)) return NoRoom();
      file->opening = nullptr;
      file->bytes = header.file_bytes;
      file->block_bytes = header.block_bytes;
      block->offset = header.offset;
      blocks_.Enter(file, block, header.length);
    }
    if (header.offset == block->offset && header.length == block->length && header.file_bytes == file->bytes) {
      return absl::OkStatus();
    }
    return FoundStripedAnew(block, outbox);
  }

  // The other cached blocks of the file are stale, too.
  absl::Status FoundStripedAnew(const std::shared_ptr<CachedBlock>& found, Outbox& outbox) {  // with mutex_ held
    const auto blocks = blocks_.File(found->file)->blocks;
    for (const auto& [offset, block] : blocks) {
      if (block == found) continue;
      for (const TicketPtr& ticket : block->TakeWaiters()) Answer(*ticket, StripedAnew(*block), outbox);
      blocks_.Drop(block, outbox.streams);
    }
    return StripedAnew(*found);
  }

  const ReaderSource reader_;
  MidLevelMetrics& metrics_;

  std::mutex mutex_;
  bool closed_ = false;  // guarded by mutex_
  BlockStore blocks_;    // guarded by mutex_
};

BlockCache::BlockCache(ReaderSource reader, uint64_t max_bytes, MidLevelMetrics& metrics)
    : state_(std::make_shared<State>(std::move(reader), max_bytes, metrics)) {}

BlockCache::~BlockCache() {
  state_->Close();
}

BlockCache::TicketPtr BlockCache::Read(Request request, Callback callback) {
  TicketPtr ticket = Prepare(std::move(request), std::move(callback));
  state_->Read(ticket);
  return ticket;
}

BlockCache::TicketPtr BlockCache::Prepare(Request request, Callback callback) {
  return std::make_shared<Ticket>(std::move(request), std::move(callback));
}

void BlockCache::Read(const TicketPtr& ticket) {
  state_->Read(ticket);
}

void BlockCache::Cancel(const TicketPtr& ticket) {
  state_->Cancel(ticket);
}

void BlockCache::Forget(const std::string& file) {
  state_->Forget(file);
}

}  // namespace sluice
