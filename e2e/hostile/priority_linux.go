package hostile

import (
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

const (
	normalPolicy     = 0 // SCHED_OTHER
	roundRobinPolicy = 2 // SCHED_RR
	idlePolicy       = 5 // SCHED_IDLE
)

// lowerPriority gives this process, which runs the attackers, only idle CPU time, as if they ran on
// other machines.
func lowerPriority() error { return setSchedulingPolicy(idlePolicy, 0) }

// restorePriority reverts lowerPriority. A server that starts afterwards has the usual priority. It
// needs root.
func restorePriority() error { return setSchedulingPolicy(normalPolicy, 0) }

// raisePriority gives this process, the probe client, real-time priority, as if it ran on another
// machine. It needs root.
func raisePriority() error { return setSchedulingPolicy(roundRobinPolicy, 1) }

// setSchedulingPolicy sets the scheduling policy of all threads. New threads inherit it.
func setSchedulingPolicy(policy int, priority int32) error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, e := range threads {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			return err
		}
		_, _, errno := syscall.Syscall(syscall.SYS_SCHED_SETSCHEDULER, uintptr(id), uintptr(policy),
			uintptr(unsafe.Pointer(&priority)))
		if errno != 0 && errno != syscall.ESRCH {
			return errno
		}
	}
	return nil
}
