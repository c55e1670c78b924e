#include "lib/net/io_thread.h"

namespace sluice {

IoThread::IoThread() : work_(boost::asio::make_work_guard(context_)), thread_([this] { context_.run(); }) {}

IoThread::~IoThread() {
  Stop();
}

void IoThread::Stop() {
  context_.stop();
  if (thread_.joinable()) thread_.join();
}

}  // namespace sluice
