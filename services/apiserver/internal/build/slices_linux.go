package build

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// sliceLength is how long a thread of ours may keep a processor from another of ours that
// has just got something to do, in nanoseconds. Of itself the system gives up to 3 ms, and
// looks at its tick, each 4. This is the least that it knows.
const sliceLength = 100_000

// shortSlices asks the scheduler of the system to deal in short slices with the threads of
// the process, and with those that they start: what takes long keeps what is short waiting
// less. It takes nothing from other processes: shares stay as they are. Linux knows it from
// 6.12 on (sched_setattr(2), sched_runtime) and ignores it before.
func shortSlices() {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return // it is as good without
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		a, err := unix.SchedGetAttr(id, 0)
		if err != nil || a.Policy != unix.SCHED_NORMAL || a.Runtime != 0 && a.Runtime <= sliceLength {
			continue // who started us asked for something else
		}
		a.Size, a.Runtime = unix.SizeofSchedAttr, sliceLength
		_ = unix.SchedSetAttr(id, a, 0) // the same: a sandbox may forbid it
	}
}
