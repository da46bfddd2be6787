#include "run/route.h"

route route_pick(const program *p, const opts *o, const run_io *io) {
  (void)io;
  if (o->no_compile) return (route){ROUTE_EAGER, "compiling is switched off"};
  if (p->traits & (OP_NO_TRACE | OP_KV)) return (route){ROUTE_EAGER, "a node cannot be traced"};
  return (route){ROUTE_EAGER, "no compiled route is built yet"};
}
