// Package beat has the system look oftener at which threads go on, while something large is worked
// on, or much, and processors are few.
//
// What a thread of Go works on at length, and what collects its garbage, keeps a processor until
// the system looks again. Linux does so when somebody wakes there and at its tick, each 4 ms with
// what distributions of it have (CONFIG_HZ=250). A short request whose thread woke on such a
// processor waits for that long, though the threads ask for slices of a tenth of a millisecond
// (sched_setattr(2)), and though another processor has nothing to do: what ran lately is not moved.
//
// So each processor has a thread that a timer wakes (timer_create(2)) each interval, as long as
// there is something large, or much (Beat.Work). It goes back to sleep at once; what matters is
// that the system chooses anew who goes on. The thread stays in one call of the system, and the
// scheduler of Go has nothing to do with it, so that it goes on when all of that's processors
// are taken.
package beat
