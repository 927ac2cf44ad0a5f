/* Empties the emulated processors' TLBs: one real-time sleeper pinned to each processor, waking every few milliseconds.
 *
 * QEMU caches a translation once the page's accessed bit is set. DAMON clears the bit without flushing the TLB, so the
 * next access goes through the cached translation and leaves the bit clear: hot memory is then reported as never used.
 * Every wake-up here changes the address space, which empties the cache. Usage: flusher MICROSECONDS */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void sleep_forever(int cpu, long interval_us) {
  struct sched_param param = {.sched_priority = 1};
  struct timespec interval = {interval_us / 1000000, interval_us % 1000000 * 1000};
  cpu_set_t set;

  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) || sched_setscheduler(0, SCHED_FIFO, &param))
    _exit(1);
  for (;;)
    nanosleep(&interval, NULL);
}

int main(int argc, char **argv) {
  long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  long interval_us = argc == 2 ? atol(argv[1]) : 0;

  if (interval_us <= 0)
    return 2;
  for (int cpu = 1; cpu < cpus; cpu++)
    if (fork() == 0)
      sleep_forever(cpu, interval_us);
  sleep_forever(0, interval_us);
}
