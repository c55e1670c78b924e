#include "lib/storage/blocks/block_store.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "lib/storage/blocks/block_cache_ticket.h"

namespace sluice {
namespace {

constexpr auto kGapRetention = std::chrono::seconds(1);

}  // namespace

const MissingBytes* CachedBlock::GapIn(uint64_t begin, uint64_t end) const {
  for (const MissingBytes& gap : gaps) {
    if (gap.offset < end && begin < gap.offset + gap.length) return &gap;
  }
  return nullptr;
}

bool CachedBlock::IsStale() const {
  return !gaps.empty() && !stream && waiters.empty() && Now() > ended + kGapRetention;
}

std::vector<BlockCache::TicketPtr> CachedBlock::TakeWaiters() {
  std::vector<BlockCache::TicketPtr> taken = std::exchange(waiters, {});
  for (const BlockCache::TicketPtr& ticket : taken) ticket->waits_for = nullptr;
  const auto has_more = std::stable_partition(taken.begin(), taken.end(), [this](const BlockCache::TicketPtr& ticket) {
    return ticket->request.deadline <= deadline;
  });
  std::stable_sort(has_more, taken.end(), [](const BlockCache::TicketPtr& a, const BlockCache::TicketPtr& b) {
    return a->request.deadline > b->request.deadline;
  });
  return taken;
}

std::shared_ptr<CachedFile> BlockStore::File(const FileVersion& name) {
  std::shared_ptr<CachedFile>& file = files_[name];
  if (!file) {
    file = std::make_shared<CachedFile>();
    file->name = name;
  }
  return file;
}

std::vector<std::shared_ptr<CachedBlock>> BlockStore::All() const {
  std::vector<std::shared_ptr<CachedBlock>> all(by_use_.begin(), by_use_.end());
  for (const auto& [name, file] : files_) {
    if (file->opening) all.push_back(file->opening);
  }
  return all;
}

bool BlockStore::MakeRoom(uint64_t bytes, Streams& dropped) {
  for (auto next = by_use_.end(); next != by_use_.begin() && used_bytes_ + bytes > max_bytes_;) {
    const std::shared_ptr<CachedBlock> block = *std::prev(next);
    if (block->waiters.empty() && block->held == 0) {
      Drop(block, dropped);
    } else {
      --next;
    }
  }
  return used_bytes_ == 0 || used_bytes_ + bytes <= max_bytes_;
}

// Making room may have dropped the last block of the file, and the file with it.
void BlockStore::Enter(const std::shared_ptr<CachedFile>& file, const std::shared_ptr<CachedBlock>& block,
                       uint64_t length) {
  block->length = length;
  block->data = std::make_unique_for_overwrite<char[]>(length);
  files_[file->name] = file;
  file->blocks[block->offset] = block;
  by_use_.push_front(block);
  block->position = by_use_.begin();
  AddBytes(static_cast<int64_t>(length));
}

void BlockStore::Use(CachedBlock& block) {
  by_use_.splice(by_use_.begin(), by_use_, block.position);
}

void BlockStore::Drop(std::shared_ptr<CachedBlock> block, Streams& dropped) {
  if (auto stream = std::exchange(block->stream, nullptr); stream) dropped.push_back(std::move(stream));
  if (std::exchange(block->read_ahead, false)) metrics_.CountReadAhead(ReadAhead::kWasted);
  const auto found = files_.find(block->file);
  if (found == files_.end()) return;
  CachedFile& file = *found->second;
  if (file.opening == block) file.opening = nullptr;
  const auto entered = file.blocks.find(block->offset);
  if (entered != file.blocks.end() && entered->second == block) {
    file.blocks.erase(entered);
    by_use_.erase(block->position);
    AddBytes(-static_cast<int64_t>(block->length));
  }
  if (!file.opening && file.blocks.empty()) files_.erase(found);
}

void BlockStore::AddBytes(int64_t bytes) {
  used_bytes_ += static_cast<uint64_t>(bytes);
  metrics_.SetCacheBytes(static_cast<int64_t>(used_bytes_));
}

}  // namespace sluice
