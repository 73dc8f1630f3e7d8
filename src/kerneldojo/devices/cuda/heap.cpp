// The contestant's torch allocator: every tensor lies in one region that the judge allocated and exported.
//
// Memory is cut from the front of the region and comes back to free lists keyed by (graph pool, stream, size class),
// newest first, so that an allocation costs well under a microsecond and never calls the driver. A block is reused on
// the stream that freed it, which is what torch's own allocator promises; a block that another stream used as well
// (record_stream) waits in quarantine until the device is known to be idle. What a CUDA graph allocates while it is
// captured has free lists of its own, for a replay writes there again. When the region is used up, free blocks are
// merged, and as a capture begins, for in it nobody may wait for the device; when that does not help, memory comes from
// cuMemAlloc, outside the region, and is counted. When that is used up too, the caller gets an exception, as from
// torch's own allocator: a null pointer would be taken for memory.
//
// The driver is reached through dlsym, so that this needs neither CUDA's headers nor its runtime to compile.

#include <dlfcn.h>
#include <sys/types.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

using Stream = void*;
constexpr size_t kAlignment = 512;

struct Driver {
  int (*memset_async)(uint64_t, unsigned char, size_t, Stream) = nullptr;
  int (*synchronize)() = nullptr;
  int (*allocate)(uint64_t*, size_t) = nullptr;
  int (*release)(uint64_t) = nullptr;
  int (*exchange_capture_mode)(int*) = nullptr;

  bool load() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) return false;
    memset_async = reinterpret_cast<decltype(memset_async)>(dlsym(library, "cuMemsetD8Async"));
    synchronize = reinterpret_cast<decltype(synchronize)>(dlsym(library, "cuCtxSynchronize"));
    allocate = reinterpret_cast<decltype(allocate)>(dlsym(library, "cuMemAlloc_v2"));
    release = reinterpret_cast<decltype(release)>(dlsym(library, "cuMemFree_v2"));
    exchange_capture_mode =
        reinterpret_cast<decltype(exchange_capture_mode)>(dlsym(library, "cuThreadExchangeStreamCaptureMode"));
    return memset_async != nullptr && synchronize != nullptr && allocate != nullptr && release != nullptr &&
           exchange_capture_mode != nullptr;
  }
};

// While a stream is captured, memory may be had and given back only by a thread that says that it knows what it does:
// otherwise the capture fails, and with it honest code that happened to begin one when the region was used up.
class Relaxed {
 public:
  explicit Relaxed(const Driver& driver) : driver_(driver) { driver_.exchange_capture_mode(&mode_); }
  ~Relaxed() { driver_.exchange_capture_mode(&mode_); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  const Driver& driver_;
  int mode_ = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED; afterwards, what it was
};

struct Key {
  uint64_t pool;
  Stream stream;
  size_t bytes;
  bool operator==(const Key& other) const {
    return pool == other.pool && stream == other.stream && bytes == other.bytes;
  }
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t hash = key.bytes * 0x9e3779b97f4a7c15ull;
    hash ^= reinterpret_cast<uintptr_t>(key.stream) + (hash << 6) + (hash >> 2);
    return hash ^ (key.pool * 0xc2b2ae3d27d4eb4full);
  }
};

struct Block {
  size_t bytes;
  uint64_t pool;
  bool shared;  // used on a stream other than its own
};

struct PoolId {
  uint64_t first, second;
};

uint64_t pool_number(PoolId pool) { return (pool.first << 32) + pool.second + 1; }

struct Span {
  uint64_t address;
  size_t bytes;
};

struct Heap {
  std::mutex mutex;
  Driver driver;
  uint64_t base = 0;
  size_t size = 0;
  uint64_t next = 0;
  uint64_t capture_pool = 0;  // graph pool that allocations go to now; 0 outside of captures
  bool poison = false;
  size_t live_bytes = 0, peak_bytes = 0, fallback_count = 0, fallback_bytes = 0;
  std::unordered_map<uint64_t, Block> live;
  std::unordered_map<Key, std::vector<uint64_t>, KeyHash> free_lists;
  std::vector<Span> spans;       // merged free memory, by address
  std::vector<Span> quarantine;  // freed, but another stream may still use it
  std::vector<Span> retired;     // regions that nothing new is taken from
};

bool is_retired(const Heap& state, uint64_t address) {
  return std::any_of(state.retired.begin(), state.retired.end(), [address](const Span& span) {
    return span.address <= address && address < span.address + span.bytes;
  });
}

