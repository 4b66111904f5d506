// How long a line of memory takes from one core to another: the least time of one way between the first two processors that this
// program may use, in nanoseconds. The host of a virtual machine moves its cores, so that they share a cache at times only.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

enum { BATCHES = 20, WAYS = 1000 };

// What passes from core to core: odd on the way there, even on the way back.
static _Alignas(128) atomic_int ball;
static int cores[2];

static void stay_on(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  sched_setaffinity(0, sizeof set, &set);
}

static void await(int value) {
  while (atomic_load_explicit(&ball, memory_order_acquire) != value) {
  }
}

static void *answer(void *unused) {
  stay_on(cores[1]);
  for (int sent = 1; sent < 2 * BATCHES * WAYS; sent += 2) {
    await(sent);
    atomic_store_explicit(&ball, sent + 1, memory_order_release);
  }
  return unused;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(void) {
  cpu_set_t set;
  int found = 0;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  for (int core = 0; core < CPU_SETSIZE && found < 2; core++) {
    if (CPU_ISSET(core, &set)) cores[found++] = core;
  }
  pthread_t other;
  if (found < 2 || pthread_create(&other, NULL, answer, NULL) != 0) return 1;
  stay_on(cores[0]);
  double least = 1e9;
  for (int batch = 0, sent = 1; batch < BATCHES; batch++) {
    double began = now();
    for (int way = 0; way < WAYS; way++, sent += 2) {
      atomic_store_explicit(&ball, sent, memory_order_release);
      await(sent + 1);
    }
    double took = (now() - began) / WAYS / 2;
    if (took < least) least = took;
  }
  pthread_join(other, NULL);
  printf("%.0f\n", least);
}
