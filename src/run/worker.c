#include "run/worker.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/mem.h"

typedef struct job {
  worker_fn fn;
  void *arg;
  struct job *next;
  atomic_bool done;
} job;

struct worker {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t wake, finished;
  job *first, **last;
  atomic_bool pending;  // first != NULL, or stop: may be read without the lock
  bool stop;
  bool (*begin)(void *arg, err *e);
  void (*end)(void *arg);
  void *arg;
  err *start_error;  // valid until start is done
  bool started;
};

// A hand-over between hot threads takes a few microseconds; waking a sleeping one takes 50 or more. So both sides look
// for a short while before they sleep. A yield lets another thread of a busy machine go first.
enum { LOOKS = 200, YIELD_EVERY = 16 };

static bool look_for(atomic_bool *flag) {
  for (int i = 0; i < LOOKS; i++) {
    if (atomic_load_explicit(flag, memory_order_acquire)) return true;
    if (i % YIELD_EVERY == YIELD_EVERY - 1) sched_yield();
  }
  return false;
}

static job *next_job(worker *w) {
  look_for(&w->pending);
  pthread_mutex_lock(&w->lock);
  while (!w->first && !w->stop) pthread_cond_wait(&w->wake, &w->lock);
  job *j = w->first;
  if (j) {
    w->first = j->next;
    if (!w->first) w->last = &w->first;
    atomic_store(&w->pending, w->first || w->stop);
  }
  pthread_mutex_unlock(&w->lock);
  return j;
}

static void finish(worker *w, job *j) {
  pthread_mutex_lock(&w->lock);
  atomic_store_explicit(&j->done, true, memory_order_release);
  pthread_cond_broadcast(&w->finished);
  pthread_mutex_unlock(&w->lock);
}

static void *thread_main(void *arg) {
  worker *w = arg;
  bool ok = w->begin(w->arg, w->start_error);
  pthread_mutex_lock(&w->lock);
  w->started = true;
  pthread_cond_broadcast(&w->finished);
  pthread_mutex_unlock(&w->lock);
  if (!ok) return NULL;
  for (job *j; (j = next_job(w));) {
    j->fn(j->arg);
    finish(w, j);
  }
  w->end(w->arg);
  return NULL;
}

static void destroy(worker *w) {
  pthread_cond_destroy(&w->wake);
  pthread_cond_destroy(&w->finished);
  pthread_mutex_destroy(&w->lock);
  mem_free(w);
}

worker *worker_new(bool (*begin)(void *arg, err *e), void (*end)(void *arg), void *arg, err *e) {
  worker *w = mem_alloc(sizeof *w);
  if (!w) {
    FAIL(e, ERR_NO_MEMORY, "out of memory for a worker thread");
    return NULL;
  }
  *w = (worker){.begin = begin, .end = end, .arg = arg, .start_error = e};
  w->last = &w->first;
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->wake, NULL);
  pthread_cond_init(&w->finished, NULL);
  if (pthread_create(&w->thread, NULL, thread_main, w) != 0) {
    FAIL(e, ERR_HOST, "the system gives no thread for the session");
    destroy(w);
    return NULL;
  }
  pthread_mutex_lock(&w->lock);
  while (!w->started) pthread_cond_wait(&w->finished, &w->lock);
  pthread_mutex_unlock(&w->lock);
  if (err_ok(e)) return w;
  pthread_join(w->thread, NULL);
  destroy(w);
  return NULL;
}

void worker_free(worker *w) {
  if (!w) return;
  pthread_mutex_lock(&w->lock);
  w->stop = true;
  atomic_store(&w->pending, true);
  pthread_cond_signal(&w->wake);
  pthread_mutex_unlock(&w->lock);
  pthread_join(w->thread, NULL);
  destroy(w);
}

void worker_call(worker *w, worker_fn fn, void *arg) {
  job j = {.fn = fn, .arg = arg};
  pthread_mutex_lock(&w->lock);
  *w->last = &j;
  w->last = &j.next;
  atomic_store_explicit(&w->pending, true, memory_order_release);
  pthread_cond_signal(&w->wake);
  pthread_mutex_unlock(&w->lock);
  look_for(&j.done);
  pthread_mutex_lock(&w->lock);  // also when done: j must not die while finish() still holds it
  while (!atomic_load(&j.done)) pthread_cond_wait(&w->finished, &w->lock);
  pthread_mutex_unlock(&w->lock);
}