Heap& heap() {
  static Heap* instance = new Heap();  // never destroyed: torch frees tensors while the process exits
  return *instance;
}

// Eight classes between one power of two and the next: at most 12.5 % is lost.
size_t size_class(size_t bytes) {
  bytes = std::max(bytes, kAlignment);
  size_t step = std::max(kAlignment, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

void merge_free(Heap& state) {
  for (auto entry = state.free_lists.begin(); entry != state.free_lists.end();) {
    if (entry->first.pool != 0) {
      ++entry;
      continue;
    }
    for (uint64_t address : entry->second) state.spans.push_back({address, entry->first.bytes});
    entry = state.free_lists.erase(entry);
  }
  state.spans.insert(state.spans.end(), state.quarantine.begin(), state.quarantine.end());
  state.quarantine.clear();
  std::sort(state.spans.begin(), state.spans.end(), [](const Span& a, const Span& b) { return a.address < b.address; });
  std::vector<Span> merged;
  for (const Span& span : state.spans) {
    if (!merged.empty() && merged.back().address + merged.back().bytes == span.address) {
      merged.back().bytes += span.bytes;
    } else {
      merged.push_back(span);
    }
  }
  if (!merged.empty() && merged.back().address + merged.back().bytes == state.next) {
    state.next = merged.back().address;
    merged.pop_back();
  }
  state.spans = std::move(merged);
}

uint64_t take(Heap& state, size_t bytes, Stream stream) {
  auto list = state.free_lists.find(Key{state.capture_pool, stream, bytes});
  if (list != state.free_lists.end() && !list->second.empty()) {
    uint64_t address = list->second.back();
    list->second.pop_back();
    return address;
  }
  for (Span& span : state.spans) {
    if (span.bytes >= bytes) {
      uint64_t address = span.address;
      span.address += bytes;
      span.bytes -= bytes;
      return address;
    }
  }
  if (state.next + bytes <= state.base + state.size) {
    uint64_t address = state.next;
    state.next += bytes;
    return address;
  }
  return 0;
}

// How torch's own allocator begins: `contestant/failure.py` knows it by these words.
[[noreturn]] void refuse(const Heap& state, size_t bytes) {
  throw std::runtime_error("CUDA out of memory: no " + std::to_string(bytes) + " bytes are left on the device; " +
                           std::to_string(state.live_bytes) + " are in use here, where there are " +
                           std::to_string(state.size));
}

}  // namespace

extern "C" {

// Hand the mapped region over. Returns 0, or 1 if the driver library lacks what is needed.
int dojo_heap_open(uint64_t base, size_t size) {
  Heap& state = heap();
  std::lock_guard<std::mutex> lock(state.mutex);
  if (!state.driver.load()) return 1;
  state.base = state.next = base;
  state.size = size;
  return 0;
}

void* dojo_heap_allocate(ssize_t bytes, int, Stream stream) {
  if (bytes <= 0) return nullptr;
  Heap& state = heap();
  size_t rounded = size_class(static_cast<size_t>(bytes));
  std::lock_guard<std::mutex> lock(state.mutex);
  uint64_t address = take(state, rounded, stream);
  if (address == 0 && state.capture_pool == 0 && state.base != 0) {
    state.driver.synchronize();
    merge_free(state);
    address = take(state, rounded, stream);
  }
  if (address == 0) {
    // Outside the region: slow, but right.
    if (state.driver.allocate == nullptr && !state.driver.load()) refuse(state, rounded);
    Relaxed relaxed(state.driver);
    if (state.driver.allocate(&address, rounded) != 0) refuse(state, rounded);
    state.fallback_count += 1;
    state.fallback_bytes += rounded;
  }
  state.live[address] = {rounded, state.capture_pool, false};
  state.live_bytes += rounded;
  state.peak_bytes = std::max(state.peak_bytes, state.live_bytes);
  if (state.poison && state.capture_pool == 0) state.driver.memset_async(address, 0xff, rounded, stream);
  return reinterpret_cast<void*>(address);
}

void dojo_heap_free(void* pointer, ssize_t, int, Stream stream) {
  if (pointer == nullptr) return;
  Heap& state = heap();
  uint64_t address = reinterpret_cast<uint64_t>(pointer);
  std::lock_guard<std::mutex> lock(state.mutex);
  auto found = state.live.find(address);
  if (found == state.live.end()) return;
  Block block = found->second;
  state.live.erase(found);
  state.live_bytes -= block.bytes;
  if (is_retired(state, address)) return;
  if (address < state.base || address >= state.base + state.size) {
    Relaxed relaxed(state.driver);
    state.driver.release(address);
  } else if (block.shared) {
    state.quarantine.push_back({address, block.bytes});
  } else {
    state.free_lists[Key{block.pool, stream, block.bytes}].push_back(address);
  }
}

void dojo_heap_record_stream(void* pointer, Stream) {
  Heap& state = heap();
  std::lock_guard<std::mutex> lock(state.mutex);
  auto found = state.live.find(reinterpret_cast<uint64_t>(pointer));
  if (found != state.live.end()) found->second.shared = true;
}

// torch passes the pool's id as std::pair<uint64_t, uint64_t> and, to begin, a std::function by reference.
void dojo_heap_begin_pool(int, PoolId pool, void*) {
  Heap& state = heap();
  std::lock_guard<std::mutex> lock(state.mutex);
  if (state.capture_pool == 0 && state.base != 0) {  // torch begins the pool first, the capture after it.
    state.driver.synchronize();
    merge_free(state);
  }
  state.capture_pool = pool_number(pool);
}

void dojo_heap_end_pool(int, PoolId) {
  Heap& state = heap();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.capture_pool = 0;
}

// The graph is gone: its memory serves everybody again.
void dojo_heap_release_pool(int, PoolId pool) {
  Heap& state = heap();
  uint64_t number = pool_number(pool);
  std::lock_guard<std::mutex> lock(state.mutex);
  for (auto& entry : state.live) {
    if (entry.second.pool == number) entry.second.pool = 0;
  }
  std::vector<std::pair<Key, std::vector<uint64_t>>> lists;
  for (auto entry = state.free_lists.begin(); entry != state.free_lists.end();) {
    if (entry->first.pool == number) {
      lists.emplace_back(Key{0, entry->first.stream, entry->first.bytes}, std::move(entry->second));
      entry = state.free_lists.erase(entry);
    } else {
      ++entry;
    }
  }
  for (auto& [key, addresses] : lists) {
    auto& list = state.free_lists[key];
    list.insert(list.end(), addresses.begin(), addresses.end());
  }
}

// Whether every block is filled with 0xff bytes (NaN in every float type) as it is handed out.
void dojo_heap_poison(int on) {
  Heap& state = heap();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.poison = on != 0;
}

// The device is idle: blocks that several streams used may be reused.
void dojo_heap_reclaim() {
  Heap& state = heap();
  std::lock_guard<std::mutex> lock(state.mutex);
  for (const Span& span : state.quarantine) state.free_lists[Key{0, nullptr, span.bytes}].push_back(span.address);
  state.quarantine.clear();
}

// The device is idle, and whoever used the region is done: free memory becomes one piece again, as far as it can.
void dojo_heap_settle() {
  Heap& state = heap();
  std::lock_guard<std::mutex> lock(state.mutex);
  merge_free(state);
  state.peak_bytes = state.live_bytes;
  state.fallback_count = state.fallback_bytes = 0;
}

// Another region, mapped beside the present one: whatever is allocated from now on lies in it. The device is idle.
void dojo_heap_move(uint64_t base, size_t size) {
  Heap& state = heap();
  std::lock_guard<std::mutex> lock(state.mutex);
  merge_free(state);
  state.spans.clear();
  state.retired.push_back({state.base, state.size});
  state.base = state.next = base;
  state.size = size;
}

// All regions are to be unmapped. Returns 0, or 1, and nothing is changed, if something of it is in use: tensors, or what
// a CUDA graph will write to again. The device is idle.
int dojo_heap_leave() {
  Heap& state = heap();
  std::lock_guard<std::mutex> lock(state.mutex);
  merge_free(state);
  if (!state.live.empty() || !state.free_lists.empty() || state.next != state.base) return 1;
  state.base = state.next = 0;
  state.size = 0;
  state.retired.clear();
  return 0;
}

// live, peak, highest mark, fallback allocations, fallback bytes
void dojo_heap_statistics(uint64_t out[5]) {
  Heap& state = heap();
  std::lock_guard<std::mutex> lock(state.mutex);
  out[0] = state.live_bytes;
  out[1] = state.peak_bytes;
  out[2] = state.next - state.base;
  out[3] = state.fallback_count;
  out[4] = state.fallback_bytes;
}

}  // extern "C"
