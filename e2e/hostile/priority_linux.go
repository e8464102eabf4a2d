package hostile

import (
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

const (
	roundRobin = 2 // SCHED_RR
	idle       = 5 // SCHED_IDLE
)

// lowerPriority gives this process, which runs the attackers, only idle CPU time, as if they ran on
// other machines.
func lowerPriority() error { return schedule(idle, 0) }

// raisePriority gives this process, the probe client, real-time priority, as if it ran on another
// machine. It needs root.
func raisePriority() error { return schedule(roundRobin, 1) }

// schedule sets the scheduling policy of all threads. New threads inherit it.
func schedule(policy int, priority int32) error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, e := range threads {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			return err
		}
		_, _, errno := syscall.Syscall(syscall.SYS_SCHED_SETSCHEDULER, uintptr(id), uintptr(policy), uintptr(unsafe.Pointer(&priority)))
		if errno != 0 && errno != syscall.ESRCH {
			return errno
		}
	}
	return nil
}
