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

// giveWay lets this process, the attackers, have only what the server leaves of the
// machine, and leave it at once: attackers have machines of their own elsewhere.
func giveWay() error { return schedule(idle, 0) }

// goFirst lets this process, the bystander, have what it needs at once, as if it had a
// machine of its own. It takes a right that only the superuser has.
func goFirst() error { return schedule(roundRobin, 1) }

// schedule sets the policy of all threads. A new thread is as its creator.
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
