/* The configuration of jemalloc, which reads this symbol when the process starts; MALLOC_CONF in the environment has
 * precedence, under the name _RJEM_MALLOC_CONF.
 *
 * Freed pages return to the operating system within about a second, by a thread of jemalloc. A write of a large object moves
 * between threads, each of which has an arena: with the default of ten seconds, each arena grows to the size of the
 * largest write.
 *
 * prof:true lets crates/profiling record heap profiles; with prof_active:false jemalloc samples allocations only during a
 * recording. With musl, a program with prof:true crashes at its start (tikv/jemallocator#146), so its jemalloc is compiled
 * without profiling. */
#include <features.h>

#ifdef __GLIBC__
#define PROFILING ",prof:true,prof_active:false"
#else
#define PROFILING ""
#endif

const char *_rjem_malloc_conf = "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0" PROFILING;
